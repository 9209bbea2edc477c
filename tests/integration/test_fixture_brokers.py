"""Brokers for tests, which behave the same as a thread and as a process.

test_fixture.py and test_fixture_plugin.py test the pytest fixtures.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Producer

import plog.testing
from plog import Record
from plog.client.errors import ConnectionFailed
from plog.client.simple import EARLIEST, SimpleClient
from plog.errors import (
    ErrorCode,
    KafkaError,
    NotEnoughReplicas,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from plog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from plogd.testing.broker_process import BrokerProcess
from plogd.testing.broker_thread import BrokerThread
from plogd.testing.running_broker import BrokerFailed, RunningBroker

WEEK_S = 7 * 24 * 3600


def client_of(broker: RunningBroker) -> SimpleClient:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return SimpleClient(host, int(port))


def produce(broker: RunningBroker, topic: str, value: bytes = b"x", **options: int) -> int:
    with client_of(broker) as client:
        return client.produce(topic, 0, [Record(value=value)], **options)


@pytest.fixture(params=["thread", "process"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., RunningBroker]:
    return lambda settings=None: plog.testing.broker(tmp_path, settings, kind=request.param)


@pytest.fixture
def broker(make: Callable[..., RunningBroker]) -> Iterator[RunningBroker]:
    broker = make()
    with broker:
        yield broker
    broker.check()


# -- start and stop -------------------------------------------------------------------------------


def test_data_and_address_survive_a_restart_and_a_kill(broker: RunningBroker) -> None:
    address, topic = broker.bootstrap_servers, broker.fresh_topic()
    produce(broker, topic, b"one")
    broker.restart()
    produce(broker, topic, b"two")
    broker.kill()
    assert not broker.is_running
    broker.restart()
    assert broker.bootstrap_servers == address
    with client_of(broker) as client:
        assert [record.value for record in client.fetch(topic, 0, 0)] == [b"one", b"two"]


def test_clean_shutdown_file_is_left_by_a_stop_but_not_by_a_kill(broker: RunningBroker) -> None:
    mark = broker.data_dir / ".kafka_cleanshutdown"
    broker.stop()
    assert mark.exists()
    broker.start()
    assert not mark.exists()
    broker.kill()
    assert not mark.exists()


def test_start_that_fails_raises_the_reason(make: Callable[..., RunningBroker]) -> None:
    broker = make({"num.partitions": "none"})
    with pytest.raises(BrokerFailed, match=r"num\.partitions"):
        broker.start()
    assert not broker.is_running


def test_port_in_use_is_named_in_the_log(broker: RunningBroker, tmp_path: Path) -> None:
    second = BrokerThread(
        tmp_path / "second", {"listeners": f"PLAINTEXT://{broker.bootstrap_servers}"}
    )
    with pytest.raises(BrokerFailed, match="exited with code 1"):
        second.start()
    assert broker.bootstrap_servers.rpartition(":")[2] in second.log_text()


def test_unstarted_broker_cannot_be_controlled(make: Callable[..., RunningBroker]) -> None:
    with pytest.raises(BrokerFailed, match=r"call start\(\)"):
        make().advance_time(1)


def test_running_broker_cannot_be_started_again(broker: RunningBroker) -> None:
    with pytest.raises(BrokerFailed, match="already running"):
        broker.start()


def test_bug_is_raised_once_with_its_log_lines(broker: RunningBroker) -> None:
    with broker.log_path.open("a") as log:
        log.write("2026-01-31T12:00:00.000Z CRITICAL plogd.service: unexpected error: here\n")
        log.write("    Traceback (most recent call last):\n")
    with pytest.raises(BrokerFailed, match="unexpected error: here"):
        broker.check()
    broker.check()


def test_real_bug_is_raised_with_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with BrokerThread(tmp_path) as broker:
        topic = broker.fresh_topic()

        def break_down(*_: object) -> None:
            raise ZeroDivisionError("by us")

        assert broker._run is not None
        monkeypatch.setattr(broker._run.service.broker.fetch_sessions, "begin", break_down)
        with client_of(broker) as client, pytest.raises(KafkaError, match="UNKNOWN_SERVER_ERROR"):
            client.fetch(topic, 0, 0)
    with pytest.raises(BrokerFailed, match=r"(?s)unexpected error: Fetch.*ZeroDivisionError"):
        broker.close()


def test_kill_under_load_loses_no_acknowledged_records(broker: RunningBroker) -> None:
    topic = broker.fresh_topic()
    for _ in range(3):
        with Busy(broker, topic) as busy:
            busy.wait(20)
            broker.kill()
        broker.start()
        with client_of(broker) as client:
            assert client.list_offset(topic, 0) >= busy.last_offset + 1


class Busy:
    """A client that produces as fast as it can until its broker dies or the block ends."""

    def __init__(self, broker: RunningBroker, topic: str) -> None:
        self.last_offset = -1
        self._client, self._topic = client_of(broker), topic
        self._progress = threading.Condition()
        self._is_over = False
        self._thread = threading.Thread(target=self._produce)

    def wait(self, more: int) -> None:
        """Wait until `more` records have been acknowledged."""
        with self._progress:
            until = self.last_offset + more
            assert self._progress.wait_for(lambda: self.last_offset >= until, 30)

    def _produce(self) -> None:
        with self._client as client, contextlib.suppress(ConnectionFailed):
            while not self._is_over:
                offset = client.produce(self._topic, 0, [Record(value=b"x")])
                with self._progress:
                    self.last_offset = offset
                    self._progress.notify_all()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join(60)


def test_settings_are_reloaded(make: Callable[..., RunningBroker]) -> None:
    with make() as broker:
        broker.reload()
        assert "reloaded the settings" in broker.log_text()


# -- topics ---------------------------------------------------------------------------------------


def test_topics_are_created_and_deleted_without_a_client(broker: RunningBroker) -> None:
    broker.create_topic("orders", 3, {"retention.ms": "1000"})
    assert len(list(broker.data_dir.glob("orders-*"))) == 3
    with pytest.raises(TopicAlreadyExists):
        broker.create_topic("orders")
    broker.delete_topic("orders")
    with pytest.raises(UnknownTopicOrPartition):
        broker.delete_topic("orders")
    with pytest.raises(KafkaError, match="no-such-setting"):
        broker.create_topic("wrong", config={"no-such-setting": "1"})
    assert broker.fresh_topic("test_a[b]") != broker.fresh_topic("test_a[b]")


# -- hooks ----------------------------------------------------------------------------------------


def test_fail_hook_refuses_the_next_request(broker: RunningBroker) -> None:
    topic = broker.fresh_topic()
    hook = broker.hooks.fail("Produce", NotEnoughReplicas("two of three are away"))
    with pytest.raises(NotEnoughReplicas, match="two of three are away"):
        produce(broker, topic)
    assert produce(broker, topic) == 0
    assert hook.hits == 1


def test_fail_hook_accepts_an_error_that_plog_never_raises(broker: RunningBroker) -> None:
    topic = broker.fresh_topic()
    broker.hooks.fail("Produce", ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    with pytest.raises(KafkaError, match="THROTTLING_QUOTA_EXCEEDED"):
        produce(broker, topic)


def test_drop_hook_closes_the_connection_before_or_after_the_append(broker: RunningBroker) -> None:
    topic = broker.fresh_topic()
    with broker.hooks.drop("Produce") as before, pytest.raises(ConnectionFailed):
        produce(broker, topic)
    with broker.hooks.drop("Produce", after=True) as after, pytest.raises(ConnectionFailed):
        produce(broker, topic)
    assert (before.hits, after.hits) == (1, 1)
    assert produce(broker, topic) == 1


def test_delay_hook_delays_the_request(broker: RunningBroker) -> None:
    topic = broker.fresh_topic()
    broker.hooks.delay("Produce", 0.3)
    started_s = time.monotonic()
    produce(broker, topic)
    assert time.monotonic() - started_s >= 0.3


def test_delay_ends_when_the_test_advances_time(broker: RunningBroker) -> None:
    topic = broker.fresh_topic()
    hook = broker.hooks.delay("Produce", 3600)
    offsets: list[int] = []
    sender = threading.Thread(target=lambda: offsets.append(produce(broker, topic)))
    sender.start()
    hook.wait()
    broker.advance_time(3600)
    sender.join(60)
    assert offsets == [0]


def test_hook_ends_with_its_block_or_a_reset_or_the_broker(broker: RunningBroker) -> None:
    topic = broker.fresh_topic()
    with broker.hooks.drop("Produce", times=None):
        pass
    hook = broker.hooks.drop("Produce", times=None)
    broker.hooks.reset()
    assert produce(broker, topic) == 0
    assert hook.hits == 0
    hook = broker.hooks.fail("Produce", NotEnoughReplicas, times=None)
    with pytest.raises(NotEnoughReplicas):
        produce(broker, topic)
    broker.restart()
    assert produce(broker, topic) == 1
    assert hook.hits == 1
    with pytest.raises(TimeoutError):
        hook.wait(2)


def test_wait_for_a_hook_times_out_when_no_request_matches(broker: RunningBroker) -> None:
    hook = broker.hooks.drop("Fetch")
    with pytest.raises(TimeoutError, match="got 0 of 1 requests"):
        hook.wait(timeout_s=0.05)
    assert hook.hits == 0, "a late response was matched to another request"


def test_wait_for_a_hook_fails_when_the_broker_dies(broker: RunningBroker) -> None:
    hook = broker.hooks.drop("Fetch")
    errors: list[Exception] = []

    def wait() -> None:
        try:
            hook.wait(timeout_s=120)
        except (BrokerFailed, TimeoutError) as error:
            errors.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    broker.kill()
    waiting.join(60)
    assert len(errors) == 1


def test_invalid_hook_is_refused_with_the_reason(broker: RunningBroker) -> None:
    hooks = broker.hooks
    with pytest.raises(ValueError, match="did you mean 'Fetch'"):
        hooks.drop("Fecth")
    with pytest.raises(ValueError, match="names no topics"):
        hooks.drop("Heartbeat", topic="orders")
    with pytest.raises(ValueError, match="NONE: it is not an error"):
        hooks.fail("Produce", ErrorCode.NONE)
    with pytest.raises(ValueError, match="unknown error code 4711"):
        hooks.fail("Produce", 4711)
    with pytest.raises(TypeError, match="RuntimeError"):
        hooks.fail("Produce", RuntimeError)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'NOT_LEADER' is not an error"):
        hooks.fail("Produce", "NOT_LEADER")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="by -1 s"):
        hooks.delay("Produce", -1)


# -- time -----------------------------------------------------------------------------------------


def test_retention_deletes_old_records_after_time_advances(broker: RunningBroker) -> None:
    topic = broker.fresh_topic(config={"retention.ms": str(WEEK_S * 1000)})
    produce(broker, topic)
    broker.advance_time(WEEK_S - 3600)
    assert log_start(broker, topic) == 0
    broker.advance_time(2 * 3600)
    assert log_start(broker, topic) == 1


def log_start(broker: RunningBroker, topic: str) -> int:
    with client_of(broker) as client:
        return client.list_offset(topic, 0, EARLIEST)


def test_idle_connection_is_closed_after_time_advances(broker: RunningBroker) -> None:
    with client_of(broker) as client:
        client.metadata([])
        broker.advance_time(610)
        with pytest.raises(ConnectionFailed):
            client.metadata([])


def test_append_time_advances_and_stays_advanced_after_a_restart(broker: RunningBroker) -> None:
    topic = broker.fresh_topic(config={"message.timestamp.type": "LogAppendTime"})
    produce(broker, topic)
    broker.advance_time(3600)
    produce(broker, topic)
    broker.restart()
    produce(broker, topic)
    with client_of(broker) as client:
        first, second, third = (record.timestamp for record in client.fetch(topic, 0, 0))
    assert 3600_000 <= second - first < 3700_000
    assert second <= third < second + 100_000


@pytest.mark.long
def test_time_advances_while_a_client_produces(make: Callable[..., RunningBroker]) -> None:
    # -1: the client does not reconnect if the broker closes a connection that was idle for a week.
    with (
        make({"connections.max.idle.ms": "-1"}) as broker,
        Busy(broker, broker.fresh_topic()) as busy,
    ):
        busy.wait(5)
        broker.advance_time(60)
        broker.advance_time(WEEK_S)
        busy.wait(5)


def test_producer_ids_expire_after_time_advances(broker: RunningBroker) -> None:
    topic = broker.fresh_topic()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
    producer.produce(topic, b"x")
    assert producer.flush(60) == 0
    assert len(producers_of(broker, topic)) == 1
    broker.advance_time(23 * 3600)
    assert len(producers_of(broker, topic)) == 1
    broker.advance_time(2 * 3600)
    assert producers_of(broker, topic) == []


def producers_of(broker: RunningBroker, topic: str) -> list[ProducerState]:
    wanted = TopicRequest(name=topic, partition_indexes=[0])
    with client_of(broker) as client:
        response = client._ask(DescribeProducersRequest(topics=[wanted]), DescribeProducersResponse)
    return list(response.topics[0].partitions[0].active_producers)


def test_time_cannot_go_back(broker: RunningBroker) -> None:
    with pytest.raises(ValueError, match="cannot advance time"):
        broker.advance_time(-1)


# -- cleanup --------------------------------------------------------------------------------------


def _descriptors() -> set[str]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
        except FileNotFoundError:  # The descriptor that listed the directory.
            continue
    return found


@pytest.mark.parametrize("kind", ["thread", "process"])
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_no_thread_or_descriptor_is_left(tmp_path: Path, kind: str, end: str) -> None:
    gc.collect()
    threads, descriptors = set(threading.enumerate()), _descriptors()
    broker = plog.testing.broker(tmp_path, kind=kind)  # type: ignore[arg-type]
    for _ in range(3):
        broker.start()
        topic = broker.fresh_topic()
        with client_of(broker) as client:
            client.produce(topic, 0, [Record(value=b"x")])
            client.fetch(topic, 0, 0)
            broker.hooks.drop("Metadata")
            getattr(broker, end)()
    gc.collect()
    assert set(threading.enumerate()) == threads
    assert _descriptors() == descriptors


def test_broker_thread_does_not_change_its_process(tmp_path: Path) -> None:
    program = f"""
