"""The index files of a segment: when they are created, and what their lack changes."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from plogd.log import file_names
from plogd.log.segment.index_file import CorruptIndex
from plogd.log.segment.log_segment import LogSegment
from plogd.log.segment.sanity_check import sanity_check
from plogd.ports import File
from tests.helpers.log.log_data import SMALL, T0, append, client_batch, fill
from tests.helpers.log.one_segment import BASE, create_segment, read_offsets
from tests.helpers.sim.sim_files import SimFiles


def _names(files: SimFiles) -> list[str]:
    return [name.removeprefix(f"{BASE:020}") for name in files.listdir("/log")]


def test_new_segment_creates_its_indexes_with_the_first_entry() -> None:
    files = SimFiles()
    segment = create_segment(files, replace(SMALL, index_interval_bytes=400))
    append(segment, client_batch(), BASE)
    assert not segment.indexes.is_full
    assert segment.sync_files() == [segment.records_file]
    assert _names(files) == [".log"]
    fill(segment, 20)
    assert len(segment.sync_files()) == 3
    assert _names(files) == [".index", ".log", ".timeindex"]


def test_lookups_in_a_segment_without_index_files_create_none() -> None:
    files = SimFiles()
    segment = create_segment(files)
    for number in range(3):
        append(segment, client_batch(timestamp=T0 + number), BASE + number)
    copy = segment.open_for_reading()
    for one in (segment, copy):
        assert read_offsets(one, BASE) == [BASE, BASE + 1, BASE + 2]
        assert one.find_offset(BASE + 2, nowait=True) == segment.find_offset(BASE + 2)
        assert one.indexes.look_up_time(T0 + 2) == (-1, BASE)
        assert not one.index_is_suspect
    assert segment.max_timestamp == T0 + 2
    copy.close()
    assert _names(files) == [".log"]


def test_segment_without_index_files_can_be_truncated_on_a_full_disk() -> None:
    files = SimFiles()
    segment = create_segment(files)
    end_positions = []
    for number in range(3):
        append(segment, client_batch(timestamp=T0 + number), BASE + number)
        end_positions.append(segment.size_bytes)
    files.fail_when(lambda operation: operation.name == "create", errno.ENOSPC)
    segment.truncate_to(BASE + 1)
    assert (segment.size_bytes, segment.max_timestamp) == (end_positions[0], T0)
    files.fail_no_more()
    fill(segment, 20)
    assert read_offsets(segment, BASE) == list(range(BASE, BASE + 21))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_segment_accepts_appends_while_its_index_files_cannot_be_created(
    suffix: str, code: int
) -> None:
    files = SimFiles()
    segment = create_segment(files, replace(SMALL, index_interval_bytes=1))
    files.fail_when(lambda operation: operation.path.endswith(suffix), code)
    fill(segment, 3)
    assert _names(files) == [".log"]
    assert read_offsets(segment, BASE + 1) == [BASE + 1, BASE + 2]
    files.fail_no_more()
    size_bytes = segment.size_bytes
    append(segment, client_batch(timestamp=T0 + 100), BASE + 3)
    assert segment.offset_index.last_entry == (BASE + 3, size_bytes)
    assert segment.time_index.last_entry.offset == BASE + 3


def test_first_entry_on_a_failed_disk_undoes_its_append() -> None:
    files = SimFiles()
    segment = create_segment(files, replace(SMALL, index_interval_bytes=1))
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
    segment = create_segment(files)
    append(segment, client_batch(timestamp=-1), BASE)
    segment.on_become_inactive()
    assert _names(files) == [".index", ".log", ".timeindex"]
    assert len(segment.sync_files()) == 3


@pytest.mark.parametrize("index_bytes", [0, 8, 12, 16, 23, 24])
def test_segment_without_index_files_is_full_only_without_room_for_an_entry(
    index_bytes: int,
) -> None:
    config = replace(SMALL, segment_index_bytes=index_bytes)
    segment = create_segment(SimFiles(), config)
    is_full = segment.indexes.is_full
    segment.indexes.make_files()
    assert is_full == (segment.offset_index.is_full or segment.time_index.is_full)


def test_empty_segment_without_index_files_passes_the_sanity_check() -> None:
    files = SimFiles()
    create_segment(files).close()
    again = LogSegment(files, "/log", BASE, SMALL)
    assert sanity_check(again) == BASE
    assert _names(files) == [".log"]
    fill(again, 40)
    assert again.offset_index.count


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_rebuild_of_an_empty_segment_removes_a_single_index_file(suffix: str) -> None:
    files = SimFiles()
    create_segment(files).close()
    files.open_append(file_names.segment_path("/log", BASE, suffix)).close()
    again = LogSegment(files, "/log", BASE, SMALL)
    with pytest.raises(CorruptIndex, match="index is missing"):
        sanity_check(again)
    again.reset_indexes()
    assert _names(files) == [".log"]
    assert sanity_check(again) == BASE


def test_segment_with_records_needs_its_index_files() -> None:
    files = SimFiles()
    segment = create_segment(files)
    append(segment, client_batch(), BASE)
    segment.close()
    with pytest.raises(CorruptIndex, match="index is missing"):
        sanity_check(LogSegment(files, "/log", BASE, SMALL))


def test_released_indexes_know_whether_they_are_full_and_where_the_next_entry_goes() -> None:
    files = SimFiles()
    segment = create_segment(files, replace(SMALL, segment_index_bytes=96))
    kept = create_segment(SimFiles(), replace(SMALL, segment_index_bytes=96))
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
    segment = create_segment(files)

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
    assert read_offsets(segment, BASE) == list(range(BASE, offset))
    sanity_check(segment)
