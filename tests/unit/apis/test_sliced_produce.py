"""Produce requests with very many partitions: sliced, in order, with ordinary responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.wire.header import RequestHeader, encode_request
from plog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from plogd.apis import sliced_produce
from plogd.apis.dispatch import CloseConnection
from plogd.fair_queue import SLICE
from plogd.net.request_memory import RequestMemory
from plogd.ports import Later
from tests.helpers.sim.sim_broker import (
    Asked,
    SimBroker,
    create_topic,
    produce_request,
    records_of,
)
from tests.helpers.sim.sim_ports import outcome

COUNT = 3 * sliced_produce.AT_ONCE
RECORDS = records_of((b"v",))


def make(**settings: Any) -> SimBroker:
    broker = SimBroker(**settings).start()
    create_topic(broker, "t", 10)
    return broker


def request(
    topics: Sequence[tuple[str, int]], *, acks: int = -1, records: bytes | None = RECORDS
) -> ProduceRequest:
    """Return a request with the given number of batches per topic, over ten partitions."""
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=name,
                partition_data=[
                    PartitionProduceData(index=number % 10, records=records)
                    for number in range(count)
                ],
            )
            for name, count in topics
        ],
    )


def answered(asked: Asked) -> list[tuple[str, list[int], set[int]]]:
    """Return the name, partitions and error codes of each topic in the response."""
    return [
        (
            topic.name,
            [one.index for one in topic.partition_responses],
            {one.error_code for one in topic.partition_responses},
        )
        for topic in asked.response().responses
    ]


def ends(broker: SimBroker) -> list[int]:
    return [broker.log("t", number).log_end_offset for number in range(10)]


def test_large_request_is_appended_and_answered_as_a_whole() -> None:
    broker = make()
    asked = broker.begin(request([("t", COUNT), ("missing", 3), ("t", 10), ("t", 0)]), 9)
    assert sum(ends(broker)) <= 100
    broker.settle()
    numbers = [number % 10 for number in range(COUNT)]
    assert answered(asked) == [
        ("t", numbers, {0}),
        ("missing", [0, 1, 2], {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
        ("t", numbers[:10], {0}),
        ("t", [], set()),
    ]
    assert ends(broker) == [COUNT // 10 + 1] * 10
    assert broker.broker.replica_manager.append_queues.parked_bytes == 0
    assert broker.bugs == []


def test_large_request_runs_alone_and_a_small_one_does_not() -> None:
    broker = make()
    for message, runs_alone in ((request([("t", COUNT)]), True), (request([("t", 9)]), False)):
        header = RequestHeader(message.api_key, 9, 1, "test")
        frame = encode_request(header, message)[4:]
        dispatched = broker.dispatch_frame(frame)
        assert (dispatched.is_produce, dispatched.runs_alone) == (True, runs_alone)
    broker.settle()


def test_request_for_very_many_topics_is_sliced() -> None:
    broker = make()
    asked = broker.begin(request([(f"unknown-{number}", 1) for number in range(COUNT)]), 9)
    broker.settle()
    assert [name for name, _, _ in answered(asked)] == [f"unknown-{n}" for n in range(COUNT)]


def test_large_request_is_appended_when_its_client_disconnects() -> None:
    broker = make()
    asked = broker.begin(request([("t", COUNT)], acks=0), 9)
    asked.cancel()
    broker.settle()
    assert sum(ends(broker)) == COUNT
    assert broker.broker.replica_manager.append_queues.parked_bytes == 0


def test_large_request_with_acks_0_gets_no_response_unless_it_fails() -> None:
    broker = make()
    asked = broker.begin(request([("t", COUNT)], acks=0), 9)
    broker.settle()
    assert asked.response() is None
    failed = broker.begin(request([("t", COUNT), ("missing", 1)], acks=0), 9)
    broker.settle()
    with pytest.raises(CloseConnection):
        failed.parts()


def test_failed_slice_with_acks_0_does_not_stop_later_slices() -> None:
    """Slices of unknown topics fail immediately, the mixed one once its appends are made."""
    broker = make()
    asked = broker.begin(request([("missing", 250), ("t", COUNT)], acks=0), 9)
    broker.settle()
    assert sum(ends(broker)) == COUNT
    with pytest.raises(CloseConnection, match="acks=0"):
        asked.parts()
    assert broker.broker.replica_manager.append_queues.parked_bytes == 0
    assert broker.bugs == []


def test_large_request_is_refused_when_too_many_bytes_wait() -> None:
    broker = make(plog_produce_parked_max_bytes=2 << 20)
    big = records_of((b"v" * 1000,))
    assert len(big) * COUNT < 2 << 20
    first = broker.begin(request([("t", COUNT)], records=big), 9)
    second = broker.begin(request([("t", COUNT)], records=big), 9)
    broker.settle()
    assert [codes for _, _, codes in answered(first)] == [{0}]
    assert [codes for _, _, codes in answered(second)] == [{ErrorCode.REQUEST_TIMED_OUT}]
    assert sum(ends(broker)) == COUNT
    again = broker.begin(produce_request("t", b"x"), 9)
    broker.settle()
    assert again.response().responses[0].partition_responses[0].error_code == 0


def test_large_request_is_refused_permanently_when_it_exceeds_the_limit() -> None:
    broker = make(plog_produce_parked_max_bytes=2 << 20)
    asked = broker.begin(request([("t", COUNT)], records=records_of((b"v" * 1400,))), 9)
    broker.settle()
    assert [codes for _, _, codes in answered(asked)] == [{ErrorCode.MESSAGE_TOO_LARGE}]
    assert sum(ends(broker)) == 0
    assert broker.broker.replica_manager.append_queues.parked_bytes == 0


def test_records_of_a_waiting_slice_are_counted_once() -> None:
    broker = make(plog_produce_parked_max_bytes=16 << 20, plog_unsynced_max_bytes=100)
    topics = [("t", COUNT // 3), ("u", COUNT // 3), ("v", COUNT // 3)]
    for name in ("u", "v"):
        create_topic(broker, name, 10)
    records = records_of((b"v" * 8000,))
    asked = broker.begin(request(topics, records=records), 9)
    queues = broker.broker.replica_manager.append_queues
    broker.settle()
    assert [codes for _, _, codes in answered(asked)] == [{0}] * 3
    assert (queues.refused, queues.parked_bytes) == (0, 0)


def test_slices_of_a_late_request_are_not_appended() -> None:
    broker = make(plog_unsynced_max_bytes=100)
    asked = broker.begin(request([("t", COUNT)]), 9)
    broker.ports.timers.advance(1200)  # No sync completes.
    broker.settle()
    [(_, _, codes)] = answered(asked)
    assert codes == {0, ErrorCode.REQUEST_TIMED_OUT} or codes == {ErrorCode.REQUEST_TIMED_OUT}
    assert sum(ends(broker)) < COUNT / 2
    broker.ports.advance(200_000)
    assert sum(ends(broker)) < COUNT / 2
    assert broker.broker.replica_manager.append_queues.parked_bytes == 0


# -- decoding ---------------------------------------------------------------------------------


VERY_MANY = 3_000
"""More elements than are decoded in one turn."""


def frame_of(asked: ProduceRequest) -> bytearray:
    return bytearray(encode_request(RequestHeader(0, 9, 1, "test"), asked)[4:])


def test_request_for_very_many_partitions_is_decoded_in_slices() -> None:
    broker = make()
    large = broker.begin(request([("t", VERY_MANY)]), 9)
    slices = 0
    while ends(broker) == [0] * 10:
        broker.ports.timers.run_next()
        slices += 1
    assert slices >= VERY_MANY // SLICE
    broker.settle()
    assert answered(large) == [("t", [number % 10 for number in range(VERY_MANY)], {0})]


@pytest.mark.parametrize("acks", [0, 1])
def test_records_are_appended_when_the_frame_is_reused_and_the_client_leaves(acks: int) -> None:
    broker = make()
    frame = frame_of(request([("t", VERY_MANY)], acks=acks))
    dispatched = broker.dispatch_frame(memoryview(frame))
    assert (dispatched.is_produce, dispatched.runs_alone) == (True, True)
    frame[:] = bytes(len(frame))
    assert isinstance(dispatched.result, Later)
    dispatched.result.cancel()
    broker.settle()
    assert ends(broker) == [VERY_MANY // 10] * 10
    assert broker.bugs == []


def test_copy_of_request_is_counted_until_it_is_decoded() -> None:
    broker = make()
    memory = broker.broker.copy_memory = RequestMemory(-1)
    frame = frame_of(request([("t", VERY_MANY)]))
    broker.dispatch_frame(memoryview(frame))
    assert memory.used_bytes > len(frame) - 100
    while memory.used_bytes:
        broker.ports.timers.run_next()
    assert broker.broker.replica_manager.append_queues.parked_bytes > VERY_MANY * len(RECORDS) / 2


def test_invalid_request_closes_the_connection_without_an_append() -> None:
    broker = make()
    frame = frame_of(request([("t", VERY_MANY)]))
    dispatched = broker.dispatch_frame(memoryview(frame)[:-10])
    broker.settle()
    with pytest.raises(CloseConnection, match="invalid Produce request"):
        outcome(dispatched.result)
    assert ends(broker) == [0] * 10


def test_request_with_invalid_acks_is_refused_in_slices() -> None:
    broker = make()
    large = broker.begin(request([("t", VERY_MANY)], acks=5), 9)
    broker.settle()
    [(_, partitions, codes)] = answered(large)
    assert (len(partitions), codes) == (VERY_MANY, {ErrorCode.INVALID_REQUIRED_ACKS})
