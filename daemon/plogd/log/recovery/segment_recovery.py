"""Check a segment's batches one by one, and recover a segment after a crash.

For each batch, recovery checks the size, the checksum and the order of offsets. It truncates the
segment at the first invalid batch, because a crash may leave the end torn, zeroed or stale. Records
below `keep_below_offset` are known to have been durable. An invalid batch among them is bit rot,
not a torn tail: the damaged bytes are kept and recorded, and scanning continues after them, so that
all other records can be read.

log_recovery.py selects the segments to recover and calls this module in a job; index_rebuild.py
scans segments in use. This module also replays the headers of a valid segment to restore producer
state and leader epochs.

Source: Kafka 3.9 LogSegment.recover. Invariant: after recovery, ``[0, size_bytes)`` consists of
valid batches in ascending offset order, except for `corrupt_ranges`, and all index entries refer to
valid batches.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import TypeVar

from plog.errors import CorruptMessage
from plog.records.batch import (
    ATTRIBUTES_POSITION,
    HEADER_SIZE,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    CorruptRecords,
    parse_header,
)
from plog.records.crc32c import crc32c
from plogd.log.io_errors import is_refusal
from plogd.log.leader_epochs import LeaderEpochs
from plogd.log.producer_state import ProducerStateManager
from plogd.log.recovery.batch_run import BatchRun, check_run
from plogd.log.recovery.load_progress import LoadWork
from plogd.log.segment.file_records import CorruptRange, FileRecords
from plogd.log.segment.index_file import MAX_RELATIVE_OFFSET
from plogd.log.segment.log_segment import LogSegment
from plogd.log.segment.transaction_index import AbortedTransaction

T = TypeVar("T")
_CHUNK_BYTES = 1 << 20
_SEARCH_BYTES = 64 * 1024
"""Number of bytes read in each step of the search for the next valid batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredSegment:
    """The result of recovering one segment."""

    next_offset: int
    """The offset after the last batch; the base offset if the segment is empty."""
    truncated_bytes: int
    reason: str
    """The reason for the truncation; "" if nothing was truncated."""
    corrupt_ranges: tuple[CorruptRange, ...]
    """Damage that was kept."""
    has_producers: bool = True
    """Whether an idempotent producer may have sent a batch."""


