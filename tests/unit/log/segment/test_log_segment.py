"""One segment: appends and their index entries, rolls, truncation, checks, renames."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from plog.records.batch import iter_batches
from plogd.log import file_names
from plogd.log.segment import segment_indexes
from plogd.log.segment.index_file import CorruptIndex
from plogd.log.segment.log_segment import LogSegment
from plogd.ports import File
from plogd.topic_config import TopicConfig
from tests.helpers.log.log_data import SMALL, T0, append, client_batch, fill, next_offset
from tests.helpers.sim.sim_files import SimFiles

BASE = 1000
INDEX = f"/log/{file_names.segment_file_name(BASE, '.index')}"
TIME_INDEX = f"/log/{file_names.segment_file_name(BASE, '.timeindex')}"


def _create(files: SimFiles, config: TopicConfig = SMALL) -> LogSegment:
    files.mkdir("/log")
    return LogSegment.create(files, "/log", BASE, config)


def _open(files: SimFiles, config: TopicConfig = SMALL) -> LogSegment:
    return LogSegment(files, "/log", BASE, config)


def _offsets(segment: LogSegment, offset: int, max_bytes: int = 1 << 30, **how: int) -> list[int]:
    """Return the base offsets of the whole batches in a read."""
    region = segment.read(
        offset,
        max_bytes,
        max_position=how.get("max_position", segment.size_bytes),
        at_least_one=bool(how.get("at_least_one", True)),
    )
    assert region is not None
    data = region.read()
    region.close()
    return [header.base_offset for _, header in iter_batches(data)]


# -- append -----------------------------------------------------------------------------------


def _names(files: SimFiles) -> list[str]:
    return [name.removeprefix(f"{BASE:020}") for name in files.listdir("/log")]


def test_new_segment_creates_its_indexes_with_the_first_entry() -> None:
    files = SimFiles()
    segment = _create(files, replace(SMALL, index_interval_bytes=400))
    append(segment, client_batch(), BASE)
    assert not segment.indexes.is_full
    assert segment.sync_files() == [segment.records_file]
    assert _names(files) == [".log"]
    fill(segment, 20)
    assert len(segment.sync_files()) == 3
    assert _names(files) == [".index", ".log", ".timeindex"]


def test_lookups_in_a_segment_without_index_files_create_none() -> None:
    files = SimFiles()
    segment = _create(files)
    for number in range(3):
        append(segment, client_batch(timestamp=T0 + number), BASE + number)
    copy = segment.open_for_reading()
    for one in (segment, copy):
        assert _offsets(one, BASE) == [BASE, BASE + 1, BASE + 2]
        assert one.find_offset(BASE + 2, nowait=True) == segment.find_offset(BASE + 2)
        assert one.indexes.look_up_time(T0 + 2) == (-1, BASE)
        assert not one.index_is_suspect
    assert segment.max_timestamp == T0 + 2
    copy.close()
    assert _names(files) == [".log"]


def test_segment_without_index_files_can_be_truncated_on_a_full_disk() -> None:
    files = SimFiles()
    segment = _create(files)
    end_positions = []
    for number in range(3):
        append(segment, client_batch(timestamp=T0 + number), BASE + number)
        end_positions.append(segment.size_bytes)
    files.fail_when(lambda operation: operation.name == "create", errno.ENOSPC)
    segment.truncate_to(BASE + 1)
    assert (segment.size_bytes, segment.max_timestamp) == (end_positions[0], T0)
    files.fail_no_more()
    fill(segment, 20)
    assert _offsets(segment, BASE) == list(range(BASE, BASE + 21))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_segment_accepts_appends_while_its_index_files_cannot_be_created(
    suffix: str, code: int
) -> None:
    files = SimFiles()
    segment = _create(files, replace(SMALL, index_interval_bytes=1))
    files.fail_when(lambda operation: operation.path.endswith(suffix), code)
    fill(segment, 3)
    assert _names(files) == [".log"]
    assert _offsets(segment, BASE + 1) == [BASE + 1, BASE + 2]
    files.fail_no_more()
    size_bytes = segment.size_bytes
    append(segment, client_batch(timestamp=T0 + 100), BASE + 3)
    assert segment.offset_index.last_entry == (BASE + 3, size_bytes)
    assert segment.time_index.last_entry.offset == BASE + 3


def test_first_entry_on_a_failed_disk_undoes_its_append() -> None:
    files = SimFiles()
    segment = _create(files, replace(SMALL, index_interval_bytes=1))
    append(segment, client_batch(timestamp=T0), BASE)
    size_bytes = segment.size_bytes
    files.fail_when(lambda operation: operation.path.endswith("index"), errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        append(segment, client_batch(timestamp=T0 + 1), BASE + 1)
    assert (segment.size_bytes, segment.max_timestamp) == (size_bytes, T0)


def test_segment_of_the_metadata_log_has_index_files_for_its_reserved_space() -> None:
    directory = "/a/__cluster_metadata-0"
    files = SimFiles([directory])
    segment = LogSegment.create(files, directory, 0, SMALL)
    assert len(segment.sync_files()) == 3
    files.fail_when(lambda operation: operation.path.endswith(".timeindex"), errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        LogSegment.create(files, directory, 5, SMALL)
    assert file_names.segment_file_name(5, ".log") not in files.listdir(directory)


def test_rolled_segment_has_both_index_files() -> None:
    files = SimFiles()
    segment = _create(files)
    append(segment, client_batch(timestamp=-1), BASE)
    segment.on_become_inactive()
    assert _names(files) == [".index", ".log", ".timeindex"]
    assert len(segment.sync_files()) == 3


@pytest.mark.parametrize("index_bytes", [0, 8, 12, 16, 23, 24])
def test_segment_without_index_files_is_full_only_without_room_for_an_entry(
    index_bytes: int,
) -> None:
    config = replace(SMALL, segment_index_bytes=index_bytes)
    segment = _create(SimFiles(), config)
    is_full = segment.indexes.is_full
    segment.indexes.make_files()
    assert is_full == (segment.offset_index.is_full or segment.time_index.is_full)


def test_empty_segment_without_index_files_passes_the_sanity_check() -> None:
    files = SimFiles()
    _create(files).close()
    again = LogSegment(files, "/log", BASE, SMALL)
    assert again.sanity_check() == BASE
    assert _names(files) == [".log"]
    fill(again, 40)
    assert again.offset_index.count


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_rebuild_of_an_empty_segment_removes_a_single_index_file(suffix: str) -> None:
    files = SimFiles()
    _create(files).close()
    files.open_append(file_names.segment_path("/log", BASE, suffix)).close()
    again = LogSegment(files, "/log", BASE, SMALL)
    with pytest.raises(CorruptIndex, match="index is missing"):
        again.sanity_check()
    again.reset_indexes()
    assert _names(files) == [".log"]
    assert again.sanity_check() == BASE


def test_segment_with_records_needs_its_index_files() -> None:
    files = SimFiles()
    segment = _create(files)
    append(segment, client_batch(), BASE)
    segment.close()
    with pytest.raises(CorruptIndex, match="index is missing"):
        LogSegment(files, "/log", BASE, SMALL).sanity_check()


def test_released_indexes_know_whether_they_are_full_and_where_the_next_entry_goes() -> None:
    files = SimFiles()
    segment = _create(files, replace(SMALL, segment_index_bytes=96))
    kept = _create(SimFiles(), replace(SMALL, segment_index_bytes=96))
    for number in range(40):
        if segment.indexes.is_full:
            break
        for one in (segment, kept):
            fill(one, 1, start_ms=T0 + number)
        segment.indexes.flush()
        segment.release_indexes()
        assert segment.indexes.is_full == kept.indexes.is_full
        assert segment.sync_files() == [segment.records_file]
    assert 2 <= segment.offset_index.count == kept.offset_index.count
    assert segment.offset_index.last_entry == kept.offset_index.last_entry
    assert segment.time_index.last_entry == kept.time_index.last_entry


def test_segment_accepts_appends_without_descriptors_for_its_indexes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = SimFiles()
    segment = _create(files)

    def none_left(path: str) -> File:
        raise OSError(errno.EMFILE, "Too many open files", path)

    offset = BASE
    with monkeypatch.context() as patch:
        patch.setattr(files, "open_on_demand", none_left)
        for number in range(20):
            offset = append(segment, client_batch(timestamp=T0 + number), offset)
    assert segment.offset_index.count == 0
    for number in range(20, 40):
        offset = append(segment, client_batch(timestamp=T0 + number), offset)
    assert segment.offset_index.count > 3
    assert _offsets(segment, BASE) == list(range(BASE, offset))
    segment.sanity_check()


def test_creation_removes_what_a_failed_roll_left() -> None:
    files = SimFiles()
    segment = _create(files)
    fill(segment, 20)
    segment.on_become_inactive()
    segment.close()
    again = _create(files)
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
    segment = _create(files, replace(SMALL, index_interval_bytes=300))
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
    segment = _create(SimFiles())
    fill(segment, 50, step_ms=-1)
    assert segment.offset_index.count > 5
    assert segment.time_index.count == 1
    assert segment.max_timestamp == T0


def test_last_time_index_entry_is_written_once() -> None:
    segment = _create(SimFiles())
    end = fill(segment, 5)
    segment.on_become_inactive()
    segment.on_become_inactive()
    assert segment.time_index.last_entry == (T0 + 40, end - 1)


def test_reopened_segment_continues_its_indexes() -> None:
    files, once = SimFiles(), SimFiles()
    segment = _create(files)
    for _ in range(30):
        end = fill(segment, 1, start_ms=T0)
        segment.close()
        segment = _open(files)
    whole = _create(once)
    assert fill(whole, 30, step_ms=0) == end == next_offset(segment)
    assert files.read_file(INDEX) == once.read_file(INDEX)


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
@pytest.mark.parametrize("undo_fails", [False, True])
def test_failed_append_changes_nothing(
    suffix: str, undo_fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_indexes, "_FLUSH_BYTES", 1)
    files = SimFiles()
    segment = _create(files)
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
    assert _offsets(segment, BASE) == list(range(BASE, BASE + 5))
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
    segment = _create(SimFiles())
    fill(segment, 3)
    config = replace(SMALL, segment_bytes=segment.size_bytes + 100)
    assert not _should_roll(segment, config, nbytes=100)
    assert _should_roll(segment, config, nbytes=101)


def test_empty_segment_takes_a_batch_of_any_size() -> None:
    config = replace(SMALL, segment_bytes=50)
    assert not _should_roll(_create(SimFiles()), config, nbytes=101)


def test_segment_rolls_by_the_time_of_its_records() -> None:
    files = SimFiles()
    segment = _create(files)
    fill(segment, 3)
    config = replace(SMALL, segment_ms=1000)
    for open_segment in (segment, _open(files)):
        assert not _should_roll(open_segment, config, timestamp=T0 + 1000, now_ms=T0 + 9**9)
        assert _should_roll(open_segment, config, timestamp=T0 + 1001)


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
    segment = _create(SimFiles())
    append(segment, client_batch(timestamp=-1), BASE)
    config = replace(SMALL, segment_ms=1000)
    assert not _should_roll(segment, config, timestamp=-1, now_ms=T0)
    assert not _should_roll(segment, config, timestamp=-1, now_ms=T0 + 1000)
    assert _should_roll(segment, config, timestamp=-1, now_ms=T0 + 1001)


def test_segment_rolls_when_an_index_is_full() -> None:
    segment = _create(SimFiles(), replace(SMALL, segment_index_bytes=24))
    fill(segment, 2)
    assert not _should_roll(segment, SMALL)
    fill(segment, 1)
    assert _should_roll(segment, SMALL)  # The time index keeps its second slot.


def test_segment_rolls_when_its_indexes_cannot_express_the_offset() -> None:
    segment = _create(SimFiles())
    assert not _should_roll(segment, SMALL, last_offset=BASE + 2**31 - 1)
    assert _should_roll(segment, SMALL, last_offset=BASE + 2**31)


# -- truncation and checks --------------------------------------------------------------------


@pytest.mark.parametrize("records", [1, 5])
@pytest.mark.parametrize("offset", [0, 1, 10, 12, 33, 199, 200])
def test_truncation_equals_never_having_appended_the_rest(records: int, offset: int) -> None:
    files, once = SimFiles(), SimFiles()
    cut, whole = _create(files), _create(once)
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
        segment.sanity_check()
    assert files.read_file(INDEX) == once.read_file(INDEX)
    assert files.read_file(TIME_INDEX) == once.read_file(TIME_INDEX)


def test_truncation_to_a_size_removes_the_batch_that_begins_there() -> None:
    segment = _create(SimFiles())
    fill(segment, 20)
    place = segment.find_offset(BASE + 13)
    assert place is not None
    segment.truncate_to_size(place.position)
    assert next_offset(segment) == BASE + 13
    assert segment.size_bytes == place.position


def test_valid_segment_passes_the_sanity_check() -> None:
    files = SimFiles()
    segment = _create(files)
    _open(files).sanity_check()
    fill(segment, 40)
    segment.on_become_inactive()
    _open(files).sanity_check()


@pytest.mark.parametrize("path", [INDEX, TIME_INDEX])
@pytest.mark.parametrize("damage", ["missing", "zeros", "garbage", "over-long", "ragged"])
def test_damaged_index_fails_the_sanity_check(path: str, damage: str) -> None:
    files = SimFiles()
    segment = _create(files)
    fill(segment, 40)
    segment.on_become_inactive()
    segment.close()
    content = files.read_file(path)
    if damage == "missing":
        files.unlink(path)
    else:
        damaged = {
            "zeros": bytes(len(content)),
            "garbage": b"\x5a" * len(content),
            "over-long": content + bytes(24),
            "ragged": content + b"\0",
        }
        files.overwrite(path, damaged[damage])
    with pytest.raises(CorruptIndex):
        _open(files).sanity_check()


def test_damage_after_the_last_index_entry_fails_the_sanity_check() -> None:
    files = SimFiles()
    segment = _create(files)
    fill(segment, 40)
    segment.on_become_inactive()
    path = segment.records_file.path
    files.overwrite(path, files.read_file(path)[:-50] + bytes(50 + 100))
    with pytest.raises(CorruptIndex, match="damage"):
        _open(files).sanity_check()


def test_index_that_ends_long_before_the_log_fails_the_sanity_check() -> None:
    files = SimFiles()
    segment = _create(files)
    offset = append(segment, client_batch(value=b"v" * (9 << 20)), BASE)
    append(segment, client_batch(value=b"v" * (9 << 20)), offset)
    segment.on_become_inactive()
    segment.close()
    _open(files).sanity_check()
    files.overwrite(INDEX, b"")
    with pytest.raises(CorruptIndex, match="does not cover the last part"):
        _open(files).sanity_check()


def test_time_index_without_its_last_entry_fails_the_sanity_check() -> None:
    """Retention would consider the segment older than it is."""
    files = SimFiles()
    fill(_create(files), 40)
    with pytest.raises(CorruptIndex, match="last entry"):
        _open(files).sanity_check()


# -- rename, delete ---------------------------------------------------------------------------


def test_renamed_segment_can_still_be_read_and_then_deleted() -> None:
    files = SimFiles()
    segment = _create(files)
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
    assert _offsets(segment, BASE + 15) == list(range(BASE + 15, BASE + 20))
    segment.delete_files()
    assert files.listdir("/log") == []
    assert len(region.read()) == region.nbytes
    region.close()
