"""plog/cli/replay/pace.py: the times and order in which a replay sends records."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

import pytest

from plog.cli.replay.pace import TimeOrder, TimePace, speed
from plog.client.values import ConsumerRecord
from plog.records.batch import TimestampType


def _record(partition: int, timestamp: int) -> ConsumerRecord:
    kind = TimestampType.CREATE_TIME
    return ConsumerRecord("t", partition, 0, timestamp, kind, None, b"", (), 0)


def _popped(order: TimeOrder) -> Iterable[int]:
    while (record := order.pop()) is not None:
        yield record.timestamp


def test_records_are_due_in_proportion_to_their_timestamps() -> None:
    pace = TimePace(10, 3600)
    assert pace.wait_s(50_000, 100.0) == 0
    assert pace.wait_s(51_000, 100.0) == pytest.approx(0.1)
    assert pace.wait_s(51_000, 100.5) == 0
    assert pace.wait_s(49_000, 100.5) == 0
    assert pace.wait_s(60_000, 100.5) == pytest.approx(0.5)


def test_long_pause_is_shortened_and_later_records_follow_it() -> None:
    pace = TimePace(1, 5)
    pace.wait_s(0, 0.0)
    assert pace.wait_s(1_000_000, 0.0) == 5
    assert pace.wait_s(1_001_000, 5.0) == pytest.approx(1)


def test_pop_returns_earliest_record_and_keeps_partition_order() -> None:
    order = TimeOrder([0, 1])
    for partition, timestamp in [(0, 5), (0, 2), (0, 9), (1, 1), (1, 7)]:
        order.add(_record(partition, timestamp))
    order.finish(0)
    order.finish(1)
    assert list(_popped(order)) == [1, 5, 2, 7, 9]


def test_pop_returns_none_while_an_earlier_record_may_arrive() -> None:
    order = TimeOrder([0, 1])
    order.add(_record(0, 5))
    assert order.pop() is None
    order.add(_record(1, 6))
    assert list(_popped(order)) == [5]
    assert order.waiting(1) == 1
    order.finish(0)
    assert list(_popped(order)) == [6]
    assert order.pop() is None


@pytest.mark.parametrize("text", ["fast", "0x", "x", "-1x", "10", "1x/s", ""])
def test_invalid_speed_is_an_error(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="not a speed"):
        speed(text)
