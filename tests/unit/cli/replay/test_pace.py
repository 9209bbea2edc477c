"""plog/cli/replay/pace.py: when a record of a replay is due, and which one is next."""

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


def test_records_come_as_far_apart_as_they_once_did() -> None:
    pace = TimePace(10, 3600)
    assert pace.wait_s(50_000, 100.0) == 0
    assert pace.wait_s(51_000, 100.0) == pytest.approx(0.1)
    assert pace.wait_s(51_000, 100.5) == 0
    assert pace.wait_s(49_000, 100.5) == 0
    assert pace.wait_s(60_000, 100.5) == pytest.approx(0.5)


def test_a_pause_is_cut_and_the_rest_follows_from_there() -> None:
    pace = TimePace(1, 5)
    pace.wait_s(0, 0.0)
    assert pace.wait_s(1_000_000, 0.0) == 5
    assert pace.wait_s(1_001_000, 5.0) == pytest.approx(1)


def test_the_earliest_comes_first_and_a_partitions_order_stays() -> None:
    order = TimeOrder([0, 1])
    for partition, timestamp in [(0, 5), (0, 2), (0, 9), (1, 1), (1, 7)]:
        order.add(_record(partition, timestamp))
    order.finish(0)
    order.finish(1)
    assert list(_popped(order)) == [1, 5, 2, 7, 9]


def test_nothing_comes_while_an_earlier_one_may_come() -> None:
    order = TimeOrder([0, 1])
    order.add(_record(0, 5))
    assert order.pop() is None
    order.add(_record(1, 6))
    assert list(_popped(order)) == [5]
    assert order.held(1) == 1
    order.finish(0)
    assert list(_popped(order)) == [6]
    assert order.pop() is None


@pytest.mark.parametrize("text", ["fast", "0x", "x", "-1x", "10", "1x/s", ""])
def test_what_is_no_speed_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="not a speed"):
        speed(text)
