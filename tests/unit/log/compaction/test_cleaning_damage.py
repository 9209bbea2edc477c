"""Damaged logs, failing disks and unusual batches: an error, or the right result."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest

from plog.records.batch import (
    HEADER_SIZE,
    Compression,
    TimestampType,
    iter_batches,
)
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.records.crc32c import crc32c
from plogd.log.compaction import cleaning
from plogd.log.compaction.cleaning import CannotClean, Replacement, Report, clean
from plogd.log.file_names import LOG_SUFFIX, segment_path
from tests.helpers.log.compacted_log import DIRECTORY, CompactedLog
from tests.helpers.sim.sim_files import SimFiles

MIB = 1 << 20


def _log() -> CompactedLog:
    """Return a log in several segments, of which each has outdated records."""
    log = CompactedLog()
    for number in range(40):
        log.append((b"k%d" % (number % 5), b"v" * 100), (b"once-%d" % number, b"v%d" % number))
        if number % 4 == 3:
            log.roll()
    log.append((b"a", b"aborted"), producer_id=7, is_transactional=True)
    log.end_transaction(7, is_commit=False)
    log.roll()
    return log


def _assert_cannot_clean(log: CompactedLog, match: str, **changes: Any) -> None:
    before = log.contents()
    with pytest.raises(CannotClean, match=match):
        log.compact(**changes)
    assert log.contents() == before, "files were changed, or left behind"


def _overwrite(log: CompactedLog, number: int, content: bytes) -> None:
    path = segment_path(DIRECTORY, log.sealed[number].base_offset, LOG_SUFFIX)
    log.files.overwrite(path, content)


# -- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 4, 10])
def test_flipped_bit_is_reported_wherever_it_is(number: int) -> None:
    """The checksum does not cover the base offset and the leader epoch; the length is checked."""
    chance = random.Random(number)
    for _ in range(20):
        log = _log()
        content = bytearray(log.read(log.sealed[number]))
        starts = {position for position, _ in iter_batches(content)}
        free = {start + n for start in starts for n in (*range(8), *range(12, 17))}
        position = chance.choice([n for n in range(len(content)) if n not in free])
        content[position] ^= 1 << chance.randrange(8)
        _overwrite(log, number, bytes(content))
        _assert_cannot_clean(log, "the log is damaged: ")


@pytest.mark.parametrize("cut", [1, 60, 61, 62, 400])
def test_file_that_is_too_short_is_reported(cut: int) -> None:
    log = _log()
    _overwrite(log, 2, log.read(log.sealed[2])[:-cut])
    _assert_cannot_clean(log, r"00000000000000000016\.log ends inside the batch at byte \d+")


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, 49, 5000, 2**31 - 1])
def test_impossible_batch_length_is_reported(length: int) -> None:
    log = _log()
    content = bytearray(log.read(log.sealed[2]))
    content[8:12] = length.to_bytes(4, "big", signed=True)
    _overwrite(log, 2, bytes(content))
    _assert_cannot_clean(log, r"the log is damaged: .*00000000000000000016\.log")


def test_impossible_batch_length_does_not_read_the_rest_of_the_segment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = CompactedLog()
    log.append((b"a", bytes(5 * MIB)))
    log.append((b"b", bytes(5 * MIB)))
    log.roll()
    content = bytearray(log.read(log.sealed[0]))
    content[8:12] = (2**31 - 1).to_bytes(4, "big")
    _overwrite(log, 0, bytes(content))
    sizes: list[int] = []
    open_read = SimFiles.open_read

    def noting(files: SimFiles, path: str) -> Any:
        file = open_read(files, path)
        pread = file.pread

        def note(nbytes: int, position: int) -> bytes:
            sizes.append(nbytes)
            return pread(nbytes, position)

        monkeypatch.setattr(file, "pread", note, raising=False)
        return file

    monkeypatch.setattr(SimFiles, "open_read", noting)
    _assert_cannot_clean(log, "the log is damaged: ")
    assert max(sizes) <= MIB


def test_zeros_are_reported() -> None:
    log = _log()
    _overwrite(log, 2, bytes(log.sealed[2].size_bytes))
    _assert_cannot_clean(log, "the log is damaged: ")


def test_unknown_codec_is_reported() -> None:
    log = CompactedLog()
    log.append((b"a", b"1"))
    batch = bytearray(build_batch([Record(key=b"b", value=b"2")], base_offset=1))
    log.append_bytes(_with_attributes(batch, 5))
    log.roll()
    _assert_cannot_clean(log, "compression type 5")


def _with_attributes(batch: bytearray, attributes: int) -> bytes:
    """Return a batch with other attributes and the right checksum."""
    batch[21:23] = attributes.to_bytes(2, "big")
    batch[17:21] = crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
    return bytes(batch)


def test_inconsistent_records_with_a_valid_checksum_are_reported() -> None:
    log = CompactedLog()
    batch = bytearray(build_batch([Record(key=b"b", value=b"2")]))
    batch[-3:] = b"\xff" * 3
    log.append_bytes(_with_attributes(batch, 0))
    log.roll()
    _assert_cannot_clean(log, "the log is damaged: ")


@pytest.mark.parametrize("codec", [one for one in Compression if one is not Compression.NONE])
def test_decompression_bomb_is_reported(codec: Compression) -> None:
    log = CompactedLog()
    log.append((b"a", b"1"))
    log.append((b"bomb", bytes(3 * MIB)), compression=codec)
    log.roll()
    _assert_cannot_clean(log, "the log is damaged: ", max_decompressed_bytes=3 * MIB)
    log.compact(max_decompressed_bytes=3 * MIB + 100)


def test_garbage_instead_of_compressed_records_is_reported() -> None:
    for codec in Compression:
        log = CompactedLog()
        batch = bytearray(build_batch([Record(key=b"b", value=b"2" * 50)], compression=codec))
        batch[HEADER_SIZE:] = random.Random(codec).randbytes(len(batch) - HEADER_SIZE)
        log.append_bytes(_with_attributes(batch, codec))
        log.roll()
        _assert_cannot_clean(log, "the log is damaged: ")


def test_impossible_timestamp_is_reported_if_the_batch_must_be_rebuilt() -> None:
    """A horizon is too far from the oldest possible timestamp."""
    log = CompactedLog()
    tombstone = build_batch([Record(timestamp=0, key=b"a", value=None)])
    batch = bytearray(tombstone)
    batch[27:35] = (-(2**63)).to_bytes(8, "big", signed=True)
    log.append_bytes(_with_attributes(batch, 0))
    log.roll()
    _assert_cannot_clean(log, "timestamp")


# -- unusual batches ------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Compression))
def test_batches_larger_than_a_chunk_are_cleaned(codec: Compression) -> None:
    chance = random.Random(3)
    log = CompactedLog()
    for number in range(6):
        value = chance.randbytes(3 * MIB // 2)
        log.append((b"k%d" % (number % 3), value), (b"x", b""), compression=codec)
    log.roll()
    before = {one.key: one for one in log.records()}
    log.compact()
    assert {one.key: one for one in log.records()} == before
    assert len(log.records()) == 4


def test_key_of_a_mebibyte_is_a_key() -> None:
    log = CompactedLog()
    keys = [bytes(MIB), bytes(MIB - 1) + b"\1", bytes(MIB)]
    for number, key in enumerate(keys):
        log.append((key, b"%d" % number))
    log.roll()
    log.compact()
    assert [(one.offset, one.value) for one in log.records()] == [(1, b"1"), (2, b"2")]


@pytest.mark.parametrize("chunk_bytes", [1, 60, 61, 62, 100, 255, 256, 1000])
def test_batches_may_lie_anywhere_in_the_chunks(
    chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = _log()
    expected.compact()
    monkeypatch.setattr(cleaning, "_CHUNK_BYTES", chunk_bytes)
    log = _log()
    log.compact()
    assert log.batches() == expected.batches()


def test_segment_may_be_larger_than_its_noted_size() -> None:
    """Bytes after the noted size are not part of the segment."""
    log, expected = _log(), _log()
    expected.compact()
    _overwrite(log, 2, log.read(log.sealed[2]) + bytes(100))
    log.compact()
    assert log.batches() == expected.batches()


def test_sparse_offsets_and_append_times_are_kept() -> None:
    log = CompactedLog()
    base = 2**40
    log.end_offset = log._base_offset = log.first_dirty_offset = base
    records = [Record(base + n * 10**9, 5, b"k%d" % (n % 2), b"%d" % n) for n in range(3)]
    batch = build_batch(
        records,
        base_offset=base,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        partition_leader_epoch=9,
    )
    log.append_bytes(batch)
    log.roll()
    log.compact()
    assert [(one.offset, one.value) for one in log.records()] == [
        (base + 10**9, b"1"),
        (base + 2 * 10**9, b"2"),
    ]
    [stored] = log.batches()
    assert stored.leader_epoch == 9
    assert stored.last_offset == base + 2 * 10**9


# -- disk -----------------------------------------------------------------------------------------


def test_error_at_any_operation_leaves_the_log_and_no_new_files() -> None:
    complete = _log()
    complete.files.operations = 0
    list(clean(complete.files, complete.request()))
    for number in range(1, complete.files.operations + 1):
        log = _log()
        before = log.contents()
        log.files.operations = 0
        log.files.fail_at(number, errno.EIO)
        reports: list[Report] = []
        with pytest.raises(OSError, match="Input/output error"):
            reports.extend(clean(log.files, log.request()))
        # Those that were complete before the error: `extend` keeps them.
        done = {f"{one.base_offset:020d}" for one in reports if isinstance(one, Replacement)}
        after = log.contents()
        assert {name: after[name] for name in before} == before
        assert {name[:20] for name in after if name not in before} == done


def test_full_disk_is_reported_and_the_new_files_are_removed() -> None:
    log = _log()
    before = log.contents()
    log.files.capacity_bytes = log.files.used_bytes + 100
    with pytest.raises(OSError, match="No space left"):
        list(clean(log.files, log.request()))
    assert log.contents() == before


def test_reported_segments_survive_a_power_loss() -> None:
    chance = random.Random(5)
    for _ in range(20):
        log = _log()
        new: list[Replacement] = []
        expected: dict[str, bytes] = {}
        for report in clean(log.files, log.request()):
            if isinstance(report, Replacement):
                new.append(report)
                expected = log.contents()
                if chance.random() < 0.3:
                    break
        names = {f"{one.base_offset:020d}" for one in new}
        log.files = log.files.crash(chance)
        after = log.contents()
        complete = {name: data for name, data in expected.items() if name[:20] in names}
        assert any(name.endswith(".log.cleaned") for name in complete)
        assert {name: after.get(name) for name in complete} == complete
