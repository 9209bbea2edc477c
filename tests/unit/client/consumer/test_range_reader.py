"""RangeReader fetches a range from a broker that does not always respond."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from plog.client.consumer.range_reader import RangeReader
from plog.errors import OffsetOutOfRange, RequestTimedOut, UnknownTopicOrPartition
from plog.types import TopicPartition
from plog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from plog.wire.messages.fetch import FetchRequest
from tests.helpers.client.consumer_site import ConsumerSite
from tests.helpers.sim.sim_broker import produce_request


class Site(ConsumerSite):
    """A reader, with a consumer that is not used."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.reader = RangeReader(self.cluster, self.settings)

    def fetched(self, partition: TopicPartition, position: int, stop: int) -> list[int]:
        """Return the offsets that one fetch returns."""
        one = self.sim.run(self.reader.fetch(partition, position, stop))
        return [record.offset for record in one.take(1_000_000)]


def test_fetch_returns_records_from_offset() -> None:
    site = Site()
    [partition] = site.create("t")
    site.produce("t", b"a", b"b", b"c")
    assert site.fetched(partition, 1, 3) == [1, 2]


@pytest.mark.parametrize("fault", ["drop", "lose"])
def test_failed_fetch_is_retried(fault: str) -> None:
    site = Site()
    [partition] = site.create("t")
    site.produce("t", b"a")
    faults = iter([fault, fault])
    site.sim.on_request = lambda request: (
        next(faults, None) if isinstance(request, FetchRequest) else None
    )
    assert site.fetched(partition, 0, 1) == [0]


def test_fetch_waits_for_restarting_broker() -> None:
    site = Site()
    [partition] = site.create("t")
    site.produce("t", b"a")
    assert site.fetched(partition, 0, 1) == [0]
    site.sim.refuses = True
    site.sim.restart()
    site.sim.drop_all()
    site.sim.call_later(5, lambda: setattr(site.sim, "refuses", False))
    assert site.fetched(partition, 0, 1) == [0]


def test_fetch_waits_for_records() -> None:
    site = Site()
    [partition] = site.create("t")
    site.sim.call_later(10, lambda: site.sim.broker.begin(produce_request("t", b"a"), 9))
    assert site.fetched(partition, 0, 1) == [0]


def test_fetch_times_out_without_records() -> None:
    site = Site(default_api_timeout_ms=40_000)
    [partition] = site.create("t")
    site.produce("t", b"a")
    with pytest.raises(
        RequestTimedOut, match=r"up to offset 9: .* after 1, and the log ends at 1;.*40 s"
    ):
        site.fetched(partition, 1, 9)


def test_deleted_offset_fails_immediately() -> None:
    site = Site()
    [partition] = site.create("t")
    site.produce("t", b"a", b"b")
    gone = DeleteRecordsPartition(partition_index=0, offset=1)
    topic = DeleteRecordsTopic(name="t", partitions=[gone])
    site.sim.broker.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1000), 2)
    with pytest.raises(OffsetOutOfRange, match="offset 0 of t-0 is out of range"):
        site.fetched(partition, 0, 2)
    assert site.fetched(partition, 1, 2) == [1]


def test_missing_topic_fails_at_timeout() -> None:
    site = Site(default_api_timeout_ms=40_000)
    with pytest.raises(UnknownTopicOrPartition, match=r"nothing.*40 s"):
        site.fetched(TopicPartition("nothing", 0), 0, 1)


def test_missing_partition_fails_at_timeout() -> None:
    site = Site(default_api_timeout_ms=40_000)
    site.create("t")
    with pytest.raises(UnknownTopicOrPartition, match="t-7 does not exist"):
        site.fetched(TopicPartition("t", 7), 0, 1)


# -- the fetch that is sent before its records are needed ------------------------------------------


def with_batches(count: int, **options: Any) -> tuple[Site, TopicPartition, list[int]]:
    """Return a site with single-record batches, each in a fetch of its own, and a list.

    The list receives the offset of each fetch that is sent.
    """
    site = Site(max_partition_fetch_bytes=1, **options)
    [partition] = site.create("t")
    for _ in range(count):
        site.produce("t", b"a")
    asked: list[int] = []

    def note(request: object) -> None:
        if isinstance(request, FetchRequest):
            asked.append(request.topics[0].partitions[0].fetch_offset)

    site.sim.on_request = note
    return site, partition, asked


def test_next_fetch_is_sent_before_it_is_needed() -> None:
    site, partition, asked = with_batches(3)
    assert site.fetched(partition, 0, 3) == [0]
    assert asked == [0, 1]
    assert site.fetched(partition, 1, 3) == [1]
    assert site.fetched(partition, 2, 3) == [2]
    assert asked == [0, 1, 2]


def test_nothing_is_fetched_past_the_end_of_the_range() -> None:
    site, partition, asked = with_batches(3)
    assert site.fetched(partition, 0, 1) == [0]
    assert asked == [0]


def test_other_position_needs_another_fetch() -> None:
    site, partition, asked = with_batches(5)
    assert site.fetched(partition, 0, 5) == [0]
    assert site.fetched(partition, 3, 4) == [3]
    assert asked == [0, 1, 3]


def test_next_fetch_is_retried_when_its_connection_breaks() -> None:
    site, partition, asked = with_batches(2)
    assert site.fetched(partition, 0, 2) == [0]
    site.sim.drop_all()
    assert site.fetched(partition, 1, 2) == [1]
    assert asked == [0, 1, 1]


def test_records_deleted_before_the_next_fetch_are_an_error() -> None:
    site, partition, _ = with_batches(3)
    deleted = DeleteRecordsPartition(partition_index=0, offset=2)
    topic = DeleteRecordsTopic(name="t", partitions=[deleted])
    request = DeleteRecordsRequest(topics=[topic], timeout_ms=1000)
    site.sim.broker.ask(request, 2)
    with pytest.raises(OffsetOutOfRange, match="offset 1 of t-0 is out of range"):
        site.fetched(partition, 1, 3)
    assert site.fetched(partition, 2, 3) == [2]


def test_next_fetch_without_response_ends_at_the_time_limit() -> None:
    site, partition, _ = with_batches(2, default_api_timeout_ms=5_000)
    # The first fetch is answered, and the next one is lost in transit.
    fetches = itertools.count()

    def lose_later_ones(request: object) -> None:
        site.sim.deaf = isinstance(request, FetchRequest) and next(fetches) == 0

    site.sim.on_request = lose_later_ones
    assert site.fetched(partition, 0, 2) == [0]
    began_s = site.cluster.network.now_s()
    with pytest.raises(RequestTimedOut):
        site.fetched(partition, 1, 2)
    assert site.cluster.network.now_s() - began_s == pytest.approx(5, abs=0.1)
