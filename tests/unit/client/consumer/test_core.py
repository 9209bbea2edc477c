"""ConsumerCore against a complete broker, in virtual time."""

from __future__ import annotations

import pytest

from plog.client.errors import CorruptRecords, IllegalState, NoOffsetForPartition
from plog.client.values import OffsetAndMetadata, OffsetAndTimestamp
from plog.errors import OffsetOutOfRange, RequestTimedOut, UnknownTopicOrPartition
from plog.records.batch import Compression
from plog.types import TopicPartition
from plog.wire.messages.fetch import FetchRequest
from plog.wire.messages.list_offsets import ListOffsetsRequest
from tests.helpers.client.consumer_site import ConsumerSite
from tests.helpers.sim.sim_time import START_MS


def fetches(site: ConsumerSite) -> list[FetchRequest]:
    return [x for x in site.sim.requests if isinstance(x, FetchRequest)]


def test_records_of_each_partition_are_in_order() -> None:
    site = ConsumerSite()
    partitions = site.create("t", 3)
    for number in range(3):
        for first in range(0, 20, 5):
            values = [b"%d-%d" % (number, x) for x in range(first, first + 5)]
            site.produce("t", *values, partition=number)
    site.core.assign(partitions)
    records = site.take(60)
    for number in range(3):
        found = [x for x in records if x.partition == number]
        assert [x.offset for x in found] == list(range(20))
        assert [x.value for x in found] == [b"%d-%d" % (number, x) for x in range(20)]
    site.close()


@pytest.mark.parametrize("compression", Compression)
def test_every_codec_can_be_read(compression: Compression) -> None:
    site = ConsumerSite()
    site.core.assign(site.create("t"))
    site.produce("t", b"a", b"b" * 1000, compression=compression)
    assert site.values(2) == [b"a", b"b" * 1000]


def test_consumer_waits_for_records_without_busy_looping() -> None:
    site = ConsumerSite()
    site.core.assign(site.create("t"))
    site.nothing_for(10_000)
    asked = len(fetches(site))
    assert 19 <= asked <= 22
    news = site.news
    site.produce("t", b"a")
    assert site.values(1) == [b"a"]
    assert site.news == news + 1
    assert len(fetches(site)) - asked <= 2


def test_nothing_is_fetched_when_nothing_is_assigned_or_all_is_paused() -> None:
    site = ConsumerSite()
    partitions = site.create("t", 2)
    site.nothing_for(10_000)
    assert site.sim.requests == []
    site.core.assign(partitions)
    site.nothing_for(1_000)
    site.core.pause(partitions)
    site.nothing_for(1_000)
    asked = len(fetches(site))
    site.nothing_for(60_000)
    assert len(fetches(site)) == asked
    assert site.core.paused == set(partitions)


def test_latest_starts_after_existing_records() -> None:
    site = ConsumerSite(auto_offset_reset="latest")
    site.create("t")
    site.produce("t", b"old")
    site.core.assign([TopicPartition("t", 0)])
    assert site.sim.run(site.core.position(TopicPartition("t", 0))) == 1
    site.produce("t", b"new")
    assert site.values(1) == [b"new"]


def test_by_duration_starts_with_records_of_that_age() -> None:
    site = ConsumerSite(auto_offset_reset="by_duration:PT1H")
    site.create("t", 2)
    for partition in (0, 1):
        site.produce("t", b"old", partition=partition, now_ms=START_MS - 7_200_000)
    site.produce("t", b"new", now_ms=START_MS - 1_800_000)
    site.core.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
    assert site.values(1) == [b"new"]
    # The other partition has no record of that age, so it is read from its end.
    assert site.sim.run(site.core.position(TopicPartition("t", 1))) == 1


def test_reset_none_raises_until_an_offset_is_set() -> None:
    site = ConsumerSite(auto_offset_reset="none")
    partitions = site.create("t", 2)
    site.produce("t", b"a", b"b")
    site.core.assign(partitions)
    error = site.error()
    assert isinstance(error, NoOffsetForPartition)
    assert error.partitions == set(partitions)
    assert isinstance(site.error(), NoOffsetForPartition)
    for partition in partitions:
        site.core.seek(partition, 1 - partition.partition)
    assert site.values(1) == [b"b"]
    site.nothing_for(10_000)


def test_seek_sets_position() -> None:
    site = ConsumerSite()
    [partition] = site.create("t")
    for second in range(10):
        site.produce("t", b"%d" % second, now_ms=START_MS - 10_000 + 1000 * second)
    site.core.assign([partition])
    assert site.values(3) == [b"0", b"1", b"2"]
    site.core.seek(partition, 7)
    assert site.values(1) == [b"7"]
    site.core.seek_to_beginning()
    assert site.values(1) == [b"0"]
    site.core.seek_to_time(START_MS - 10_000 + 4_500)
    assert site.values(1) == [b"5"]
    site.core.seek_to_end([partition])
    assert site.sim.run(site.core.position(partition)) == 10
    site.core.seek_to_time(START_MS + 1)
    assert site.sim.run(site.core.position(partition)) == 10
    site.core.seek(partition, OffsetAndMetadata(8, leader_epoch=0))
    assert site.values(2) == [b"8", b"9"]
    with pytest.raises(ValueError):
        site.core.seek_to_time(-1)
    with pytest.raises(IllegalState):
        site.core.seek(TopicPartition("t", 5), 0)


