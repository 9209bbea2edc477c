"""``plog dump-log`` for one ``.log`` file or metadata snapshot: print its batches and records.

A file is read batch by batch, so memory use does not depend on its size. A batch with a wrong
checksum is marked as invalid, but its records are printed. A batch that cannot be parsed is
reported as damage; the dump continues after it if its end is known. command.py calls `dump_log`.
"""

from __future__ import annotations

import os
import posixpath
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final, NamedTuple, TypeAlias

from plog.errors import PlogError
from plog.records.batch import (
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    MAX_SEQUENCE,
    BatchHeader,
    Compression,
    TimestampType,
    crc_is_valid,
    parse_header,
    read_size_and_magic,
)
from plog.records.codec import Record
from plog.records.control import ControlType, decode_control_key, decode_end_txn_value
from plog.records.legacy import LEGACY_MAGICS, LegacyBatch, read_legacy_batch
from plog.records.reader import read_records
from plog.wire.as_json import as_json, compact_json
from plog.wire.internal.raft_records import RAFT_RECORDS, decode_raft_record
from plogd.log.file_names import LOG_SUFFIX
from plogd.metadata.snapshot_name import parse_snapshot_name
from plogd.tools.dump.problem_report import ProblemReport, absolute

CHECKPOINT_SUFFIX: Final = ".checkpoint"
NO_LIMIT: Final = 0x7FFFFFFF
"""Java's Integer.MAX_VALUE, the default of Kafka's tool for --max-bytes."""
_BOOTSTRAP = "bootstrap.checkpoint"
_HEAD_BYTES = MAGIC_POSITION + 1
_LEGACY_ATTRIBUTES = MAGIC_POSITION + 1
_MIN_LENGTH = 14
"""Size in bytes of the smallest message (magic 0), without its offset and size fields."""

_TIMESTAMP_TYPE = {
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}
_RAFT_TITLES = {
    ControlType.LEADER_CHANGE: "LeaderChange:",
    ControlType.SNAPSHOT_HEADER: "SnapshotHeader",
    ControlType.SNAPSHOT_FOOTER: "SnapshotFooter",
    ControlType.KRAFT_VERSION: "KRaftVersion",
    ControlType.KRAFT_VOTERS: "KRaftVoters",
}

