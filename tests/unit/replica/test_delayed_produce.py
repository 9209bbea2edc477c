"""Delayed produces: the cost of checks, and expiration."""

from __future__ import annotations

import pytest

from plog.errors import ErrorCode
from plog.types import TopicPartition
from plogd.replica.delayed_produce import DelayedProduce, PartitionAppend
from tests.helpers.sim.sim_ports import outcome


class _Site:
    """A request for `count` partitions; those in `unsafe` are not durable yet."""

    def __init__(self, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.unsafe = set(range(count))
        self.looks = 0
        monkeypatch.setattr(
            PartitionAppend, "is_waiting", lambda append, acks: self._is_waiting(append)
        )
        appends = [PartitionAppend(TopicPartition("t", number)) for number in range(count)]
        self.delayed = DelayedProduce(appends, list(appends), -1, lambda _: None)

    def _is_waiting(self, append: PartitionAppend) -> bool:
        self.looks += 1
        return append.topic_partition.partition in self.unsafe

    def errors(self) -> list[int]:
        appends = outcome(self.delayed.later)
        return [0 if one.error is None else one.error.code for one in appends]


def test_delayed_produce_checks_each_partition_about_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each partition causes a check: 10,000 partitions would cause 100,000,000 comparisons."""
    site = _Site(1000, monkeypatch)
    for number in range(1000):
        site.unsafe.remove(number)
        assert site.delayed.try_complete(("t", number)) is (number == 999)
    assert site.errors() == [0] * 1000
    assert site.looks < 2100


def test_expired_delayed_produce_fails_only_unacknowledged_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = _Site(3, monkeypatch)
    site.unsafe = {1}
    site.delayed.expire()
    assert site.errors() == [0, ErrorCode.REQUEST_TIMED_OUT, 0]