def test_position_follows_taken_records_not_fetched_ones() -> None:
    site = ConsumerSite()
    [partition] = site.create("t")
    site.produce("t", *(b"%d" % x for x in range(10)))
    site.core.assign([partition])
    site.take(4)
    assert site.core.positions.position(partition) == 4
    assert site.core.positions.consumed()[partition].offset == 4
    assert site.core.lag(partition) == 6
    site.take(6)
    assert site.core.lag(partition) == 0


def test_pause_keeps_buffered_records_and_does_not_affect_others() -> None:
    site = ConsumerSite()
    partitions = site.create("t", 2)
    for number in (0, 1):
        site.produce("t", *(b"%d-%d" % (number, x) for x in range(10)), partition=number)
    site.core.assign(partitions)
    first = site.take(1)[0].partition
    paused = partitions[first]
    site.core.pause([paused])
    rest = site.take(10)
    assert {x.partition for x in rest} == {1 - first}
    site.nothing_for(5_000)
    asked, news = len(fetches(site)), site.news
    site.core.resume([paused])
    assert site.news == news + 1
    assert [x.offset for x in site.core.take(100)] == list(range(1, 10))
    assert len(fetches(site)) <= asked + 1


def test_unassigned_partition_returns_no_records() -> None:
    site = ConsumerSite()
    partitions = site.create("t", 2)
    for number in (0, 1):
        site.produce("t", *(b"%d-%d" % (number, x) for x in range(10)), partition=number)
    site.core.assign(partitions)
    assert site.take(1)[0].partition == 0
    site.core.assign([partitions[1]])
    assert {x.partition for x in site.take(10)} == {1}
    site.nothing_for(3_000)
    assert site.core.assignment == {partitions[1]}


def test_offset_removed_by_retention_is_reset() -> None:
    site = ConsumerSite()
    [partition] = site.create("t")
    site.core.assign([partition])
    site.produce("t", b"a")
    site.core.seek(partition, 40)
    assert site.values(1) == [b"a"]


def test_out_of_range_offset_raises_when_reset_is_none() -> None:
    site = ConsumerSite(auto_offset_reset="none")
    partitions = site.create("t", 2)
    site.produce("t", b"a", partition=1)
    site.core.assign(partitions)
    site.core.seek(partitions[0], 40)
    site.core.seek(partitions[1], 0)
    found = [type(site.error()) for _ in range(1)]
    assert found == [OffsetOutOfRange]
    assert site.values(1) == [b"a"]
    assert site.core.positions.position(partitions[0]) == 40
    assert isinstance(site.error(), OffsetOutOfRange)
    site.core.seek(partitions[0], 0)
    site.nothing_for(5_000)


def test_batch_larger_than_all_limits_is_returned() -> None:
    site = ConsumerSite(max_partition_fetch_bytes=1000, fetch_max_bytes=1000)
    partitions = site.create("t", 2)
    large = bytes(100_000)
    for _ in range(3):
        for number in (0, 1):
            site.produce("t", large, partition=number)
    site.core.assign(partitions)
    assert site.values(6) == [large] * 6


def test_fetch_ahead_is_limited() -> None:
    site = ConsumerSite(max_partition_fetch_bytes=20_000, fetch_max_bytes=60_000)
    partitions = site.create("t", 4)
    for number in range(4):
        for _ in range(50):
            site.produce("t", bytes(5_000), partition=number)
    site.core.assign(partitions)
    site.sim.advance(10_000)
    states = site.core.positions.states.values()
    assert 0 < sum(x.buffered_bytes for x in states) <= 60_000
    assert all(x.buffered_bytes <= 40_000 for x in states)
    asked = len(fetches(site))
    site.sim.advance(60_000)
    assert len(fetches(site)) == asked
    taken = site.take(200, at_most=7)
    for number in range(4):
        assert [x.offset for x in taken if x.partition == number] == list(range(50))


def test_next_fetch_is_in_flight_while_records_are_taken() -> None:
    site = ConsumerSite(max_partition_fetch_bytes=20_000)
    site.core.assign(site.create("t"))
    for _ in range(20):
        site.produce("t", bytes(5_000))
    site.take(1)
    site.sim.advance(1_000)
    state = site.core.positions.states[TopicPartition("t", 0)]
    assert state.position == 1
    assert state.fetch_offset >= 6


def test_missing_topic_is_reported_and_read_once_it_exists() -> None:
    site = ConsumerSite(default_api_timeout_ms=20_000)
    site.create("t", 1)
    site.core.assign([TopicPartition("u", 0), TopicPartition("t", 1)])
    errors = [site.error() for _ in range(3)]
    assert all(isinstance(x, UnknownTopicOrPartition) for x in errors)
    assert "partition t-1 does not exist because topic t has 1 partition" in str(errors[0])
    assert {str(x).split(":")[0] for x in errors[1:]} == {"cannot read u-0", "cannot read t-1"}
    assert site.sim.now_s() < 25
    site.create("u")
    site.produce("u", b"a")
    assert site.values(1) == [b"a"]


