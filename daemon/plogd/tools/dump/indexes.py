"""Print a segment's offset index, time index, transaction index and producer snapshot.

Index entries are checked against the ``.log`` file in the same directory.
plogd/log/segment/offset_index.py, time_index.py and producer_snapshot.py describe the layouts of
entries; ``_ABORTED`` describes an aborted transaction (KIP-98).
"""

from __future__ import annotations

import os
import posixpath
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import BinaryIO

from plog.errors import PlogError
from plog.records.batch import MAGIC, MAX_SEQUENCE, parse_header
from plog.records.codec import Record
from plog.records.legacy import read_legacy_batch
from plog.records.reader import read_records
from plogd.log.file_names import INDEX_SUFFIX, LOG_SUFFIX
from plogd.log.producer_snapshot import CorruptSnapshot, SnapshotEntry, decode_snapshot
from plogd.log.segment.offset_index import OffsetPosition
from plogd.log.segment.time_index import TimestampOffset
from plogd.tools.dump.log_file import NO_LIMIT, RawBatch, Unreadable, base_offset, raw_batches
from plogd.tools.dump.problem_report import ProblemReport, absolute

_OFFSET_ENTRY, _TIME_ENTRY = Struct(">ii"), Struct(">qi")
# The fields are version, producer id, first offset, last offset and last stable offset.
_ABORTED = Struct(">hqqqq")
_NO_TIMESTAMP = -1  # Kafka's RecordBatch.NO_TIMESTAMP.


def dump_index(
    path: str, findings: ProblemReport, sanity_only: bool, verify_only: bool, max_message_bytes: int
) -> Iterator[str]:
    """Yield the lines to print for an ``.index`` file."""
    base, data = base_offset(path), _read(path)
    entries = _offset_entries(data, base)
    # Opened first, as in Kafka's tool, so a missing .log file is an error even if the index is
    # empty.
    with open(_sibling(path, LOG_SUFFIX), "rb") as log:
        if len(data) < _OFFSET_ENTRY.size:
            yield f"{path} is empty."
            return
        if sanity_only:
            yield from _sanity(path, findings, offset_index_problem(data, base))
            return
        log_bytes = os.fstat(log.fileno()).st_size
        for entry in entries:
            found = _last_offset_at(log, entry.position, log_bytes, max_message_bytes)
            if found is None:
                problem = f"the .log file has no complete batch at byte {entry.position}"
                findings.add_damage(path, problem)
            # An entry contains the last offset of its batch.
            elif found != entry.offset:
                mismatches = findings.index_mismatches.setdefault(absolute(path), {})
                mismatches[entry.offset] = found
            if not verify_only:
                yield f"offset: {entry.offset} position: {entry.position}"


def dump_time_index(
    path: str, findings: ProblemReport, sanity_only: bool, verify_only: bool
) -> Iterator[str]:
    """Yield the lines to print for a ``.timeindex`` file."""
    base, data = base_offset(path), _read(path)
    if sanity_only:
        yield from _sanity(path, findings, time_index_problem(data, base))
        return
    index_path = _sibling(path, INDEX_SUFFIX)
    # The offset index only makes the search faster, so it may be missing.
    offsets = _offset_entries(_read(index_path), base) if os.path.exists(index_path) else []
    previous = _NO_TIMESTAMP
    with open(_sibling(path, LOG_SUFFIX), "rb") as log:
        for entry in _time_entries(data, base):
            try:
                _check_time(path, findings, log, _floor(offsets, entry.offset), entry, previous)
            except PlogError as error:
                problem = f"cannot read offset {entry.offset} of the .log file: {error}"
                findings.add_damage(path, problem)
            if not verify_only:
                yield f"timestamp: {entry.timestamp} offset: {entry.offset}"
            previous = entry.timestamp


def _check_time(
    path: str,
    findings: ProblemReport,
    log: BinaryIO,
    start: int,
    entry: TimestampOffset,
    previous: int,
) -> None:
    """Compare an entry with the batch that it points to. Raises PlogError."""
    end = os.fstat(log.fileno()).st_size
    batches = raw_batches(log, start, end)
    match = next((each for each in batches if _last_offset(each) >= entry.offset), None)
    if match is None or _last_offset(match) != entry.offset:
        logged = -1 if match is None else _last_offset(match)
        findings.offsets_not_found.setdefault(path, []).append((entry.offset, logged))
        return
    newest = max((record.timestamp for record in _records(match)), default=_NO_TIMESTAMP)
    newest = max(newest, _NO_TIMESTAMP)
    if newest != entry.timestamp:
        mismatches = findings.timestamp_mismatches.setdefault(absolute(path), [])
        mismatches.append((entry.timestamp, newest))
    # Equal timestamps are wrong, too: a broker adds an entry only for a larger timestamp.
    if previous >= entry.timestamp:
        disorder = findings.timestamps_out_of_order.setdefault(absolute(path), [])
        disorder.append((entry.timestamp, previous))


def dump_snapshot(path: str, findings: ProblemReport) -> Iterator[str]:
    """Yield the lines to print for a producer ``.snapshot`` file."""
    try:
        entries = decode_snapshot(_read(path))
    except CorruptSnapshot as error:
        findings.add_damage(path, str(error))
        return
    for entry in entries:
        yield snapshot_line(entry)


