"""F13: the wall clock jumps a day forward, a day back, or stops; the monotonic clock continues."""

from __future__ import annotations

import pytest

from plog.errors import ErrorCode
from plog.records.batch import iter_batches
from tests.helpers.sim.sim_broker import SimBroker, create_topic, fetch_request, produce_request
from tests.helpers.sim.sim_time import START_MS

DAY_MS = 86_400_000


def make(**config: str) -> SimBroker:
    broker = SimBroker().start()
    create_topic(broker, "t", **config)
    return broker


def jump(broker: SimBroker, by_ms: float) -> None:
    """Move the wall clock by `by_ms`; 0 stops it."""
    if by_ms:
        broker.ports.clock.jump_wall(by_ms)
    else:
        frozen_ms = broker.ports.clock.now_ms()
        broker.ports.clock.now_ms = lambda: frozen_ms  # type: ignore[method-assign]


def produce(broker: SimBroker, value: bytes) -> int:
    """Produce a record with the time of the broker's clock; return its offset."""
    answer = broker.produce("t", value, now_ms=broker.ports.clock.now_ms())
    assert answer.error_code == 0
    return answer.base_offset


JUMPS = pytest.mark.parametrize("by_ms", [DAY_MS, -DAY_MS, 0], ids=["forward", "back", "frozen"])


@JUMPS
def test_fetch_waits_for_requested_time(by_ms: float) -> None:
    broker = make()
    fetch = broker.begin(fetch_request("t", max_wait_ms=500), 11)
    jump(broker, by_ms)
    broker.ports.advance(499)
    assert not fetch.is_done
    broker.ports.advance(11)
    assert fetch.response().responses[0].partitions[0].error_code == 0


@JUMPS
def test_append_in_progress_is_acknowledged(by_ms: float) -> None:
    broker = make()
    asked = broker.begin(produce_request("t", b"a"), 9)
    jump(broker, by_ms)
    broker.settle()
    assert asked.response().responses[0].partition_responses[0].error_code == 0


@JUMPS
def test_offsets_epochs_and_order_do_not_depend_on_wall_clock(by_ms: float) -> None:
    broker = make(segment_bytes="1048576")
    for number in range(6):
        if number == 3:
            jump(broker, by_ms)
        assert produce(broker, b"%d" % number) == number
    headers = [header for _, header in iter_batches(bytes(broker.fetch("t").records))]
    assert [header.base_offset for header in headers] == list(range(6))
    assert {header.partition_leader_epoch for header in headers} == {0}
    broker.restart()


@JUMPS
def test_retention_uses_record_timestamps(by_ms: float) -> None:
    """Records are deleted once their own timestamps are older than retention.ms."""
    broker = make(retention_ms=str(3 * DAY_MS), segment_bytes="1048576")
    for number in range(8):
        broker.produce("t", b"%d" % number * 200_000)
    jump(broker, by_ms)
    broker.broker.log_manager.apply_retention(broker.ports.clock.now_ms())
    assert broker.log("t").log_start_offset == 0
    broker.broker.log_manager.apply_retention(START_MS + 5 * DAY_MS)
    broker.settle()
    assert broker.log("t").log_start_offset == 8
    assert broker.produce("t", b"new", now_ms=broker.ports.clock.now_ms()).base_offset == 8


def test_clock_that_goes_back_rolls_no_segment_and_loses_no_record() -> None:
    broker = make(segment_ms=str(DAY_MS))
    log = broker.log("t")
    for _ in range(5):
        produce(broker, b"x")
        broker.ports.clock.jump_wall(-DAY_MS)
    assert len(log.segments) == 1
    assert broker.fetch("t").high_watermark == 5


@JUMPS
def test_start_after_clock_jump_finds_all_records(by_ms: float) -> None:
    broker = make()
    produce(broker, b"a")
    broker.ports.clock.jump_wall(by_ms)
    again = broker.restart()
    assert again.fetch("t").high_watermark == 1
    assert produce(again, b"b") == 1


def test_records_with_future_timestamps_are_refused() -> None:
    """As in Kafka: message.timestamp.after.max.ms is an hour."""
    broker = make()
    broker.ports.clock.jump_wall(-DAY_MS)
    assert broker.produce("t", b"a").error_code == ErrorCode.INVALID_TIMESTAMP
    broker.ports.clock.jump_wall(DAY_MS)
    assert broker.produce("t", b"a").base_offset == 0
