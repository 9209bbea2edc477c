"""One segment: appends and their index entries, rolls, truncation, checks, renames."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from plogd.log import file_names
from plogd.log.segment import segment_indexes
from plogd.log.segment.log_segment import LogSegment
from plogd.log.segment.sanity_check import sanity_check
from plogd.topic_config import TopicConfig
from tests.helpers.log.log_data import SMALL, T0, append, client_batch, fill, next_offset
from tests.helpers.log.one_segment import (
    BASE,
    INDEX,
    TIME_INDEX,
    create_segment,
    open_segment,
    read_offsets,
)
from tests.helpers.sim.sim_files import SimFiles

# -- append -----------------------------------------------------------------------------------


def test_creation_removes_what_a_failed_roll_left() -> None:
    files = SimFiles()
    segment = create_segment(files)
    fill(segment, 20)
    segment.on_become_inactive()
    segment.close()
    again = create_segment(files)
    assert (again.size_bytes, again.offset_index.count, again.time_index.count) == (
        0,
        0,
        0,
    )


def test_index_entries_equal_those_of_kafka() -> None:
    """An entry precedes each batch that begins more than index.interval.bytes later: its last
    offset, its own position, and the largest timestamp so far, its own included
    (LogSegment.append).
    """
    files = SimFiles()
    segment = create_segment(files, replace(SMALL, index_interval_bytes=300))
    positions = []
    for number in range(6):
        batch = client_batch(2, timestamp=T0 + number, value=b"v" * 30)
        assert len(batch) == 141
        positions.append(segment.size_bytes)
        append(segment, batch, BASE + 2 * number)
    # Batch 3 begins at 423, the first position more than 300 after 0.
    assert segment.offset_index.count == 1
    assert segment.offset_index.entry(0) == (BASE + 7, positions[3])
    assert segment.time_index.entry(0) == (T0 + 3, BASE + 7)


def test_falling_timestamps_add_no_time_index_entry() -> None:
    segment = create_segment(SimFiles())
    fill(segment, 50, step_ms=-1)
    assert segment.offset_index.count > 5
    assert segment.time_index.count == 1
    assert segment.max_timestamp == T0


def test_last_time_index_entry_is_written_once() -> None:
    segment = create_segment(SimFiles())
    end = fill(segment, 5)
    segment.on_become_inactive()
    segment.on_become_inactive()
    assert segment.time_index.last_entry == (T0 + 40, end - 1)


def test_reopened_segment_continues_its_indexes() -> None:
    files, once = SimFiles(), SimFiles()
    segment = create_segment(files)
    for _ in range(30):
        end = fill(segment, 1, start_ms=T0)
        segment.close()
        segment = open_segment(files)
    whole = create_segment(once)
    assert fill(whole, 30, step_ms=0) == end == next_offset(segment)
    assert files.read_file(INDEX) == once.read_file(INDEX)


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
@pytest.mark.parametrize("undo_fails", [False, True])
def test_failed_append_changes_nothing(
    suffix: str, undo_fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_indexes, "_FLUSH_BYTES", 1)
    files = SimFiles()
    segment = create_segment(files)
    fill(segment, 4)  # The next one gets an index entry.
    before = (segment.size_bytes, segment.max_timestamp, segment.offset_index.last_entry)
    files.fail_when(
        lambda operation: (
            operation.path.endswith(suffix)
            and (operation.name == "append" or (undo_fails and operation.name == "truncate"))
        ),
        errno.ENOSPC,
    )
    batch = client_batch(timestamp=T0 + 999)
    with pytest.raises(OSError, match="No space"):
        append(segment, batch, BASE + 4)
    files.fail_no_more()
    segment.truncate_to_size(before[0])
    assert (
        segment.size_bytes,
        segment.max_timestamp,
        segment.offset_index.last_entry,
    ) == before
    assert segment.find_offset(BASE + 4) is None
    append(segment, batch, BASE + 4)
    assert read_offsets(segment, BASE) == list(range(BASE, BASE + 5))
    assert segment.offset_index.last_entry == (BASE + 4, before[0])
    assert segment.time_index.last_entry == (T0 + 999, BASE + 4)


# -- roll -------------------------------------------------------------------------------------


def _should_roll(segment: LogSegment, config: TopicConfig, **incoming: int) -> bool:
    return segment.should_roll(
        config,
        nbytes=incoming.get("nbytes", 100),
        timestamp_ms=incoming.get("timestamp", T0),
        last_offset=incoming.get("last_offset", BASE + 100),
        now_ms=incoming.get("now_ms", T0),
    )


def test_segment_rolls_when_the_next_batch_does_not_fit() -> None:
    segment = create_segment(SimFiles())
    fill(segment, 3)
    config = replace(SMALL, segment_bytes=segment.size_bytes + 100)
    assert not _should_roll(segment, config, nbytes=100)
    assert _should_roll(segment, config, nbytes=101)


def test_empty_segment_takes_a_batch_of_any_size() -> None:
    config = replace(SMALL, segment_bytes=50)
    assert not _should_roll(create_segment(SimFiles()), config, nbytes=101)


def test_segment_rolls_by_the_time_of_its_records() -> None:
    files = SimFiles()
    segment = create_segment(files)
    fill(segment, 3)
    config = replace(SMALL, segment_ms=1000)
    for one in (segment, open_segment(files)):
        assert not _should_roll(one, config, timestamp=T0 + 1000, now_ms=T0 + 9**9)
        assert _should_roll(one, config, timestamp=T0 + 1001)


def test_segment_of_a_compacted_log_rolls_after_the_maximum_compaction_lag() -> None:
    files = SimFiles()
    segment = create_segment(files)
    fill(segment, 1)
    compacted = ("compact", "delete")
    for segment_ms, lag_ms, policy, age_ms in (
        (1000, 300, compacted, 300),
        (1000, 1300, compacted, 1000),
        (1000, 300, ("delete",), 1000),
    ):
        config = replace(
            SMALL, segment_ms=segment_ms, max_compaction_lag_ms=lag_ms, cleanup_policy=policy
        )
        assert _age_at_the_roll(segment, config) == age_ms
        jitter = replace(config, segment_jitter_ms=200)
        assert age_ms - 200 < _age_at_the_roll(segment, jitter) <= age_ms


def _age_at_the_roll(segment: LogSegment, config: TopicConfig) -> int:
    return next(ms for ms in range(2000) if _should_roll(segment, config, timestamp=T0 + ms)) - 1


def test_jitter_spreads_the_rolls_of_segments_but_never_delays_one() -> None:
    files = SimFiles()
    config = replace(SMALL, segment_ms=1000, segment_jitter_ms=100)
    ages = []
    for number in range(10):
        files.mkdir(f"/log-{number}")
        segment = LogSegment.create(files, f"/log-{number}", BASE, config)
        fill(segment, 1)
        ages.append(_age_at_the_roll(segment, config))
        reopened = LogSegment(files, f"/log-{number}", BASE, config)
        assert _age_at_the_roll(reopened, config) == ages[-1]
    assert len(set(ages)) > 5
    assert all(900 < age <= 1000 for age in ages)


def test_segment_without_timestamps_rolls_by_the_clock() -> None:
    segment = create_segment(SimFiles())
    append(segment, client_batch(timestamp=-1), BASE)
    config = replace(SMALL, segment_ms=1000)
    assert not _should_roll(segment, config, timestamp=-1, now_ms=T0)
    assert not _should_roll(segment, config, timestamp=-1, now_ms=T0 + 1000)
    assert _should_roll(segment, config, timestamp=-1, now_ms=T0 + 1001)


def test_segment_rolls_when_an_index_is_full() -> None:
    segment = create_segment(SimFiles(), replace(SMALL, segment_index_bytes=24))
    fill(segment, 2)
    assert not _should_roll(segment, SMALL)
    fill(segment, 1)
    assert _should_roll(segment, SMALL)  # The time index keeps its second slot.


def test_segment_rolls_when_its_indexes_cannot_express_the_offset() -> None:
    segment = create_segment(SimFiles())
    assert not _should_roll(segment, SMALL, last_offset=BASE + 2**31 - 1)
    assert _should_roll(segment, SMALL, last_offset=BASE + 2**31)


# -- truncation --------------------------------------------------------------------------------


@pytest.mark.parametrize("records", [1, 5])
@pytest.mark.parametrize("offset", [0, 1, 10, 12, 33, 199, 200])
def test_truncation_equals_never_having_appended_the_rest(records: int, offset: int) -> None:
    files, once = SimFiles(), SimFiles()
    cut, whole = create_segment(files), create_segment(once)
    fill(cut, 40, records=records)
    total = cut.size_bytes
    kept = min(offset // records, 40)
    fill(whole, kept, records=records)
    assert cut.truncate_to(BASE + offset) == total - whole.size_bytes
    assert cut.max_timestamp == whole.max_timestamp
    for segment in (cut, whole):
        assert next_offset(segment) == BASE + records * kept
        fill(segment, 10, records=records)
        segment.on_become_inactive()
        sanity_check(segment)
    assert files.read_file(INDEX) == once.read_file(INDEX)
    assert files.read_file(TIME_INDEX) == once.read_file(TIME_INDEX)


def test_truncation_to_a_size_removes_the_batch_that_begins_there() -> None:
    segment = create_segment(SimFiles())
    fill(segment, 20)
    place = segment.find_offset(BASE + 13)
    assert place is not None
    segment.truncate_to_size(place.position)
    assert next_offset(segment) == BASE + 13
    assert segment.size_bytes == place.position


# -- rename, delete ---------------------------------------------------------------------------


def test_renamed_segment_can_still_be_read_and_then_deleted() -> None:
    files = SimFiles()
    segment = create_segment(files)
    fill(segment, 20)
    files.open_append(f"/log/{file_names.segment_file_name(BASE, '.txnindex')}").close()
    region = segment.read(BASE, 100, max_position=10**9, at_least_one=True)
    assert region is not None
    segment.release_indexes()
    segment.rename(file_names.DELETED_SUFFIX)
    assert files.listdir("/log") == [
        file_names.segment_file_name(BASE, suffix, ".deleted")
        for suffix in (".index", ".log", ".timeindex", ".txnindex")
    ]
    assert read_offsets(segment, BASE + 15) == list(range(BASE + 15, BASE + 20))
    segment.delete_files()
    assert files.listdir("/log") == []
    assert len(region.read()) == region.nbytes
    region.close()
