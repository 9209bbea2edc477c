"""Objects created for a client are freed when it leaves, without the garbage collector.

A reference cycle costs more than the request's own work: the collector has to find it among the
objects of all waiting requests. A cycle that holds records keeps a megabyte until then.
"""

from __future__ import annotations

import contextlib
import dataclasses
import struct
from collections.abc import Callable

import pytest

from plog.wire.header import RequestHeader, encode_request
from plog.wire.messages.api_versions import ApiVersionsRequest
from plog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from plog.wire.messages.delete_groups import DeleteGroupsRequest
from plog.wire.messages.delete_topics import DeleteTopicsRequest
from plog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from plog.wire.messages.heartbeat import HeartbeatRequest
from plog.wire.messages.init_producer_id import InitProducerIdRequest
from plog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from plog.wire.messages.metadata import MetadataRequest
from plog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from plogd.apis.close_connection import CloseConnection
from plogd.net.connection import Connection
from plogd.net.connections import Connections
from tests.helpers.client.collector import cycles_left_by, growth_of
from tests.helpers.net_connection import FakeWire
from tests.helpers.sim.sim_broker import (
    SimBroker,
    connection,
    create_topic,
    fetch_request,
    produce_request,
    records_of,
)

DAY_MS = 86_400_000
GOOD = records_of((b"x",))
TORN = GOOD[:-1] + bytes([GOOD[-1] ^ 1])


def _broker(**settings: object) -> SimBroker:
    broker = SimBroker(**settings).start()
    create_topic(broker, "t", 3)
    return broker


def _poll(broker: SimBroker, *, is_given_up: bool = False) -> None:
    """Fetch at the end of a partition, so that the request waits."""
    partition = FetchPartition(
        partition=0, fetch_offset=broker.log("t").log_end_offset, partition_max_bytes=1 << 20
    )
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic="t", partitions=[partition])],
    )
    asked = broker.begin(request, 4)
    if is_given_up:
        asked.cancel()
    broker.ports.advance(600)
    if not is_given_up:
        asked.response()


def _produce(records: bytes, topic: str = "t", **options: int) -> Callable[[SimBroker], None]:
    return lambda broker: broker.ask(produce_request(topic, records=records, **options), 7)


def _frame(frame: bytes) -> Callable[[SimBroker], None]:
    def send(broker: SimBroker) -> None:
        with contextlib.suppress(CloseConnection):
            broker.dispatch_frame(frame)

    return send


def _commit(broker: SimBroker) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    broker.ask(OffsetCommitRequest(group_id="g", topics=[topic]), 7)


def _create_again(broker: SimBroker) -> None:
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    broker.ask(CreateTopicsRequest(topics=[topic], timeout_ms=100), 5)


def _topic_comes_and_goes(broker: SimBroker, name: str = "gone") -> None:
    create_topic(broker, name, 3)
    broker.produce(name, b"v")
    broker.ask(fetch_request(name, 0), 4)
    broker.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), 3)
    broker.ports.advance(120_000)


def _member_comes_and_goes(broker: SimBroker, group_id: str = "jg") -> None:
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"m")
    request = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=6000,
        rebalance_timeout_ms=6000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    broker.ask(request, 3)
    broker.ports.advance(20_000)


