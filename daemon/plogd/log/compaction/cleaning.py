"""Compact the segments of one log: read them, and write new segments beside them.

`clean` is a pure function over files, which runs in a child process (plogd/work.py), because it
needs as much CPU time as it can get. It first notes the last offset of each key in the uncompacted
part of the log (plog/records/offset_map.py). It then copies the log from its beginning, without the
outdated records (batch_filter.py), and joins small segments. It never changes an existing file: the
broker puts the new segments in place (segment_swap.py). If the process is killed, the files that it
leaves are removed, and the next run begins again with the segments that have not been replaced.

Source: Kafka 3.9 Cleaner; the record keys and offsets as in KIP-98 and KIP-534.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from plog.errors import CorruptMessage, InvalidTimestamp, PlogError, UnsupportedCompressionType
from plog.records.batch import HEADER_SIZE, BatchHeader, crc_is_valid, parse_header
from plog.records.codec import decode_spans
from plog.records.control import read_markers
from plog.records.offset_map import OffsetMap
from plog.records.reader import read_payload
from plog.records.record_spans import RecordSpans
from plogd.log.compaction.batch_filter import BatchFilter, LastRecord
from plogd.log.compaction.cleaned_segment import CleanedSegment
from plogd.log.compaction.cleaned_transactions import CleanedTransactions
from plogd.log.file_names import LOG_SUFFIX, segment_path
from plogd.log.segment.index_file import MAX_RELATIVE_OFFSET
from plogd.log.segment.time_index import TimeIndex
from plogd.log.segment.transaction_index import AbortedTransaction
from plogd.ports import Files
from plogd.topic_config import TopicConfig

SLICE_BYTES = 64 << 20
"""Number of bytes that are read between two reports of progress."""
_CHUNK_BYTES = 1 << 20


class CannotClean(PlogError):
    """A log cannot be compacted. The message states the reason and the remedy."""


class SourceSegment(NamedTuple):
    """A segment to compact; `end_offset` is where the next one begins."""

    base_offset: int
    end_offset: int
    size_bytes: int


class CleaningRequest(NamedTuple):
    """A log to compact: plain data, because another process receives it."""

    directory: str
    segments: Sequence[SourceSegment]
    """All segments of the range, oldest first."""
    first_dirty_offset: int
    """The end of the part that is compacted already."""
    config: TopicConfig
    producers: Mapping[int, LastRecord]
    aborted: Sequence[AbortedTransaction]
    """The aborted transactions with records in the range; their markers may follow it."""
    now_ms: int
    max_map_bytes: int
    load_factor: float
    max_decompressed_bytes: int


class Read(NamedTuple):
    """Progress: bytes that were read and written since the last report."""

    read_bytes: int
    written_bytes: int


class Replacement(NamedTuple):
    """A new segment that is complete and durable, and the base offsets of those it replaces."""

    base_offset: int
    size_bytes: int
    sources: Sequence[int]


class Cleaned(NamedTuple):
    """The result: the log is compacted up to `end_offset`."""

    end_offset: int
    map_utilization: float
    keyless_records: int


Report: TypeAlias = Read | Replacement | Cleaned


def clean(files: Files, request: CleaningRequest) -> Generator[Report, None, None]:
    """Compact a log; yield what has been done, after at most `SLICE_BYTES`.

    Raises CannotClean, or OSError.
    """
    try:
        yield from _clean(files, request)
    except (CorruptMessage, InvalidTimestamp, UnsupportedCompressionType) as error:
        raise CannotClean(f"the log is damaged: {error}") from error


def _clean(files: Files, request: CleaningRequest) -> Generator[Report, None, None]:
    offsets = OffsetMap(
        max_bytes=request.max_map_bytes,
        load_factor=request.load_factor,
        max_keys=request.segments[-1].end_offset - request.first_dirty_offset,
    )
    end_offset = yield from _note_keys(files, request, offsets)
    transactions = _transactions_from(request, request.segments[0].base_offset)
    batch_filter = BatchFilter(
        offsets,
        transactions,
        request.producers,
        latest_end=end_offset,
        end_offset=end_offset,
        now_ms=request.now_ms,
        delete_retention_ms=request.config.delete_retention_ms,
        max_decompressed_bytes=request.max_decompressed_bytes,
    )
    for group in group_segments(request.segments, end_offset, joined_bytes(request.config)):
        yield from _clean_group(files, request, group, batch_filter, transactions)
    yield Cleaned(end_offset, offsets.utilization, batch_filter.keyless_records)


def joined_bytes(config: TopicConfig) -> int:
    """Return the largest size of joined segments: that of a segment, or of one with full indexes.

    >>> joined_bytes(TopicConfig(segment_bytes=10**9, index_interval_bytes=4096))
    1000000000
    >>> joined_bytes(TopicConfig(index_interval_bytes=4096, segment_index_bytes=1200))
    405504
    """
    # Two entries are more than the interval apart. The last one is reserved for the roll.
    entries = config.segment_index_bytes // TimeIndex.LAYOUT.size - 1
    return min(config.segment_bytes, entries * max(config.index_interval_bytes, HEADER_SIZE))


def group_segments(
    segments: Sequence[SourceSegment], end_offset: int, max_bytes: int
) -> list[Sequence[SourceSegment]]:
    """Group adjacent segments that have at most `max_bytes` together, below `end_offset`.

    >>> small = [SourceSegment(n, n + 10, 40) for n in range(0, 50, 10)]
    >>> [[one.base_offset for one in group] for group in group_segments(small, 45, 100)]
    [[0, 10], [20, 30], [40]]
    """
    groups: list[list[SourceSegment]] = []
    size_bytes = 0
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        fits = groups and (
            size_bytes + segment.size_bytes <= max_bytes
            # Index entries can only represent an int32.
            and segment.end_offset - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET
        )
        if fits:
            groups[-1].append(segment)
            size_bytes += segment.size_bytes
        else:
            groups.append([segment])
            size_bytes = segment.size_bytes
    return list(groups)


def _note_keys(
    files: Files, request: CleaningRequest, offsets: OffsetMap
) -> Generator[Report, None, int]:
    """Note the last offset of each key in the dirty part; return the end of the noted part."""
    start = request.first_dirty_offset
    dirty = [one for one in request.segments if one.end_offset > start]
    transactions = _transactions_from(request, dirty[0].base_offset)
    spans = RecordSpans()
    end_offset, read_bytes = start, 0
    for segment in dirty:
        for batch, header in _batches(files, request.directory, segment):
            read_bytes += len(batch)
            if read_bytes >= SLICE_BYTES:
                yield Read(read_bytes, 0)
                read_bytes = 0
            if header.is_control:
                transactions.is_marker_unused(header, list(read_markers(batch, header)))
            elif (
                not transactions.is_aborted(header)
                and header.last_offset >= start
                and not _note_batch(request, batch, header, offsets, spans)
            ):
                return _end_of_full_map(request, header, end_offset)
            end_offset = max(end_offset, header.next_offset)
        # The last offsets of a segment may have been compacted away.
        end_offset = segment.end_offset
    yield Read(read_bytes, 0)
    return end_offset


def _note_batch(
    request: CleaningRequest,
    batch: memoryview,
    header: BatchHeader,
    offsets: OffsetMap,
    spans: RecordSpans,
) -> bool:
    """Note the keys of a batch; return False if there is no room for all of them."""
    payload = read_payload(batch, 0, header, max_bytes=request.max_decompressed_bytes)
    decode_spans(payload, header, spans)
    return offsets.put_keys(payload, spans, request.first_dirty_offset)


def _end_of_full_map(request: CleaningRequest, header: BatchHeader, end_offset: int) -> int:
    """Return the end of the part that the map covers; the rest waits for the next run."""
    if end_offset <= request.first_dirty_offset:
        raise CannotClean(
            f"the batch at offset {header.base_offset} has more keys than"
            f" log.cleaner.dedupe.buffer.size={request.max_map_bytes} has room for; increase it"
        )
    return end_offset


def _transactions_from(request: CleaningRequest, offset: int) -> CleanedTransactions:
    return CleanedTransactions([one for one in request.aborted if one.last_offset >= offset])


def _clean_group(
    files: Files,
    request: CleaningRequest,
    group: Sequence[SourceSegment],
    batch_filter: BatchFilter,
    transactions: CleanedTransactions,
) -> Generator[Report, None, None]:
    """Write the segment that replaces `group`, unless it would be the same."""
    cleaned = CleanedSegment(files, request.directory, group[0].base_offset, request.config)
    read_bytes = written_bytes = 0
    is_changed = len(group) > 1
    try:
        for segment in group:
            for batch, header in _batches(files, request.directory, segment):
                kept = batch_filter.filter(batch, header)
                is_changed = is_changed or kept is not batch
                if kept is not None:
                    cleaned.append(kept)
                    written_bytes += len(kept)
                read_bytes += len(batch)
                if read_bytes >= SLICE_BYTES:
                    yield Read(read_bytes, written_bytes)
                    read_bytes = written_bytes = 0
        aborted = transactions.take_kept()
        if is_changed:
            cleaned.finish(aborted)
    except BaseException:
        cleaned.discard()
        raise
    yield Read(read_bytes, written_bytes)
    if is_changed:
        sources = [one.base_offset for one in group]
        yield Replacement(group[0].base_offset, cleaned.size_bytes, sources)
    else:
        cleaned.discard()


def _batches(
    files: Files, directory: str, segment: SourceSegment
) -> Iterator[tuple[memoryview, BatchHeader]]:
    """Yield the batches of a segment with their headers. Raises CorruptMessage, OSError."""
    file = files.open_read(segment_path(directory, segment.base_offset, LOG_SUFFIX))
    try:
        chunk, position = memoryview(b""), 0
        while position + len(chunk) < segment.size_bytes or chunk:
            header = parse_header(chunk) if len(chunk) >= HEADER_SIZE else None
            wanted = HEADER_SIZE if header is None else header.size_bytes
            if len(chunk) < wanted:
                left = segment.size_bytes - position
                # Checked first, so that a damaged length does not read the rest of the segment.
                if wanted <= left:
                    chunk = memoryview(file.pread(min(max(wanted, _CHUNK_BYTES), left), position))
                if len(chunk) < wanted:
                    raise CorruptMessage(f"{file.path} ends inside the batch at byte {position}")
                continue
            assert header is not None
            if not crc_is_valid(chunk, 0, header):
                raise CorruptMessage(f"{file.path}: the batch at byte {position} is damaged")
            yield chunk[:wanted], header
            chunk, position = chunk[wanted:], position + wanted
    finally:
        file.close()