import gc, resource, signal, sys
def state():
    return (sys.getswitchinterval(), gc.get_threshold(), gc.isenabled(), gc.get_freeze_count(),
            resource.getrlimit(resource.RLIMIT_NOFILE),
            [signal.getsignal(n) for n in signal.valid_signals()])
before = state()
import plog.testing
from pathlib import Path
with plog.testing.broker(Path({str(tmp_path)!r})) as broker:
    assert state() == before
    broker.restart()
assert state() == before
assert "twisted.internet.reactor" not in sys.modules
from twisted.python import threadable
assert threadable.ioThread is None
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_forked_child_does_not_keep_the_broker_thread_from_restarting(tmp_path: Path) -> None:
    with BrokerThread(tmp_path) as broker:
        ready_reader, ready_writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(ready_writer, b"x")
            signal.pause()
        os.read(ready_reader, 1)
        os.close(ready_reader)
        os.close(ready_writer)
        try:
            broker.kill()
            broker.start()
            produce(broker, broker.fresh_topic())
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def test_broker_process_ends_when_its_test_is_killed(tmp_path: Path) -> None:
    program = f"""
import os, plog.testing
from pathlib import Path
broker = plog.testing.broker(Path({str(tmp_path)!r}), kind="process")
broker.start()
print(broker.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, check=False, timeout=60
    )
    try:
        pidfd = os.pidfd_open(int(done.stdout))
    except ProcessLookupError:
        return
    with open(pidfd) as ended:
        assert _is_readable(ended.fileno(), 30)


def _is_readable(descriptor: int, timeout_s: float) -> bool:
    import select

    return bool(select.select([descriptor], [], [], timeout_s)[0])


def test_process_without_controls_cannot_be_controlled(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, pytest.raises(BrokerFailed, match="controls=True"):
        broker.advance_time(1)