def snapshot_line(entry: SnapshotEntry) -> str:
    """Return a producer's line in the format of Kafka's tool."""
    transaction = "OptionalLong.empty"
    if entry.current_txn_first_offset >= 0:
        transaction = f"OptionalLong[{entry.current_txn_first_offset}]"
    line = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch}"
        f" coordinatorEpoch: {entry.coordinator_epoch} currentTxnFirstOffset: {transaction}"
        f" lastTimestamp: {entry.timestamp}"
    )
    # A producer that has written only transaction markers has no sequence numbers.
    if entry.last_offset < 0:
        return line
    # Sequence numbers continue with 0 after the largest one.
    first = (entry.last_sequence - entry.offset_delta) & MAX_SEQUENCE
    return line + (
        f" firstSequence: {first} lastSequence: {entry.last_sequence}"
        f" lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta}"
        f" timestamp: {entry.timestamp}"
    )


def dump_txn_index(path: str, findings: ProblemReport) -> Iterator[str]:
    """Yield the lines to print for a ``.txnindex`` file, which lists aborted transactions."""
    data = _read(path)
    whole = len(data) // _ABORTED.size * _ABORTED.size
    for version, producer_id, first, last, stable in _ABORTED.iter_unpack(data[:whole]):
        if version:
            findings.add_damage(path, f"an entry has version {version}; only 0 is supported")
            return
        yield (
            f"version: {version} producerId: {producer_id} firstOffset: {first}"
            f" lastOffset: {last} lastStableOffset: {stable}"
        )
    if whole < len(data):
        findings.add_damage(path, f"{len(data) - whole} bytes follow the last complete entry")


# -- reading -----------------------------------------------------------------------------------


def offset_index_problem(data: bytes, base: int) -> str | None:
    """Return the problem that a broker would find in an offset index at startup, or None."""
    if len(data) % _OFFSET_ENTRY.size:
        return f"{len(data)} bytes are not a multiple of {_OFFSET_ENTRY.size}"
    # With trailing zeros, because a broker also examines the file as it is.
    entries = _offset_entries(data, base, cut=False)

    if entries and entries[-1].offset < base:
        return f"its last offset {entries[-1].offset} is below the base offset {base}"
    return None


def time_index_problem(data: bytes, base: int) -> str | None:
    """Return the problem that a broker would find in a time index at startup, or None."""
    if len(data) % _TIME_ENTRY.size:
        return f"{len(data)} bytes are not a multiple of {_TIME_ENTRY.size}"
    entries = _time_entries(data, base, cut=False)
    if not entries:
        return None
    first, last = entries[0], entries[-1]
    if last.timestamp < first.timestamp:
        return f"its last timestamp {last.timestamp} is below the first, {first.timestamp}"
    if last.offset < base:
        return f"its last offset {last.offset} is below the base offset {base}"
    return None


def _sanity(path: str, findings: ProblemReport, problem: str | None) -> Iterator[str]:
    if problem is None:
        yield f"{path} passed sanity check."
    else:
        remedy = "delete the file; the broker rebuilds it at startup"
        findings.add_damage(path, f"{problem}; {remedy}")


def _offset_entries(data: bytes, base: int, *, cut: bool = True) -> list[OffsetPosition]:
    whole = len(data) // _OFFSET_ENTRY.size * _OFFSET_ENTRY.size
    entries = [
        OffsetPosition(base + offset, position)
        for offset, position in _OFFSET_ENTRY.iter_unpack(data[:whole])
    ]
    return entries[: _used_count(entries, base)] if cut else entries


def _time_entries(data: bytes, base: int, *, cut: bool = True) -> list[TimestampOffset]:
    whole = len(data) // _TIME_ENTRY.size * _TIME_ENTRY.size
    entries = [
        TimestampOffset(timestamp, base + offset)
        for timestamp, offset in _TIME_ENTRY.iter_unpack(data[:whole])
    ]
    return entries[: _used_count(entries, base)] if cut else entries


def _used_count(entries: Sequence[OffsetPosition | TimestampOffset], base: int) -> int:
    """Return the number of entries before the trailing zeros."""
    # An index file that was preallocated and never trimmed ends in zeros, which read as the base
    # offset. Only the first entry may really have this offset.
    zeros = (i for i, entry in enumerate(entries) if i and entry.offset == base)
    return next(zeros, len(entries))


def _floor(entries: Sequence[OffsetPosition], offset: int) -> int:
    """Return a position at or before the start of the batch that contains `offset`."""
    slot = bisect_right(entries, offset, key=lambda entry: entry.offset)
    return entries[slot - 1].position if slot else 0


def _last_offset_at(log: BinaryIO, position: int, log_bytes: int, max_bytes: int) -> int | None:
    """Return the last offset of the batch at a position, or None if no complete batch is there."""
    if not 0 <= position <= log_bytes:
        return None
    try:
        first = next(raw_batches(log, position, min(log_bytes, position + max_bytes)), None)
    except Unreadable:
        return None
    return None if first is None else _last_offset(first)


def _last_offset(raw: RawBatch) -> int:
    if raw.magic == MAGIC:
        return parse_header(raw.data).last_offset
    return int.from_bytes(raw.data[:8], "big", signed=True)


def _records(raw: RawBatch) -> Sequence[Record]:
    if raw.magic == MAGIC:
        return read_records(raw.data, 0, parse_header(raw.data))
    return read_legacy_batch(raw.data).records


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        # Java maps an index as one buffer, so no valid index is larger.
        return file.read(NO_LIMIT)


def _sibling(path: str, suffix: str) -> str:
    stem = posixpath.basename(path).partition(".")[0]
    return posixpath.join(posixpath.dirname(path), stem + suffix)