REQUESTS: dict[str, Callable[[SimBroker], object]] = {
    "a poll that finds nothing": _poll,
    "a poll whose client leaves": lambda broker: _poll(broker, is_given_up=True),
    "a fetch": lambda broker: broker.ask(fetch_request("t", 0), 4),
    "a fetch of an unknown topic": lambda broker: broker.ask(fetch_request("nope", 0), 4),
    "a fetch out of range": lambda broker: broker.ask(fetch_request("t", 10**6), 4),
    "records": _produce(GOOD),
    "records with acks=0": _produce(GOOD, acks=0),
    "damaged records": _produce(TORN),
    "no records": _produce(b""),
    "half a header": _produce(GOOD[:30]),
    "two batches": _produce(GOOD + GOOD),
    "records for an unknown topic": _produce(GOOD, "nope"),
    "invalid acks": _produce(GOOD, acks=7),
    "not a request": _frame(b"\0\1" * 3 + b"zz"),
    "an unknown API": _frame(struct.pack(">hhih", 999, 0, 1, -1)),
    "an unknown version": _frame(struct.pack(">hhih", 1, 99, 1, -1)),
    "a request that cannot be read": _frame(struct.pack(">hhih", 0, 7, 1, -1) + b"\xff" * 20),
    "metadata": lambda broker: broker.ask(MetadataRequest(topics=None), 12),
    "a producer id": lambda broker: broker.ask(InitProducerIdRequest(transactional_id=None), 4),
    "a heartbeat of an unknown member": lambda broker: broker.ask(
        HeartbeatRequest(group_id="g", generation_id=1, member_id="x"), 3
    ),
    "a committed offset": _commit,
    "an existing topic": _create_again,
    "a created and deleted topic": _topic_comes_and_goes,
    "an expired member": _member_comes_and_goes,
}


@pytest.mark.parametrize("what", REQUESTS)
def test_request_leaves_no_reference_cycles(what: str) -> None:
    broker = _broker()
    assert cycles_left_by(lambda: REQUESTS[what](broker)) == {}


def test_produce_leaves_no_reference_cycles_with_relaxed_flush() -> None:
    broker = _broker(log_flush_interval_messages=1 << 40)
    assert cycles_left_by(lambda: _produce(GOOD)(broker)) == {}


def test_nothing_is_left_of_deleted_topics() -> None:
    broker = _broker()
    assert growth_of(lambda number: _topic_comes_and_goes(broker, f"x{number}")) == {}


def test_nothing_is_left_of_deleted_groups() -> None:
    broker = _broker(offsets_topic_num_partitions=1)

    def come_and_go(number: int) -> None:
        _member_comes_and_goes(broker, f"g{number}")
        broker.ask(DeleteGroupsRequest(groups_names=[f"g{number}"]), 1)
        broker.ports.advance(1000)

    assert growth_of(come_and_go) == {}


def test_nothing_is_left_of_expired_producers() -> None:
    broker = _broker()

    def come_and_go(number: int) -> None:
        answer = broker.ask(InitProducerIdRequest(transactional_id=None), 4)
        batch = records_of(
            (b"x",), producer_id=answer.producer_id, producer_epoch=0, base_sequence=0
        )
        _produce(batch)(broker)
        broker.ports.advance(DAY_MS + 1000)
        broker.broker.log_manager.expire_producers(broker.broker.clock.now_ms())

    assert growth_of(come_and_go) == {}


def test_nothing_is_left_of_closed_fetch_sessions() -> None:
    broker = _broker()

    def fetch(session_id: int, epoch: int, topics: list[FetchTopic]) -> int:
        request = FetchRequest(
            max_wait_ms=0, session_id=session_id, session_epoch=epoch, topics=topics
        )
        opened: int = broker.ask(request, 10).session_id
        return opened

    def come_and_go(number: int) -> None:
        session_id = fetch(0, 0, [FetchTopic(topic="t", partitions=[FetchPartition(partition=0)])])
        assert len(broker.broker.fetch_sessions) == 1
        fetch(session_id, -1, [])

    assert growth_of(come_and_go) == {}


def test_nothing_is_left_of_lost_connections() -> None:
    broker = _broker()
    shared = Connections(broker.dispatch, broker.config, broker.ports.bundle())

    def come_and_go(number: int) -> None:
        context = dataclasses.replace(connection(), client_address=(f"192.0.2.{number}", number))
        opened = Connection(shared, context, FakeWire())
        frame = encode_request(RequestHeader(18, 0, 1, f"client{number}"), ApiVersionsRequest())
        opened.target()[: len(frame)] = frame
        opened.received(len(frame))
        opened.lost()

    assert growth_of(come_and_go) == {}