Decode: TypeAlias = Callable[[Record], tuple[str | None, str | None]]
"""Converts a record to the text of its key and value; None means that nothing is printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOptions:
    """Options that control what is printed for each record."""

    print_contents: bool
    deep: bool
    skip_metadata: bool
    max_bytes: int
    decode: Decode


class RawBatch(NamedTuple):
    """The bytes of one batch, and their position in the file."""

    position: int
    magic: int
    data: bytes


class Unreadable(PlogError):
    """The bytes at `position` are not a batch."""

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(f"byte {position}: {problem}")
        self.position = position


def raw_batches(file: BinaryIO, start: int, end: int) -> Iterator[RawBatch]:
    """Yield the complete batches between two positions, without a truncated last batch.

    Raises Unreadable.
    """
    position = start
    while end - position > _HEAD_BYTES:
        # pread, because several iterators of indexes.py read the same file.
        head = os.pread(file.fileno(), _HEAD_BYTES, position)
        size, magic = read_size_and_magic(head)
        # A preallocated file ends in zeros (Kafka's setting log.preallocate).
        if size < LOG_OVERHEAD + _MIN_LENGTH:
            what = "zeros" if not any(head) else f"a batch size of {size} bytes"
            raise Unreadable(position, f"found {what} instead of a batch")
        # After a crash, a truncated last batch is normal.
        if size > end - position:
            return
        if magic not in (*LEGACY_MAGICS, MAGIC):
            raise Unreadable(position, f"a batch has the unknown magic {magic}")
        if magic == MAGIC and size < HEADER_SIZE:
            raise Unreadable(position, f"a batch of {size} bytes is shorter than its header")
        yield RawBatch(position, magic, os.pread(file.fileno(), size, position))
        position += size


def dump_log(path: str, options: RecordOptions, findings: ProblemReport) -> Iterator[str]:
    """Yield the lines to print for a ``.log`` or ``.checkpoint`` file."""
    name = posixpath.basename(path)
    yield _head_line(path, name)
    dump = _Dump(path, options, findings)
    with open(path, "rb") as file:
        # Determined once, because a running broker may still append to the file.
        size = os.fstat(file.fileno()).st_size
        valid_bytes = 0
        try:
            for batch in raw_batches(file, 0, min(size, options.max_bytes)):
                yield from dump.batch(batch)
                valid_bytes = batch.position + len(batch.data)
        except Unreadable as error:
            findings.add_damage(path, str(error))
    # With a limit, the bytes after it were not read.
    if valid_bytes < size and options.max_bytes == NO_LIMIT:
        yield f"Found {size - valid_bytes} invalid bytes at the end of {name}"


def _head_line(path: str, name: str) -> str:
    if name.endswith(LOG_SUFFIX):
        return f"Log starting offset: {base_offset(path)}"
    if name == _BOOTSTRAP:
        return "KRaft bootstrap snapshot"
    snapshot = parse_snapshot_name(name)
    if snapshot is None:
        raise PlogError(
            f"{path}: not the name of a snapshot; it must look like"
            " 00000000000000000042-0000000001.checkpoint"
        )
    return f"Snapshot end offset: {snapshot.end_offset}, epoch: {snapshot.epoch}"


def base_offset(path: str) -> int:
    """Return the base offset in the name of a segment file. Raises PlogError."""
    name = posixpath.basename(path)
    digits = name.partition(".")[0]
    if not digits.isdigit():
        raise PlogError(f"{path}: not a segment file: its name does not start with a base offset")
    return int(digits)


class _Dump:
    """The dump of one file, with the last offset that it has printed."""

    def __init__(self, path: str, options: RecordOptions, findings: ProblemReport) -> None:
        self._path = path
        self._options = options
        self._findings = findings
        self._last_offset: int | None = -1

    def batch(self, raw: RawBatch) -> Iterator[str]:
        """Yield the lines to print for one batch."""
        try:
            if raw.magic == MAGIC:
                yield from self._batch(raw)
            else:
                yield from self._legacy(raw)
        except PlogError as error:
            problem = f"cannot read the batch at byte {raw.position}: {error}"
            self._findings.add_damage(self._path, problem)
            # The offsets missing because of unreadable records are part of the same damage, so they
            # are not reported as non-consecutive.
            self._last_offset = None

    def _batch(self, raw: RawBatch) -> Iterator[str]:
        header = parse_header(raw.data)
        yield batch_line(raw, header)
        if not self._options.deep:
            return
        for record in read_records(raw.data, 0, header):
            self._check_offset(record.offset)
            yield self._record_line(record, header)

    def _legacy(self, raw: RawBatch) -> Iterator[str]:
        crc = int.from_bytes(raw.data[LOG_OVERHEAD:MAGIC_POSITION], "big")
        is_valid = zlib.crc32(raw.data[MAGIC_POSITION:]) == crc
        yield legacy_line(raw, crc, is_valid)
        if not self._options.deep:
            return
        batch = read_legacy_batch(raw.data)
        for record in batch.records:
            self._check_offset(record.offset)
            yield self._legacy_record_line(record, batch, crc)

    def _check_offset(self, offset: int) -> None:
        if self._last_offset is not None and offset != self._last_offset + 1:
            pairs = self._findings.non_consecutive.setdefault(absolute(self._path), {})
            pairs[self._last_offset] = offset
        self._last_offset = offset

    def _record_line(self, record: Record, header: BatchHeader) -> str:
        parts = []
        if not self._options.skip_metadata:
            parts.append(_record_metadata(record, _TIMESTAMP_TYPE[header.timestamp_type]))
            # Without spaces, as Scala's mkString("[", ",", "]") formats the keys.
            keys = ",".join(map(_printable, (key for key, _ in record.headers)))
            parts.append(f" sequence: {_sequence(record, header)} headerKeys: [{keys}]")
            if header.is_control:
                parts.append(control_text(record))
        # Control records are shown as text above, and decoders cannot read them.
        if self._options.print_contents and not header.is_control:
            parts.append(self._contents(record))
        return "".join(parts)

    def _legacy_record_line(self, record: Record, batch: LegacyBatch, crc: int) -> str:
        parts = []
        if not self._options.skip_metadata:
            timestamp_type = _legacy_timestamp_type(batch.magic, batch.timestamp_type)
            parts.append(_record_metadata(record, timestamp_type))
            # The checksum in the wrapper of compressed messages is not that of a single message.
            if len(batch.records) == 1 and not batch.compression:
                parts.append(f" isValid: true crc: {crc}")
        if self._options.print_contents:
            parts.append(self._contents(record))
        return "".join(parts)

    def _contents(self, record: Record) -> str:
        prefix = "| " if self._options.skip_metadata else " "
        key, value = self._options.decode(record)
        text = ""
        if key is not None:
            text, prefix = f"{prefix}key: {key}", " "
        if value is not None:
            text += f"{prefix}payload: {value}"
        return text


def batch_line(raw: RawBatch, header: BatchHeader) -> str:
    """Return the line for a batch (magic 2), in the format of Kafka's tool."""
    horizon = "OptionalLong.empty"
    # With this bit, the base timestamp is the time after which compaction removes tombstones
    # (KIP-534).
    if header.attributes & DELETE_HORIZON_BIT:
        horizon = f"OptionalLong[{header.base_timestamp}]"
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset}"
        f" count: {header.records_count} baseSequence: {header.base_sequence}"
        f" lastSequence: {header.last_sequence} producerId: {header.producer_id}"
        f" producerEpoch: {header.producer_epoch}"
        f" partitionLeaderEpoch: {header.partition_leader_epoch}"
        f" isTransactional: {_java(header.is_transactional)}"
        f" isControl: {_java(header.is_control)} deleteHorizonMs: {horizon}"
        f" position: {raw.position}"
        f" {_TIMESTAMP_TYPE[header.timestamp_type]}: {header.max_timestamp}"
        f" size: {header.size_bytes} magic: {header.magic}"
        f" compresscodec: {header.compression.name.lower()} crc: {header.crc}"
        f" isvalid: {_java(crc_is_valid(raw.data, 0, header))}"
    )


