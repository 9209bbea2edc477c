"""Batches in a file: walks, regions, and failed appends."""

from __future__ import annotations

import errno

import pytest

from plog.errors import CorruptMessage
from plog.records.batch import parse_header, set_base_offset_and_epoch
from plogd.log.segment.file_records import BatchPlace, FileRecords, RegionTruncated
from tests.helpers.log.log_data import client_batch
from tests.helpers.sim.sim_files import SimFiles


def _records(files: SimFiles) -> FileRecords:
    return FileRecords(files.open_append("/log"))


def _append(records: FileRecords, offset: int, **fields: int) -> int:
    batch = client_batch(value=b"v" * fields.get("value_bytes", 10), count=fields.get("count", 1))
    set_base_offset_and_epoch(batch, 0, offset, 0)
    return records.append(batch)


def test_walk_finds_every_batch_small_and_large() -> None:
    records = _records(SimFiles())
    sizes = [10, 70_000, 10, 9_000, 200_000, 0, 0, 8_100, 10]
    positions = [_append(records, i, value_bytes=size) for i, size in enumerate(sizes)]
    walked = list(records.batches_from())
    assert [position for position, _ in walked] == positions
    assert [header.base_offset for _, header in walked] == list(range(len(sizes)))
    assert sum(header.size_bytes for _, header in walked) == records.size_bytes
    assert [place.position for place in records.places_from(positions[3])] == positions[3:]


def test_walk_ends_at_the_last_whole_batch_before_the_bound() -> None:
    records = _records(SimFiles())
    positions = [_append(records, i) for i in range(4)]
    assert [p for p, _ in records.batches_from(0, positions[2])] == positions[:2]
    assert [p for p, _ in records.batches_from(0, positions[3] - 1)] == positions[:2]
    assert [p for p, _ in records.batches_from(0, 10**9)] == positions


def test_find_offset_gives_the_batch_that_holds_it_or_the_next_one() -> None:
    records = _records(SimFiles())
    _append(records, 0, count=3)
    second = _append(records, 10, count=5)
    size = records.size_bytes - second
    for offset in (3, 10, 14):
        assert records.find_offset(offset, 0) == BatchPlace(second, size, 10, 14)
    assert records.find_offset(15, 0) is None


def test_lookup_among_large_batches_reads_little_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    records = _records(SimFiles())
    positions = [_append(records, offset, value_bytes=200_000) for offset in range(5)]
    read: list[int] = []
    of_file = FileRecords.read

    def counted(self: FileRecords, position: int, nbytes: int) -> bytes:
        read.append(nbytes)
        return of_file(self, position, nbytes)

    monkeypatch.setattr(FileRecords, "read", counted)
    place = records.find_offset(4, 0)
    assert place is not None
    assert place.position == positions[4]
    assert len(read) == 5
    assert sum(read) < 50_000


def test_header_at_the_end_is_none() -> None:
    records = _records(SimFiles())
    assert records.header_at(0) is None
    _append(records, 7)
    header = records.header_at(0)
    assert header is not None
    assert header.base_offset == 7


@pytest.mark.parametrize(
    "damage",
    [
        b"\0" * 80,
        b"\xff" * 80,
        b"\0" * 16 + b"\2" + b"\0" * 80,
        bytes(client_batch())[:-1],
        bytes(client_batch())[:60],
        b"x",
    ],
)
def test_walk_raises_at_bytes_that_are_not_a_batch(damage: bytes) -> None:
    files = SimFiles()
    records = _records(files)
    end = _append(records, 0) + records.size_bytes
    records.file.append(damage)
    records = _records(files)
    assert next(iter(records.batches_from()))[0] == 0
    with pytest.raises(CorruptMessage, match=f"damaged at byte {end}"):
        list(records.batches_from())


def test_region_is_readable_after_the_file_was_closed() -> None:
    records = _records(SimFiles())
    _append(records, 0)
    position = _append(records, 1)
    region = records.region(position, records.size_bytes - position)
    records.close()
    assert parse_header(region.read()).base_offset == 1
    region.close()
    region.close()
    with pytest.raises(AssertionError, match="closed"):
        records.file.size()


def test_reading_a_truncated_region_raises() -> None:
    records = _records(SimFiles())
    _append(records, 0)
    position = _append(records, 1)
    region = records.region(0, records.size_bytes)
    records.truncate(position)
    with pytest.raises(RegionTruncated):
        region.read()
    region.close()


def test_failed_append_leaves_no_bytes() -> None:
    files = SimFiles()
    records = _records(files)
    _append(records, 0)
    size = records.size_bytes
    files.fail_when(lambda operation: operation.name == "append", errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        _append(records, 1)
    assert records.size_bytes == size == records.file.size()
    files.fail_no_more()
    assert _append(records, 1) == size


def test_bytes_of_a_failed_append_are_removed_before_the_next() -> None:
    files = SimFiles()
    records = _records(files)
    _append(records, 0)
    size = records.size_bytes
    files.fail_when(lambda operation: operation.name in ("append", "truncate"), errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        _append(records, 1)
    assert records.size_bytes == size < records.file.size()
    assert len(list(records.batches_from())) == 1
    with pytest.raises(OSError, match="Input/output"):
        _append(records, 1)
    files.fail_no_more()
    assert _append(records, 1) == size
    assert len(list(records.batches_from())) == 2


def test_truncate_returns_the_number_of_removed_bytes() -> None:
    records = _records(SimFiles())
    _append(records, 0)
    position = _append(records, 1)
    total = records.size_bytes
    assert records.truncate(position) == total - position
    assert records.truncate(position) == 0
    assert records.file.size() == position