def test_deleted_topic_does_not_delay_others() -> None:
    site = ConsumerSite(metadata_max_age_ms=5_000)
    [gone] = site.create("gone")
    [stays] = site.create("stays")
    site.produce("gone", b"1")
    site.core.assign([gone, stays])
    assert site.values(1) == [b"1"]
    site.delete("gone")
    site.produce("stays", b"2")
    assert site.values(1) == [b"2"]
    site.create("gone")
    site.produce("gone", b"3")
    assert site.values(1) == [b"3"]


def test_corrupt_batch_raises_and_stops_only_its_partition() -> None:
    site = ConsumerSite()
    partitions = site.create("t", 2)
    site.produce("t", b"a")
    site.produce("t", b"x", b"y")
    site.produce("t", b"b")
    site.core.assign(partitions)
    site.damage("t", 1)
    assert site.values(1) == [b"a"]
    error = site.error()
    assert isinstance(error, CorruptRecords)
    assert (error.partition, error.offset) == (partitions[0], 2)
    assert site.core.positions.position(partitions[0]) == 1
    site.produce("t", b"other", partition=1)
    assert site.values(1) == [b"other"]
    assert isinstance(site.error(), CorruptRecords)
    site.core.seek(partitions[0], error.offset + 1)
    assert site.values(1) == [b"b"]


def test_offset_queries_return_offsets() -> None:
    site = ConsumerSite()
    partitions = site.create("t", 2)
    site.produce("t", b"a", now_ms=START_MS - 5000)
    site.produce("t", b"b", now_ms=START_MS - 3000)
    run, core = site.sim.run, site.core
    assert run(core.beginning_offsets(partitions)) == dict.fromkeys(partitions, 0)
    assert run(core.end_offsets(partitions)) == {partitions[0]: 2, partitions[1]: 0}
    found = run(core.offsets_for_times(dict.fromkeys(partitions, START_MS - 4000)))
    assert found == {
        partitions[0]: OffsetAndTimestamp(1, START_MS - 3000, 0),
        partitions[1]: None,
    }
    with pytest.raises(ValueError):
        run(core.offsets_for_times({partitions[0]: -1}))
    asked = [x for x in site.sim.requests if isinstance(x, ListOffsetsRequest)]
    assert len(asked) == 3


def test_timed_out_query_raises_its_cause() -> None:
    site = ConsumerSite()
    run, core = site.sim.run, site.core
    with pytest.raises(UnknownTopicOrPartition, match="u"):
        run(core.end_offsets([TopicPartition("u", 0)], timeout_s=3.0))
    site.create("t")
    core.assign([TopicPartition("t", 0)])
    site.sim.deaf = True
    with pytest.raises(RequestTimedOut, match="position in t-0: timed out after 3 s"):
        run(core.position(TopicPartition("t", 0), timeout_s=3.0))
    with pytest.raises(IllegalState):
        run(core.position(TopicPartition("t", 1)))


def test_topic_queries_return_topics_and_partitions() -> None:
    site = ConsumerSite()
    site.create("t", 3)
    assert [x.index for x in site.sim.run(site.core.partitions_for("t"))] == [0, 1, 2]
    assert "t" in site.sim.run(site.core.topics())


def test_consumer_reconnects_to_unreachable_broker() -> None:
    site = ConsumerSite()
    site.core.assign(site.create("t"))
    site.produce("t", b"a")
    assert site.values(1) == [b"a"]
    site.sim.refuses = True
    site.sim.drop_all()
    site.nothing_for(20_000)
    site.produce("t", b"b")
    site.sim.refuses = False
    assert site.values(1) == [b"b"]


def test_reading_continues_after_broker_restart() -> None:
    site = ConsumerSite()
    site.core.assign(site.create("t"))
    for number in range(5):
        site.produce("t", b"%d" % number)
        assert site.values(1) == [b"%d" % number]
        site.sim.restart()


def test_metrics_have_kafka_names() -> None:
    site = ConsumerSite()
    site.core.assign(site.create("t"))
    site.produce("t", b"a", b"b", b"c")
    site.take(2)
    metrics = site.core.metrics()
    assert metrics["records-consumed-total"] == 2
    assert metrics["records-lag-max"] == 1
    assert metrics["records-lead-min"] == 2
    assert metrics["records-lag{topic=t,partition=0}"] == 1
    site.take(1)
    site.nothing_for(1_000)
    metrics = site.core.metrics()
    assert metrics["records-per-request-avg"] == 3
    assert metrics["bytes-consumed-total"] > 61
    assert metrics["fetch-total"] >= 2
    assert metrics["fetch-latency-max"] >= metrics["fetch-latency-avg"] > 0


def test_close_ends_all_work() -> None:
    site = ConsumerSite()
    site.core.assign(site.create("t"))
    site.produce("t", b"a")
    site.take(1)
    site.close()
    asked = len(site.sim.requests)
    site.sim.advance(60_000)
    assert len(site.sim.requests) == asked
    assert site.core.take(1) == []
