"""Faults as users of the client library meet them, and the errors that they see.

The tests run against a broker process; unit tests cover the engine's rules. Faults come from the
broker fixture's hooks, from a proxy in front of it, from signals, and from bytes changed on disk.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

import plog
import plog.aio
from plog.client.errors import (
    BufferExhausted,
    ConnectionFailed,
    CorruptRecords,
    DeliveryTimedOut,
    ForkedError,
    IllegalState,
    WrongThread,
)
from plog.errors import RequestTimedOut
from plogd.testing.broker_process import BrokerProcess
from plogd.testing.plugin import BrokerFactory
from tests.helpers.eventually import eventually
from tests.helpers.proxy import FETCH, PRODUCE, Fault, FaultyAnswers, Proxy
from tests.integration.client_servers import server_of


@pytest.fixture
def broker(plog_broker_factory: BrokerFactory) -> Iterator[BrokerProcess]:
    made = plog_broker_factory({"group.initial.rebalance.delay.ms": "0"}, kind="process")
    yield made
    if made.is_running:
        made.stop()


def read_all(servers: str, topic: str, count: int, **settings: Any) -> list[plog.ConsumerRecord]:
    with plog.Consumer(
        topic, bootstrap_servers=servers, auto_offset_reset="earliest", **settings
    ) as consumer:
        records: list[plog.ConsumerRecord] = []
        while len(records) < count:
            some = consumer.consume(timeout_s=60)
            assert some, f"only {len(records)} of {count}"
            records += some
        assert consumer.poll(0.3) is None, "more records than were sent"
        return records


def test_killed_and_restarted_broker_loses_and_duplicates_nothing(
    broker: BrokerProcess,
) -> None:
    with plog.Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=2000) as producer:
        sent = []
        for number in range(3000):
            sent.append(producer.send("t", b"%d" % number, partition=0))
            if number in (1000, 2000):
                broker.kill()
                broker.restart()
        offsets = [future.result(60).offset for future in sent]
    records = read_all(broker.bootstrap_servers, "t", 3000)
    assert [int(record.value) for record in records] == list(range(3000))
    assert [record.offset for record in records] == offsets


def test_lost_acknowledgment_duplicates_nothing(broker: BrokerProcess) -> None:
    with plog.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("t", b"0").result(60)
        lost = broker.hooks.drop("Produce", after=True)
        assert producer.send("t", b"1").result(60).offset == 1
        assert lost.hits == 1
    assert [record.value for record in read_all(broker.bootstrap_servers, "t", 2)] == [b"0", b"1"]


# Short backoffs, and short timeouts for a silent broker.
HASTY: dict[str, Any] = {
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 10,
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 10,
    "request_timeout_ms": 300,
}
FAULTS = 5


@pytest.fixture(params=["plog", pytest.param("kafka", marks=pytest.mark.long)])
def servers(request: pytest.FixtureRequest) -> str:
    """Return the address of a broker that these tests share."""
    name = server_of(request, request.param).settings["bootstrap_servers"]
    assert isinstance(name, str)
    return name


@pytest.fixture
def topic(servers: str) -> str:
    name = f"faults-{uuid.uuid4().hex[:12]}"
    with plog.Admin(bootstrap_servers=servers) as admin:
        admin.create_topic(name, partitions=1)
    return name


def send_all(servers: str, topic: str, count: int) -> list[plog.RecordMetadata]:
    """Send the numbers up to `count` in many batches, several of them in flight at a time."""
    with plog.Producer(bootstrap_servers=servers, batch_size=400, **HASTY) as producer:
        sent = [producer.send(topic, b"%d" % number) for number in range(count)]
        return [future.result(60) for future in sent]


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name.lower())
def test_faulty_acknowledgments_lose_and_duplicate_nothing(
    servers: str, topic: str, fault: Fault
) -> None:
    faulty = FaultyAnswers(PRODUCE, fault, FAULTS)
    with Proxy(servers, faulty) as proxy:
        sent = send_all(proxy.bootstrap_servers, topic, 1500)
    assert faulty.done == FAULTS
    values = [int(record.value) for record in read_all(servers, topic, 1500)]
    assert values == list(range(1500))
    # The broker acknowledges an old duplicate batch without its offset.
    assert all(metadata.offset in (number, -1) for number, metadata in enumerate(sent))


def test_duplicated_produce_requests_are_written_once(servers: str, topic: str) -> None:
    """Each Produce is repeated immediately; its second response never reaches the client."""
    doubled: list[bytes] = []

    def again(request: bytes) -> list[bytes]:
        if int.from_bytes(request[:2], "big") != PRODUCE:
            return []
        doubled.append(request)
        return [request]

    with Proxy(servers, lambda answer: answer.payload, again=again) as proxy:
        sent = send_all(proxy.bootstrap_servers, topic, 1500)
    assert len(doubled) > 20
    assert [metadata.offset for metadata in sent] == list(range(1500))
    values = [int(record.value) for record in read_all(servers, topic, 1500)]
    assert values == list(range(1500))


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name.lower())
def test_faulty_fetch_responses_skip_and_repeat_nothing(
    servers: str, topic: str, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    send_all(servers, topic, 1500)
    faulty = FaultyAnswers(FETCH, fault, FAULTS)
    settings = {"max_partition_fetch_bytes": 500, "fetch_max_wait_ms": 100, **HASTY}
    with Proxy(servers, faulty) as proxy:
        values = read_all(proxy.bootstrap_servers, topic, 1500, **settings)
    assert [int(record.value) for record in values] == list(range(1500))
    assert faulty.done == FAULTS
    mistrust = f"{proxy.bootstrap_servers} sent a response without"
    assert (mistrust in caplog.text) is (fault is Fault.TWICE)


def test_memory_is_bounded_without_acknowledgments(servers: str, topic: str) -> None:
    """While the broker does not read, memory fills up; sending continues when it reads again."""
    reads = threading.Event()

    def stall(request: bytes) -> list[bytes]:
        if int.from_bytes(request[:2], "big") == PRODUCE:
            assert reads.wait(60)
        return []

    with Proxy(servers, lambda answer: answer.payload, again=stall) as proxy:
        with plog.Producer(
            bootstrap_servers=proxy.bootstrap_servers,
            acks=0,
            buffer_memory=1 << 20,
            max_block_ms=300,
            send_buffer_bytes=1 << 16,
        ) as producer:
            taken = 0

            def send_100_mb() -> None:
                nonlocal taken
                for taken in range(10_000):
                    producer.send(topic, b"%d" % taken + bytes(10_000))

            with pytest.raises(BufferExhausted, match=r"buffer\.memory=1048576 stayed full"):
                send_100_mb()
            reads.set()
        # Before the proxy, which forwards the records, is closed.
        values = [int(record.value.rstrip(b"\0")) for record in read_all(servers, topic, taken)]
    assert values == list(range(taken))


def test_connection_reset_during_fetch_skips_and_repeats_nothing(broker: BrokerProcess) -> None:
    with plog.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(500):
            producer.send("t", b"%d" % number)
    for after in (False, True):
        lost = broker.hooks.drop("Fetch", after=after)
        records = read_all(broker.bootstrap_servers, "t", 500)
        assert [int(record.value) for record in records] == list(range(500))
        assert lost.hits == 1


def test_group_continues_after_broker_restart(broker: BrokerProcess) -> None:
    servers = broker.bootstrap_servers
    with (
        plog.Producer(bootstrap_servers=servers) as producer,
        plog.Consumer(
            "t", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest"
        ) as consumer,
    ):
        producer.send("t", b"0").result(60)
        assert consumer.consume(timeout_s=60)[0].value == b"0"
        consumer.commit()
        broker.kill()
        broker.restart()
        producer.send("t", b"1").result(60)
        assert consumer.consume(timeout_s=60)[0].value == b"1"
        consumer.commit()
        [committed] = consumer.committed(consumer.assignment).values()
        assert committed is not None
        assert committed.offset == 2


def test_commit_in_a_listener_times_out(broker: BrokerProcess) -> None:
    """default.api.timeout.ms applies, not the timeout of the poll; the error names the method."""
    servers = broker.bootstrap_servers
    took_s: list[float] = []

    class Listener(plog.RebalanceListener):
        def on_partitions_revoked(self, partitions: Any) -> None:
            began_s = time.monotonic()
            try:
                consumer.commit()
            finally:
                took_s.append(time.monotonic() - began_s)

    with (
        plog.Producer(bootstrap_servers=servers) as producer,
        plog.Consumer(
            bootstrap_servers=servers,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            default_api_timeout_ms=500,
        ) as consumer,
    ):
        producer.send("t", b"0").result(60)
        consumer.subscribe(["t"], listener=Listener())
        assert consumer.consume(timeout_s=60)
        broker.hooks.drop("OffsetCommit", times=None)
        consumer.subscribe(["u"], listener=Listener())
        with pytest.raises((ConnectionFailed, RequestTimedOut)) as raised:
            consumer.poll(300)
        assert "on_partitions_revoked" in str(raised.value.__notes__)
    assert 0.3 < took_s[0] < 200  # Not the 300 s of the poll.


def test_send_times_out_when_the_broker_was_killed(broker: BrokerProcess) -> None:
    with plog.Producer(
        bootstrap_servers=broker.bootstrap_servers,
        linger_ms=0,
        request_timeout_ms=500,
        delivery_timeout_ms=1000,
    ) as producer:
        producer.send("t", b"0").result(60)
        broker.kill()
        with pytest.raises(DeliveryTimedOut, match=r"t-0.*delivery\.timeout\.ms"):
            producer.send("t", b"1").result(60)


def test_corrupt_batch_is_named_and_can_be_skipped(broker: BrokerProcess) -> None:
    servers = broker.bootstrap_servers
    with plog.Producer(bootstrap_servers=servers, linger_ms=0) as producer:
        for number in range(3):
            producer.send("t", b"value %d" % number).result(60)
    broker.stop()
    _damage(broker.data_dir / "t-0" / "00000000000000000000.log", b"value 1")
    broker.start()
    with plog.Consumer("t", bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        assert consumer.consume(1, timeout_s=30)[0].value == b"value 0"
        with pytest.raises(CorruptRecords, match=r"t-0, offsets 1.*seek to 2"):
            consumer.consume(1, timeout_s=30)
        consumer.seek(plog.TopicPartition("t", 0), 2)
        assert consumer.consume(1, timeout_s=30)[0].value == b"value 2"


def _damage(path: Path, text: bytes) -> None:
    data = bytearray(path.read_bytes())
    position = data.index(text)
    data[position] ^= 1
    path.write_bytes(data)


def test_consumer_refuses_concurrent_threads(broker: BrokerProcess) -> None:
    with plog.Consumer("t", bootstrap_servers=broker.bootstrap_servers) as consumer:
        waiting = threading.Thread(target=lambda: _until_woken(consumer))
        waiting.start()
        eventually(lambda: consumer._depth, "the call of the other thread")
        with pytest.raises(WrongThread, match="another thread"):
            consumer.consume(1, timeout_s=1)
        consumer.wakeup()
        waiting.join(60)
        assert not waiting.is_alive()
        assert consumer.consume(1, timeout_s=0.01) == []


def _until_woken(consumer: plog.Consumer) -> None:
    with pytest.raises(plog.WokenUp):
        consumer.consume(1, timeout_s=60)


@pytest.mark.parametrize("call", ["commit", "committed", "position", "end_offsets", "topics"])
def test_wakeup_ends_calls_that_wait_for_unreachable_brokers(call: str) -> None:
    partition = plog.TopicPartition("t", 0)
    arguments: dict[str, Any] = {"commit": {partition: 1}, "position": partition}
    given = () if call == "topics" else (arguments.get(call, [partition]),)
    with plog.Consumer(bootstrap_servers="127.0.0.1:1", group_id="g") as consumer:
        consumer.assign([partition])
        timer = threading.Timer(0.2, consumer.wakeup)
        timer.start()
        with pytest.raises(plog.WokenUp):
            getattr(consumer, call)(*given)
        assert consumer.poll(0.01) is None, "one wakeup ended two calls"


def test_child_of_a_fork_needs_its_own_clients(broker: BrokerProcess) -> None:
    servers = broker.bootstrap_servers
    with plog.Producer(bootstrap_servers=servers) as producer:
        producer.send("t", b"parent").result(60)
        delayed = broker.hooks.delay("Produce", seconds=3600)
        under_way = producer.send("t", b"on its way")
        delayed.wait()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                producer.send("t", b"must not be sent")
            except ForkedError:
                assert isinstance(under_way.exception(1), ForkedError)
                with plog.Producer(bootstrap_servers=servers) as own:
                    own.send("t", b"child").result(60)
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        broker.advance_time(3600)
        producer.send("t", b"parent again").result(60)
    values = [record.value for record in read_all(broker.bootstrap_servers, "t", 4)]
    assert sorted(values) == [b"child", b"on its way", b"parent", b"parent again"]


def test_blocking_call_in_a_callback_is_refused(broker: BrokerProcess) -> None:
    refused: Queue[type[Exception]] = Queue()
    with plog.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:

        def wait(*_: object) -> None:
            for call in (producer.send("t", b"2").result, producer.flush, producer.close):
                try:
                    call()
                except Exception as error:
                    refused.put(type(error))

        producer.send("t", b"1", on_delivery=wait).result(60)
        assert [refused.get(timeout=60) for _ in range(3)] == [IllegalState] * 3
        producer.send("t", b"3").result(60)
        producer.flush()  # The refused call has not partly closed it.


def test_task_cancelled_as_records_arrive_leaves_them_to_the_next(
    broker: BrokerProcess,
) -> None:
    servers = broker.bootstrap_servers

    async def read() -> list[bytes]:
        async with plog.aio.Consumer(
            "t", bootstrap_servers=servers, auto_offset_reset="earliest"
        ) as consumer:
            waiting = asyncio.ensure_future(consumer.consume())
            await asyncio.sleep(0)
            announce = consumer._core.on_data

            def announce_and_cancel() -> None:
                has_data = consumer._core.has_data
                announce()
                if has_data:
                    waiting.cancel()

            consumer._core.on_data = announce_and_cancel
            with pytest.raises(asyncio.CancelledError):
                await waiting
            consumer._core.on_data = announce
            return [record.value for record in await consumer.consume(timeout_s=60)]

    with plog.Producer(bootstrap_servers=servers) as producer:
        producer.send("t", b"1").result(60)
    assert asyncio.run(read()) == [b"1"]


def test_record_is_sent_although_its_future_is_cancelled(broker: BrokerProcess) -> None:
    servers = broker.bootstrap_servers

    async def send() -> None:
        async with plog.aio.Producer(bootstrap_servers=servers) as producer:
            await (await producer.send("t", b"0"))
            broker.hooks.delay("Produce", seconds=0.3)
            sent = await producer.send("t", b"1")
            waiting = asyncio.ensure_future(sent.result())
            asyncio.get_running_loop().call_soon(waiting.cancel)
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert (await sent).offset == 1

    asyncio.run(send())
    with plog.Producer(bootstrap_servers=servers) as producer:
        future = producer.send("t", b"2")
        assert future.cancel() is False
        assert future.result(60).offset == 2
    assert len(read_all(broker.bootstrap_servers, "t", 3)) == 3


def test_pending_records_are_sent_when_the_process_exits(broker: BrokerProcess) -> None:
    servers = broker.bootstrap_servers
    pid = os.fork()
    if pid == 0:
        os.execv(
            sys.executable,
            [
                sys.executable,
                "-c",
                f"import plog; p = plog.Producer(bootstrap_servers={servers!r}, linger_ms=60000);"
                "[p.send('t', b'%d' % n) for n in range(100)]; del p",
            ],
        )
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len(read_all(broker.bootstrap_servers, "t", 100)) == 100
