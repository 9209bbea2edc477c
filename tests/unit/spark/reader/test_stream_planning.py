"""StreamPlanner plans batches that lose no record, also across restarts of the query."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import pytest

from plog.errors import UnknownTopicOrPartition
from plog.spark.options.source_options import read_source_options
from plog.spark.reader.data_loss import DataLossError, LogBounds
from plog.spark.reader.log_lookup import NoOffsetForTime
from plog.spark.reader.stream_planning import StreamPlanner
from plog.types import TopicPartition
from tests.unit.spark.scripted_lookup import A, B, ScriptedLookup

C = TopicPartition("t", 2)


@dataclass
class VirtualClock:
    time_ms: int = 0
    sleeps: list[float] = field(default_factory=list)
    during_sleep: object = None

    def now_ms(self) -> int:
        return self.time_ms

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.time_ms += int(seconds * 1000)
        if callable(self.during_sleep):
            self.during_sleep()


@pytest.fixture
def lookup() -> ScriptedLookup:
    return ScriptedLookup()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def planner(
    lookup: ScriptedLookup, clock: VirtualClock | None = None, **options: str
) -> StreamPlanner:
    base = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "startingoffsets": "earliest"}
    made = read_source_options(base | options, is_stream=True)
    return StreamPlanner(lookup, made, clock or VirtualClock())


# -- the start ------------------------------------------------------------------------------------


def test_stream_starts_at_the_end_by_default(lookup: ScriptedLookup) -> None:
    made = read_source_options({"kafka.bootstrap.servers": "b:1", "subscribe": "t"}, is_stream=True)
    assert StreamPlanner(lookup, made, VirtualClock()).initial() == {A: 20, B: 5}


def test_initial_offsets_stay_the_same(lookup: ScriptedLookup) -> None:
    stream = planner(lookup, startingoffsets="latest")
    assert stream.initial() == {A: 20, B: 5}
    lookup.logs[A] = LogBounds(10, 99)
    assert stream.initial() == {A: 20, B: 5}


def test_stream_starts_at_offsets_and_times(lookup: ScriptedLookup) -> None:
    assert planner(lookup).initial() == {A: 10, B: 0}
    offsets = '{"t":{"0":12,"1":-1}}'
    assert planner(lookup, startingoffsets=offsets).initial() == {A: 12, B: 5}
    assert planner(lookup, startingtimestamp="3000").initial() == {A: 10, B: 3}
    with pytest.raises(NoOffsetForTime, match="t-1 has no record"):
        planner(lookup, startingtimestamp="9000").initial()
    late = planner(lookup, startingtimestamp="9000", startingoffsetsbytimestampstrategy="latest")
    assert late.initial() == {A: 10, B: 5}


def test_missing_topic_is_an_error(lookup: ScriptedLookup) -> None:
    lookup.topic_exists = False
    with pytest.raises(UnknownTopicOrPartition):
        planner(lookup).initial()


@pytest.mark.parametrize(
    "start",
    [
        {},
        {"startingoffsets": "latest"},
        {"startingoffsets": '{"t":{"0":-1,"1":0}}'},
        {"startingtimestamp": "9000", "startingoffsetsbytimestampstrategy": "latest"},
    ],
)
def test_first_batch_is_empty(lookup: ScriptedLookup, start: dict[str, str]) -> None:
    """Its end is the start of the second batch, and saved before that batch runs."""
    stream = planner(lookup, **start)
    first = stream.initial()
    lookup.logs[A] = LogBounds(10, 30)
    assert stream.latest(first) == first
    assert stream.latest(first) == {A: 30, B: 5}


def test_restart_during_the_empty_first_batch_loses_nothing(lookup: ScriptedLookup) -> None:
    saved = planner(lookup, startingoffsets="latest").initial()
    lookup.logs[A] = LogBounds(10, 30)
    restarted = planner(lookup, startingoffsets="latest")
    # Spark repeats the batch with the saved end and a new start, which is later.
    assert restarted.tasks(restarted.initial(), saved) == []
    assert restarted.latest(saved) == {A: 30, B: 5}


def test_restart_in_the_first_batch_ignores_partitions_that_are_new(lookup: ScriptedLookup) -> None:
    saved = planner(lookup).initial()
    lookup.logs[C] = LogBounds(0, 3)
    restarted = planner(lookup)
    assert restarted.tasks(restarted.initial(), saved) == []
    assert restarted.latest(saved) == {A: 20, B: 5, C: 3}


def test_trigger_that_overrides_the_limits_reads_records_in_the_first_batch(
    lookup: ScriptedLookup,
) -> None:
    stream = planner(lookup)
    assert stream.latest(stream.initial(), all_available=True) == {A: 20, B: 5}


# -- the end of a batch ---------------------------------------------------------------------------


def test_batch_ends_at_the_end_of_the_logs(lookup: ScriptedLookup) -> None:
    stream = planner(lookup)
    assert stream.newest() is None
    assert stream.latest({A: 12, B: 5}) == {A: 20, B: 5}
    assert stream.newest() == {A: 20, B: 5}


def test_new_partition_is_read_from_its_first_record(lookup: ScriptedLookup) -> None:
    stream = planner(lookup)
    lookup.logs[C] = LogBounds(0, 3)
    end = stream.latest({A: 20, B: 5})
    assert end == {A: 20, B: 5, C: 3}
    assert ranges(stream, {A: 20, B: 5}, end) == [(2, 0, 3)]


def test_limit_is_shared_in_proportion_to_the_backlog(lookup: ScriptedLookup) -> None:
    stream = planner(lookup, maxoffsetspertrigger="6")
    assert stream.latest({A: 10, B: 0}) == {A: 14, B: 2}
    assert stream.newest() == {A: 20, B: 5}
    assert stream.latest({A: 10, B: 0}, all_available=True) == {A: 20, B: 5}


def test_backlog_of_a_new_partition_starts_at_its_first_record(lookup: ScriptedLookup) -> None:
    lookup.logs = {A: LogBounds(0, 10), B: LogBounds(1000, 1010)}
    assert planner(lookup, maxoffsetspertrigger="10").latest({A: 0}) == {A: 5, B: 1005}


def test_byte_limit_uses_the_sizes_of_the_logs(lookup: ScriptedLookup, clock: VirtualClock) -> None:
    lookup.sizes = {A: 10_000, B: 500}
    stream = planner(lookup, clock, maxbytespertrigger="5250")
    assert stream.latest({A: 10, B: 0}) == {A: 15, B: 2}
    stream.latest({A: 15, B: 2})
    assert lookup.size_lookups == 1
    clock.time_ms += 60_000
    stream.latest({A: 15, B: 2})
    assert lookup.size_lookups == 2


def test_batch_waits_for_the_least_number_of_offsets(
    lookup: ScriptedLookup, clock: VirtualClock
) -> None:
    stream = planner(lookup, clock, minoffsetspertrigger="8", maxtriggerdelay="30s")
    first = stream.latest({A: 10, B: 0})
    assert first == {A: 20, B: 5}
    lookup.logs[A] = LogBounds(10, 27)
    assert stream.latest(first) == first
    lookup.logs[A] = LogBounds(10, 28)
    second = stream.latest(first)
    assert second == {A: 28, B: 5}
    lookup.logs[A] = LogBounds(10, 29)
    assert stream.latest(second) == second
    clock.time_ms += 30_000
    assert stream.latest(second) == {A: 29, B: 5}


def test_available_now_ends_at_what_it_found(lookup: ScriptedLookup) -> None:
    stream = planner(lookup, maxoffsetspertrigger="6", minoffsetspertrigger="6")
    stream.stop_at_latest()
    lookup.logs = {A: LogBounds(10, 1000), B: LogBounds(0, 1000), C: LogBounds(0, 1000)}
    position, batches = stream.initial(), 0
    assert stream.latest(position) == position
    while (end := stream.latest(position)) != position:
        position, batches = end, batches + 1
    assert position == {A: 20, B: 5, C: 0}
    assert batches == 3


def test_available_now_at_the_latest_offset_reads_nothing(lookup: ScriptedLookup) -> None:
    stream = planner(lookup, startingoffsets="latest")
    stream.stop_at_latest()
    lookup.logs[A] = LogBounds(10, 30)
    start = stream.initial()
    assert start == {A: 30, B: 5}
    assert stream.latest(start) == start
    assert stream.latest(start) == start


def test_available_now_keeps_the_position_in_partitions_that_it_did_not_find(
    lookup: ScriptedLookup,
) -> None:
    """A broker that has just started may not know all topics yet."""
    stream = planner(lookup)
    logs = dict(lookup.logs)
    del lookup.logs[B]
    stream.stop_at_latest()
    lookup.logs = logs
    assert stream.latest({A: 12, B: 3}) == {A: 20, B: 3}


def test_available_now_continues_in_a_log_that_ends_before_its_position(
    lookup: ScriptedLookup,
) -> None:
    stream = planner(lookup, failondataloss="false")
    stream.stop_at_latest()
    assert stream.latest({A: 100, B: 5}) == {A: 20, B: 5}


def test_available_now_reports_a_deleted_topic(lookup: ScriptedLookup) -> None:
    lookup.logs.clear()
    lookup.topic_exists = False
    stream = planner(lookup)
    stream.stop_at_latest()
    with pytest.raises(DataLossError, match="its topic was deleted"):
        stream.latest({A: 20, B: 5})


def test_deleted_records_do_not_count_against_the_limit(lookup: ScriptedLookup) -> None:
    lookup.logs = {A: LogBounds(1_000_000, 1_000_100), B: LogBounds(0, 5)}
    stream = planner(lookup, failondataloss="false", maxoffsetspertrigger="50")
    end = stream.latest({A: 0, B: 5})
    assert end == {A: 1_000_050, B: 5}
    assert ranges(stream, {A: 0, B: 5}, end) == [(0, 1_000_000, 1_000_050)]


def test_byte_limit_applies_to_a_partition_that_was_empty(lookup: ScriptedLookup) -> None:
    lookup.sizes = {A: 1000, B: 0}
    lookup.logs = {A: LogBounds(10, 20), B: LogBounds(0, 0)}
    stream = planner(lookup, maxbytespertrigger="1000")
    assert stream.latest({A: 10, B: 0}) == {A: 20, B: 0}
    lookup.sizes[B] = 1_000_000
    lookup.logs[B] = LogBounds(0, 10_000)
    assert stream.latest({A: 20, B: 0}) == {A: 20, B: 10}


def test_unknown_sizes_are_reported_once(
    lookup: ScriptedLookup, caplog: pytest.LogCaptureFixture
) -> None:
    lookup.sizes = {A: 1000, B: 0}
    stream = planner(lookup, maxbytespertrigger="100")
    with caplog.at_level(logging.WARNING):
        stream.latest({A: 10, B: 0})
        stream.latest({A: 11, B: 0})
    assert caplog.text.count("maxBytesPerTrigger does not limit t-1") == 1


# -- tasks ----------------------------------------------------------------------------------------


def ranges(
    stream: StreamPlanner, start: dict[TopicPartition, int], end: dict[TopicPartition, int]
) -> list[tuple[int, int, int]]:
    return [
        (task.partition.partition, task.start_offset, task.end_offset)
        for task in stream.tasks(start, end)
    ]


def test_each_partition_is_a_task(lookup: ScriptedLookup) -> None:
    assert ranges(planner(lookup), {A: 10, B: 0}, {A: 20, B: 5}) == [(0, 10, 20), (1, 0, 5)]
    assert ranges(planner(lookup), {A: 10, B: 5}, {A: 20, B: 5}) == [(0, 10, 20)]


def test_batch_without_records_needs_no_lookup(lookup: ScriptedLookup) -> None:
    assert ranges(planner(lookup), {A: 20, B: 5}, {A: 20, B: 5}) == []
    assert lookup.lookups == 0


def test_planned_batch_needs_no_second_lookup(lookup: ScriptedLookup) -> None:
    stream = planner(lookup)
    end = stream.latest({A: 10, B: 0})
    assert ranges(stream, {A: 10, B: 0}, end) == [(0, 10, 20), (1, 0, 5)]
    assert lookup.lookups == 1


def test_repeated_batch_has_the_same_tasks(lookup: ScriptedLookup) -> None:
    options = {"minpartitions": "5", "maxrecordsperpartition": "4"}
    start, end = {A: 10, B: 0}, {A: 20, B: 5}
    first = ranges(planner(lookup, **options), start, end)
    lookup.logs = {A: LogBounds(10, 1000), B: LogBounds(0, 1000), C: LogBounds(0, 1000)}
    assert len(first) == 5
    assert ranges(planner(lookup, **options), start, end) == first


# -- lost data ------------------------------------------------------------------------------------


def test_deleted_records_fail_the_query_before_the_read(lookup: ScriptedLookup) -> None:
    with pytest.raises(DataLossError, match="offsets 4 to 9 of t-0 are missing: its log"):
        planner(lookup).tasks({A: 4, B: 0}, {A: 20, B: 5})


def test_deleted_records_are_skipped_if_that_is_permitted(
    lookup: ScriptedLookup, caplog: pytest.LogCaptureFixture
) -> None:
    stream = planner(lookup, failondataloss="false")
    with caplog.at_level(logging.WARNING):
        assert ranges(stream, {A: 4, B: 0}, {A: 20, B: 5}) == [(0, 10, 20), (1, 0, 5)]
    assert "offsets 4 to 9 of t-0 are missing" in caplog.text


def test_log_that_ends_below_the_checkpoint_is_reported(lookup: ScriptedLookup) -> None:
    with pytest.raises(DataLossError, match="offsets 5 to 99 of t-1 are missing: its log"):
        planner(lookup).latest({A: 20, B: 100})
    continuing = planner(lookup, failondataloss="false")
    assert continuing.latest({A: 20, B: 100}) == {A: 20, B: 5}
    assert ranges(continuing, {A: 20, B: 100}, {A: 20, B: 5}) == []


def test_deleted_partition_is_reported(lookup: ScriptedLookup) -> None:
    del lookup.logs[B]
    with pytest.raises(DataLossError, match="offsets from 5 of t-1 are missing: the part"):
        planner(lookup).latest({A: 20, B: 5})
    continuing = planner(lookup, failondataloss="false")
    assert continuing.latest({A: 12, B: 5}) == {A: 20}
    assert ranges(continuing, {A: 12, B: 5}, {A: 20}) == [(0, 12, 20)]
    with pytest.raises(DataLossError, match="t-1"):
        planner(lookup).tasks({A: 12, B: 5}, {A: 20, B: 7})


def test_topic_that_is_deleted_during_a_lookup_is_reported(lookup: ScriptedLookup) -> None:
    lookup.is_deleted_meanwhile = True
    with pytest.raises(DataLossError, match=r"t-0 .* its topic was deleted"):
        planner(lookup).latest({A: 20, B: 5})


def test_query_continues_after_a_topic_was_deleted_during_a_lookup(lookup: ScriptedLookup) -> None:
    lookup.is_deleted_meanwhile = True
    assert planner(lookup, failondataloss="false").latest({A: 20, B: 5}) == {}


def test_topic_that_is_deleted_while_a_query_starts_is_an_error(lookup: ScriptedLookup) -> None:
    lookup.is_deleted_meanwhile = True
    with pytest.raises(UnknownTopicOrPartition, match="t has been deleted"):
        planner(lookup).initial()


def test_deleted_topic_is_reported(lookup: ScriptedLookup) -> None:
    lookup.logs.clear()
    with pytest.raises(DataLossError, match=r"t-0 .* its topic was deleted"):
        planner(lookup).latest({A: 20, B: 5})


def test_recreated_topic_is_detected_by_its_id(lookup: ScriptedLookup) -> None:
    lookup.topic_id = b"1" * 16
    stream = planner(lookup)
    end = stream.latest({A: 10, B: 0})
    lookup.topic_id = b"2" * 16
    lookup.logs = {A: LogBounds(0, 500), B: LogBounds(0, 500)}
    with pytest.raises(DataLossError, match="from 20 of t-0 are missing: its topic was del"):
        stream.latest(end)


def test_recreated_topic_is_reported_once_if_the_query_continues(
    lookup: ScriptedLookup, caplog: pytest.LogCaptureFixture
) -> None:
    lookup.topic_id = b"1" * 16
    stream = planner(lookup, failondataloss="false")
    end = stream.latest({A: 10, B: 0})
    lookup.topic_id = b"2" * 16
    assert stream.latest(end) == end
    assert caplog.text.count("recreated") == 2
    assert stream.latest(end) == end
    assert caplog.text.count("recreated") == 2


def test_loss_is_looked_up_again_before_it_is_reported(
    lookup: ScriptedLookup, clock: VirtualClock
) -> None:
    """A broker that has just started may not know all topics yet."""
    logs = dict(lookup.logs)
    lookup.logs.clear()

    def start_broker() -> None:
        if len(clock.sleeps) == 3:
            lookup.logs.update(logs)

    clock.during_sleep = start_broker
    assert planner(lookup, clock).latest({A: 20, B: 5}) == {A: 20, B: 5}
    assert clock.sleeps == [1, 1, 1]


def test_number_of_repeated_lookups_is_an_option(
    lookup: ScriptedLookup, clock: VirtualClock
) -> None:
    options = {"fetchoffset.numretries": "1", "fetchoffset.retryintervalms": "50"}
    with pytest.raises(DataLossError):
        planner(lookup, clock, **options).latest({A: 21, B: 5})
    assert clock.sleeps == [0.05]