def legacy_line(raw: RawBatch, crc: int, is_valid: bool) -> str:
    """Return the line for a message or wrapper (magic 0 or 1), in the format of Kafka's tool."""
    offset = int.from_bytes(raw.data[:8], "big", signed=True)
    attributes = raw.data[_LEGACY_ATTRIBUTES]
    timestamp = -1
    if raw.magic:
        # In magic 1, the timestamp follows the offset, the size, the checksum, the magic and the
        # attributes.
        timestamp = int.from_bytes(raw.data[18:26], "big", signed=True)
    log_append_time = attributes & LOG_APPEND_TIME_BIT != 0
    compression = Compression(attributes & COMPRESSION_MASK)
    return (
        f"offset: {offset} position: {raw.position}"
        f" {_legacy_timestamp_type(raw.magic, TimestampType(log_append_time))}: {timestamp}"
        f" size: {len(raw.data)} magic: {raw.magic} compresscodec: {compression.name.lower()}"
        f" crc: {crc} isvalid: {_java(is_valid)}"
    )


def _legacy_timestamp_type(magic: int, timestamp_type: TimestampType) -> str:
    return _TIMESTAMP_TYPE[timestamp_type] if magic else "NoTimestampType"


def _record_metadata(record: Record, timestamp_type: str) -> str:
    return (
        f"| offset: {record.offset} {timestamp_type}: {record.timestamp}"
        f" keySize: {_size(record.key)} valueSize: {_size(record.value)}"
    )


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _sequence(record: Record, header: BatchHeader) -> int:
    if header.base_sequence < 0:
        return -1
    # After the largest sequence number, a producer continues with 0.
    return (header.base_sequence + record.offset - header.base_offset) & MAX_SEQUENCE


def control_text(record: Record) -> str:
    """Return the contents of a control record as text. Raises PlogError."""
    kind = decode_control_key(record.key)
    if kind in (ControlType.ABORT, ControlType.COMMIT):
        epoch = decode_end_txn_value(record.value)
        return f" endTxnMarker: {kind.name} coordinatorEpoch: {epoch}"
    if kind in RAFT_RECORDS:
        message, version = decode_raft_record(kind, record.value)
        return f" {_RAFT_TITLES[kind]} {compact_json(as_json(message, version))}"
    # The key of a control record is a version and a type, each an int16.
    number = int.from_bytes((record.key or b"")[2:4], "big", signed=True)
    return f" controlType: {kind.name}({number})"


def _printable(text: str) -> str:
    # A header key that is not UTF-8 contains surrogates, which cannot be printed.
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _java(value: bool) -> str:
    return "true" if value else "false"
