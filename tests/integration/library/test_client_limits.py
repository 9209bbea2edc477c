"""Time limits, exits by an exception, missing topics and invalid arguments, in each face.

The tests use a broker process that is stopped or killed. The engine's tests check every call in
virtual time; these tests check that each face passes the limits on.
"""

from __future__ import annotations

import concurrent.futures
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from plog.client.admin import NewTopic
from plog.errors import KafkaError, RequestTimedOut, UnknownTopicOrPartition
from plog.types import TopicPartition
from plogd.testing.broker_process import BrokerProcess
from plogd.testing.plugin import BrokerFactory
from tests.helpers.client.faces import NAMES, open_face

TOPIC = "orders"
P0 = TopicPartition(TOPIC, 0)
LIMIT_S = 1.0
WITHIN_LIMIT = r"within (1|0\.\d+) s"
"""A request gets what is left of the call's limit, which depends on the machine."""


@pytest.fixture
def broker(plog_broker_factory: BrokerFactory) -> Iterator[BrokerProcess]:
    settings = {"auto.create.topics.enable": "false", "group.initial.rebalance.delay.ms": "0"}
    made = plog_broker_factory(settings, kind="process")
    made.create_topic(TOPIC, partitions=3)
    yield made
    if made.is_running:
        made.stop()


@pytest.fixture(params=NAMES)
def face(request: pytest.FixtureRequest) -> Iterator[Any]:
    with open_face(request.param) as opened:
        yield opened


@pytest.fixture
def servers(broker: BrokerProcess) -> dict[str, Any]:
    return {"bootstrap_servers": broker.bootstrap_servers}


@pytest.fixture
def stopped(broker: BrokerProcess) -> Iterator[Any]:
    """Yield a function that stops the broker: it accepts connections but never responds."""

    def stop() -> None:
        os.kill(broker.pid, signal.SIGSTOP)

    yield stop
    os.kill(broker.pid, signal.SIGCONT)


# -- a silent broker ------------------------------------------------------------------------------


def test_consumer_calls_time_out_when_the_broker_is_silent(
    face: Any, servers: Any, stopped: Any
) -> None:
    consumer = face.consumer(**servers)
    consumer.end_offsets([P0])
    stopped()
    with pytest.raises(RequestTimedOut, match=rf"did not respond to ListOffsets {WITHIN_LIMIT}"):
        consumer.end_offsets([P0], timeout_s=LIMIT_S)
    with pytest.raises(RequestTimedOut, match=rf"did not respond to Metadata {WITHIN_LIMIT}"):
        consumer.partitions_for("others", timeout_s=LIMIT_S)
    consumer.close(0)


def test_admin_calls_time_out_when_the_broker_is_silent(
    face: Any, servers: Any, stopped: Any
) -> None:
    admin = face.admin(default_api_timeout_ms=int(LIMIT_S * 1000), **servers)
    admin.list_topics()
    stopped()
    for call in (admin.list_topics, lambda: admin.create_topic("t"), lambda: admin.describe_acls()):
        with pytest.raises(KafkaError, match=WITHIN_LIMIT):
            call()


def test_producer_calls_time_out_when_the_broker_is_silent(
    face: Any, servers: Any, stopped: Any
) -> None:
    producer = face.producer(max_block_ms=int(LIMIT_S * 1000), **servers)
    producer.send(TOPIC, b"1").result(60)
    stopped()
    unknown = producer.send if face.name == "blocking" else producer.send_and_wait
    with pytest.raises(RequestTimedOut):
        unknown("others", b"2")
    with pytest.raises(RequestTimedOut):
        producer.partitions_for("others", timeout_s=LIMIT_S)
    producer.send(TOPIC, b"3")
    with pytest.raises(RequestTimedOut, match="a flush"):
        producer.flush(timeout_s=LIMIT_S)
    producer.close(0)


# -- leaving a block by an exception --------------------------------------------------------------


class Interrupted(BaseException):
    """A substitute for KeyboardInterrupt, which only the main thread can receive."""


