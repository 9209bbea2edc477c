"""The recent batches of a segment: known offsets are right, others are not found."""

from __future__ import annotations

import sys

from plogd.log.segment.file_records import BatchPlace
from plogd.log.segment.recent_batches import RecentBatches


def test_recent_batch_is_found_with_its_size() -> None:
    recent = RecentBatches()
    for number in range(10):
        recent.add(number * 100, number * 5 + 4)
    assert recent.find(12, 1000) == BatchPlace(200, 100, 10, 14)
    assert recent.find(49, 1000) == BatchPlace(900, 100, 45, 49)


def test_offset_outside_the_recent_batches_is_not_found() -> None:
    recent = RecentBatches()
    assert recent.find(0, 0) is None
    recent.add(500, 24)
    recent.add(600, 29)
    assert recent.find(3, 700) is None
    assert recent.find(24, 700) is None
    assert recent.find(25, 700) == BatchPlace(600, 100, 25, 29)
    assert recent.find(30, 700) is None


def test_number_of_recent_batches_is_bounded() -> None:
    recent = RecentBatches()
    for number in range(10_000):
        recent.add(number * 100, number)
    assert sum(map(sys.getsizeof, recent._lists)) < 20_000
    assert recent.find(1, 1_000_000) is None
    assert recent.find(9_600, 1_000_000) == BatchPlace(960_000, 100, 9_600, 9_600)
    recent.clear()
    assert recent.find(9_600, 1_000_000) is None