def run_steps(steps: Generator[None, None, T]) -> T:
    """Run all steps of a generator, and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def recover_steps(
    segment: LogSegment,
    *,
    keep_below_offset: int,
    following_base_offset: int | None = None,
    may_have_gaps: bool = False,
    uncached_from_offset: int | None = None,
    on_batch: Callable[[int, BatchHeader], None],
    is_epoch_known: Callable[[BatchHeader], bool] = lambda header: False,
    on_scanned: Callable[[], None] = lambda: None,
    work: LoadWork | None = None,
) -> Generator[None, None, RecoveredSegment]:
    """Check a segment, truncate it at the end of its valid batches, and rebuild its indexes.

    `following_base_offset` is the base offset of the next segment, if any; `may_have_gaps` is set
    if compaction may have removed records. Batches from `uncached_from_offset` on are read from the
    disk, not from the page cache. `on_batch` is called with the position and header of each valid
    batch, in order. After a batch for which `is_epoch_known` returns True, ordinary batches of the
    same epoch are skipped (batch_run.py). `on_scanned` is called before the indexes are complete.
    Reads the whole segment, and counts the bytes in `work`. If the work is stopped, the next
    startup recovers the segment again. Yields after each MiB. Raises OSError or LoadingStopped.
    """
    work = work or LoadWork()
    scanned_bytes, size_bytes = work.scanned_bytes, segment.size_bytes
    scan = SegmentScan(
        segment.records,
        segment.base_offset,
        keep_below_offset=keep_below_offset,
        following_base_offset=following_base_offset,
        may_have_gaps=may_have_gaps,
        uncached_from_offset=uncached_from_offset,
    )
    segment.reset_indexes()  # Old entries may lead to bytes that are truncated later.
    has_producers = yield from _scan(segment, scan, on_batch, is_epoch_known, work)
    work.scanned_to(scanned_bytes + size_bytes)
    corrupt = scan.corrupt_ranges
    truncated_bytes = segment.records.truncate(scan.position)
    segment.records.corrupt_ranges = corrupt
    # A process that was killed leaves the space that it has reserved.
    segment.trim()
    on_scanned()
    try:
        if segment.size_bytes:  # Without records, the segment needs no index files yet.
            segment.on_become_inactive()
    except OSError as error:
        if not is_refusal(error):  # On a full disk, the clean stop adds the entry.
            raise
        segment.indexes.lacks_last_entry = True
    return RecoveredSegment(
        next_offset=scan.next_offset,
        truncated_bytes=truncated_bytes,
        reason=scan.reason if truncated_bytes else "",
        corrupt_ranges=tuple(corrupt),
        has_producers=has_producers,
    )


def _scan(
    segment: LogSegment,
    scan: SegmentScan,
    on_batch: Callable[[int, BatchHeader], None],
    is_epoch_known: Callable[[BatchHeader], bool],
    work: LoadWork,
) -> Generator[None, None, bool]:
    """Scan a segment and fill its indexes; return whether it has idempotent producers."""
    scanned_bytes = work.scanned_bytes
    step_position, has_producers = _CHUNK_BYTES, False
    for found in scan.steps():
        work.scanned_to(scanned_bytes + scan.position)
        if scan.position >= step_position:
            step_position = scan.position + _CHUNK_BYTES
            yield
        if found is None:
            continue
        position, header = found
        segment.indexes.add_found(position, header, always=scan.is_after_damage)
        on_batch(position, header)
        has_producers = has_producers or header.has_producer_id
        if is_epoch_known(header):
            until_position = segment.indexes.next_entry_position
            run = scan.take_run(header.partition_leader_epoch, until_position)
            segment.indexes.note_timestamp(run.max_timestamp, run.offset_of_max_timestamp)
            has_producers = has_producers or run.has_producers
    return has_producers


def replay_segment(
    segment: LogSegment, from_offset: int, on_batch: Callable[[int, BatchHeader], None]
) -> None:
    """Call `on_batch` with each batch of a segment that ends at or after `from_offset`.

    Reads only headers, and skips known damage. Raises OSError, or CorruptMessage for other damage.
    """
    place = segment.find_offset(from_offset)
    start = segment.size_bytes if place is None else place.position
    for position, header in segment.records.batches_from(start):
        if header.last_offset >= from_offset:
            on_batch(position, header)


def replay_readable(
    segment: LogSegment, from_offset: int, on_batch: Callable[[int, BatchHeader], None]
) -> None:
    """Replay a segment up to the first bytes that are not a batch."""
    # A later read of these bytes reports the damage.
    with contextlib.suppress(CorruptMessage):
        replay_segment(segment, from_offset, on_batch)


def replay_batch(
    segment: LogSegment,
    position: int,
    header: BatchHeader,
    producer_state: ProducerStateManager,
    leader_epochs: LeaderEpochs,
) -> None:
    """Update producer state and leader epochs with a batch found in the log."""
    if header.partition_leader_epoch > leader_epochs.latest_epoch:
        leader_epochs.assign(header.partition_leader_epoch, header.base_offset)
    replay_producers(segment, position, header, producer_state)


def replay_producers(
    segment: LogSegment,
    position: int,
    header: BatchHeader,
    producer_state: ProducerStateManager,
    add_aborted: Callable[[AbortedTransaction], object] = lambda aborted: None,
) -> None:
    """Update producer state with a batch found in the log.

    Calls `add_aborted` with the transaction that the batch aborts.
    """
    if not header.has_producer_id:
        return
    offset = header.base_offset
    if not header.is_control:
        producer_state.update(header, first_offset=offset)
        return
    batch = segment.records.read(position, header.size_bytes)
    # A log must load even if a marker cannot be read; its transaction then stays open.
    with contextlib.suppress(CorruptRecords):
        producer_state.complete_transaction(header, batch, offset, add_aborted)


class SegmentScan:
    """A scan of a segment's batches, in order, which records damage below `keep_below_offset`.

    The scan has covered `position` bytes, and the offsets below `next_offset`. If it ends before
    the end of the file, `reason` describes the problem with the batch at `position`.
    """

    def __init__(
        self,
        records: FileRecords,
        base_offset: int,
        *,
        keep_below_offset: int,
        following_base_offset: int | None,
        may_have_gaps: bool = False,
        uncached_from_offset: int | None = None,
    ) -> None:
        self.position = 0
        self.next_offset = base_offset
        self.corrupt_ranges: list[CorruptRange] = []
        self.is_after_damage = False
        """Whether damage ends where the current batch begins."""
        self.reason = ""
        self._records = records
        self._base_offset = base_offset
        self._keep_below_offset = keep_below_offset
        self._following_base_offset = following_base_offset
        self._may_have_gaps = may_have_gaps
        self._uncached_from_offset = uncached_from_offset
        self._chunk = memoryview(b"")
        self._chunk_position = 0

    def take_run(self, leader_epoch: int, until_position: int) -> BatchRun:
        """Check the ordinary batches up to `until_position`, as far as they have been read.

        Called after a batch of `leader_epoch`, instead of requesting the next one.
        """
        limits = [self._base_offset + MAX_RELATIVE_OFFSET]
        if self._uncached_from_offset is not None:
            limits.append(self._uncached_from_offset)
        start = self._chunk_position
        run = check_run(
            self._chunk,
            self.position - start,
            until_position=until_position - start,
            next_offset=self.next_offset,
            end_offset=min(limits),
            leader_epoch=leader_epoch,
        )
        self.position, self.next_offset = start + run.position, run.next_offset
        return run

    def steps(self) -> Iterator[tuple[int, BatchHeader] | None]:
        """Yield the position and header of each valid batch, and None between steps of a search.

        The scanned bytes must not change during the scan.
        """
        while self.position < self._records.size_bytes:
            position, next_offset = self.position, self.next_offset
            if self._uncached_from_offset is not None and (
                next_offset >= self._uncached_from_offset
            ):
                self._uncached_from_offset = None
                self._records.file.drop_cache(position)
                self._chunk = memoryview(b"")
            header = self.valid_batch(position, next_offset)
            if header is not None and not self._is_misplaced(position, header, next_offset):
                self.is_after_damage = (
                    bool(self.corrupt_ranges) and self.corrupt_ranges[-1].end_position == position
                )
                self.position, self.next_offset = position + header.size_bytes, header.next_offset
                yield position, header
                continue
            if next_offset >= self._keep_below_offset:
                return  # A torn tail: nothing from here on was acknowledged.
            damaged = yield from self._damaged_range(position, next_offset)
            self.corrupt_ranges.append(damaged)
            self.position, self.next_offset = damaged.end_position, damaged.end_offset

    def valid_batch(self, position: int, expected_offset: int) -> BatchHeader | None:
        """Return the header of the batch at `position` if the batch and its offsets are valid."""
        header = self._plausible_header(position, expected_offset)
        if header is not None and self._crc(position, header) != header.crc:
            self.reason = f"the batch at byte {position} fails its checksum"
            return None
        return header

    def _is_misplaced(self, position: int, header: BatchHeader, expected_offset: int) -> bool:
        """Return whether an otherwise valid batch has a wrong base offset."""
        # The checksum does not cover the base offset. Compaction leaves gaps, so a base offset
        # above the expected offset may be right. It is wrong if the batch would then end after the
        # next batch or segment begins. It is also wrong if the batch would skip the last
        # acknowledged offsets, because compaction never removes the last batch, and acknowledged
        # records form whole batches.
        if header.base_offset == expected_offset:
            return False
        # The next batch is checked against `expected_offset`, because the offsets in this header
        # may be wrong.
        following = self.valid_batch(position + header.size_bytes, expected_offset)
        end_offset = self._following_base_offset if following is None else following.base_offset
        keep_below_offset = self._keep_below_offset
        leaps = following is None and expected_offset < keep_below_offset < header.next_offset
        # The high watermark of a follower may be in a gap that compaction left at its leader.
        if self._may_have_gaps and header.base_offset >= keep_below_offset:
            leaps = False
        self.reason = f"the batch at byte {position} cannot have offset {header.base_offset}"
        return leaps or (end_offset is not None and header.next_offset > end_offset)

    def _plausible_header(self, position: int, expected_offset: int) -> BatchHeader | None:
        data = self._at(position, HEADER_SIZE)
        if len(data) < HEADER_SIZE:
            self.reason = f"the file ends inside the batch header at byte {position}"
            return None
        header = parse_header(data)
        if header.magic != MAGIC or header.size_bytes < HEADER_SIZE:
            self.reason = f"there is no batch at byte {position}"
        elif position + header.size_bytes > self._records.size_bytes:
            self.reason = f"the file ends inside the batch at byte {position}"
        elif not self._fits(header, expected_offset):
            self.reason = (
                f"the batch at byte {position} has offsets {header.base_offset} to"
                f" {header.last_offset}, but should start at offset {expected_offset}"
            )
        else:
            return header
        return None

    def _fits(self, header: BatchHeader, expected_offset: int) -> bool:
        # An append never exceeds MAX_RELATIVE_OFFSET, because index entries cannot.
        return (
            header.base_offset >= expected_offset
            and header.last_offset_delta >= 0
            and header.last_offset - self._base_offset <= MAX_RELATIVE_OFFSET
        )

    def _crc(self, position: int, header: BatchHeader) -> int:
        end = position + header.size_bytes
        position += ATTRIBUTES_POSITION
        crc = 0
        while position < end:
            # In pieces, because a batch can be larger than a chunk.
            piece = self._at(position, min(end - position, _CHUNK_BYTES))
            crc = crc32c(piece, crc)
            position += len(piece)
        return crc

    def _at(self, position: int, length: int) -> memoryview:
        """Return `length` bytes from `position`, or fewer at the end of the file."""
        start = position - self._chunk_position
        if start < 0 or start + length > len(self._chunk):
            wanted = max(length, _CHUNK_BYTES)
            self._chunk = memoryview(self._records.read(position, wanted))
            self._chunk_position, start = position, 0
        return self._chunk[start : start + length]

    def _damaged_range(
        self, position: int, expected_offset: int
    ) -> Generator[None, None, CorruptRange]:
        """Return the range from `position` to the next valid batch, or to the end of the file.

        If the damaged batch's header leads to a valid batch, or to the end of the file, the range
        ends there. Otherwise, every byte is tried as the beginning of a valid batch.
        """
        # Damage up to the end of the file covers all offsets below `keep_below_offset`. If the
        # offsets in a damaged header were used, the log might continue at an offset that was never
        # written.
        end_offset_at_end = self._keep_below_offset
        header = self._plausible_header(position, expected_offset)
        if header is not None:
            end_position, end_offset = position + header.size_bytes, header.next_offset
            if end_position == self._records.size_bytes:
                return CorruptRange(position, end_position, expected_offset, end_offset_at_end)
            # The length in a damaged header is used only if it leads to a valid batch.
            following = self.valid_batch(end_position, end_offset)
            if following is not None:
                return CorruptRange(position, end_position, expected_offset, following.base_offset)
        # The length may be wrong, so the next batch may begin anywhere.
        for start in self._candidates(position + 1):
            if start is None:
                yield
                continue
            following = self.valid_batch(start, expected_offset)
            if following is not None:
                return CorruptRange(position, start, expected_offset, following.base_offset)
        return CorruptRange(position, self._records.size_bytes, expected_offset, end_offset_at_end)

    def _candidates(self, position: int) -> Iterator[int | None]:
        """Yield positions at which a batch may begin, and None after each step."""
        while window := self._records.read(position + MAGIC_POSITION, _SEARCH_BYTES):
            # The search looks for the magic byte. A single byte cannot span two windows.
            index = window.find(MAGIC)
            while index >= 0:
                yield position + index
                index = window.find(MAGIC, index + 1)
            position += len(window)
            yield None