def leave(face: Any, proxy: Any) -> None:
    """Enter the client's ``with`` block and leave it by an exception."""
    client = proxy._client

    async def block() -> None:
        async with client:
            raise Interrupted

    def run() -> None:
        if face.name == "aio":
            face.wait(block)
        elif face.name == "twisted":
            face.wait(lambda: Deferred.fromCoroutine(block()))
        else:
            with client:
                raise Interrupted

    with pytest.raises(Interrupted):
        run()


def test_producer_block_exits_soon_when_no_broker_is_reachable(
    face: Any, servers: Any, broker: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    producer = face.producer(**servers)
    producer.send(TOPIC, b"1").result(60)
    broker.kill()
    producer.send(TOPIC, b"2")
    leave(face, producer)
    assert "closed a producer before 1 records were acknowledged (orders: 1)" in caplog.messages


def test_consumer_block_exits_soon_when_no_broker_is_reachable(
    face: Any, servers: Any, broker: BrokerProcess
) -> None:
    with open_face("blocking") as other:
        other.producer(**servers).send(TOPIC, b"1").result(60)
    consumer = face.consumer(TOPIC, group_id="g", auto_offset_reset="earliest", **servers)
    consumer.take(1)
    broker.kill()
    leave(face, consumer)


def test_records_are_sent_when_an_exception_leaves_the_block(face: Any, servers: Any) -> None:
    producer = face.producer(linger_ms=60_000, **servers)
    sent = producer.send(TOPIC, b"1")
    leave(face, producer)
    assert sent.result(1).offset == 0


# -- topics and partitions that do not exist ------------------------------------------------------


def test_missing_topic_is_reported_by_poll(face: Any, servers: Any) -> None:
    consumer = face.consumer("typo", group_id="g", allow_auto_create_topics=False, **servers)
    with pytest.raises(UnknownTopicOrPartition, match="topic typo does not exist"):
        consumer.poll(60)


def test_missing_topic_is_one_warning_with_auto_creation(
    face: Any, servers: Any, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = face.consumer("typo", **servers)
    assert consumer.poll(3) is None
    warning = "topic typo does not exist; waiting for it to be created"
    assert caplog.messages.count(warning) == 1


def test_missing_partition_is_reported_by_poll_and_position(face: Any, servers: Any) -> None:
    missing = TopicPartition(TOPIC, 9)
    consumer = face.consumer(**servers)
    consumer.assign([missing])
    with pytest.raises(
        UnknownTopicOrPartition, match="orders-9 does not exist because topic orders has"
    ):
        consumer.poll(60)
    with pytest.raises(UnknownTopicOrPartition, match="orders-9"):
        consumer.position(missing, timeout_s=30)


# -- invalid arguments ----------------------------------------------------------------------------


def test_admin_error_names_the_invalid_argument(face: Any, servers: Any) -> None:
    admin = face.admin(**servers)
    with pytest.raises(TypeError, match=r"create_topic: partitions is '3': pass an int or None"):
        admin.create_topic("t", partitions="3")
    with pytest.raises(TypeError, match=r"topics\[0\]\.partitions is '3'"):
        admin.create_topics([NewTopic("t", partitions="3")])  # type: ignore[arg-type]
    admin.create_topic("t", configs={"retention.ms": 5, "preallocate": False})
    configs = admin.describe_config((2, "t"))
    assert (configs["retention.ms"].value, configs["preallocate"].value) == ("5", "false")


def test_invalid_listener_is_refused_by_subscribe(face: Any, servers: Any) -> None:
    class Misspelt:
        def on_partition_assigned(self, partitions: object) -> None: ...

    consumer = face.consumer(**servers)
    with pytest.raises(TypeError, match=r"listener is .* does not have on_partitions_assigned"):
        consumer.subscribe([TOPIC], listener=Misspelt())


def test_concurrent_futures_waits_for_several_records(servers: Any) -> None:
    with open_face("blocking") as face:
        producer = face.producer(**servers)
        futures = [producer.send(TOPIC, b"%d" % number, partition=0) for number in range(50)]
        done, not_done = concurrent.futures.wait(futures, 30)
        assert (len(done), not_done) == (50, set())
        assert {x.result().offset for x in concurrent.futures.as_completed(futures)} == set(
            range(50)
        )
