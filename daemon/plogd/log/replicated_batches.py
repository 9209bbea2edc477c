"""Check the batches that a follower has fetched from its leader, before the log appends them.

The leader has validated the records and assigned the offsets, so the batches are written as they
are. A follower checks only what the network or a faulty leader can have changed: the framing, the
checksums, and the order of offsets. Offsets may have gaps, because compaction removes records.

Pure: no files, no reactor. `Log.append_as_follower` calls `check_replicated_batches`.

Source: Kafka 3.9 UnifiedLog.appendAsFollower, UnifiedLog.analyzeAndValidateRecords; KAFKA-18723.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from plog.errors import CorruptMessage
from plog.records.batch import BatchHeader, Compression, crc_is_valid, iter_batches
from plog.records.control import read_markers
from plogd.log.segment.index_file import MAX_RELATIVE_OFFSET

_LARGEST_OFFSET = 2**63 - 2
"""The log end offset, which follows the last record, is an int64."""

_BATCHES_PER_WRITE = 256
"""Maximum number of batches that are written together, so that the time of a write shows how fast
the disk is, and not how many batches there were."""


class UnexpectedAppendOffset(CorruptMessage):
    """The first fetched batch begins below the end of the log, and ends at or above it."""

    def __init__(self, header: BatchHeader, next_offset: int) -> None:
        super().__init__(
            f"the first fetched batch has offsets {header.base_offset} to {header.last_offset},"
            f" but must begin at or above offset {next_offset}"
        )
        self.first_offset = header.base_offset
        """The base offset of the batch."""


class ReplicatedBatch(NamedTuple):
    """A whole batch, and its position in the fetched bytes."""

    position: int
    header: BatchHeader

    @property
    def end_position(self) -> int:
        """The position in the fetched bytes at which the batch ends."""
        return self.position + self.header.size_bytes

    def of(self, data: memoryview) -> memoryview:
        """Return the batch's part of the fetched bytes."""
        return data[self.position : self.position + self.header.size_bytes]


def check_replicated_batches(
    data: memoryview, *, next_offset: int, leader_epoch: int
) -> list[ReplicatedBatch]:
    """Return the whole batches in `data`; an incomplete last batch is ignored.

    Offsets must begin at or above `next_offset`, the end of the log, and rise. The batches end
    before the first one with an epoch above `leader_epoch`, in which the records were fetched: that
    leader did not write it. Raises CorruptMessage or UnsupportedForMessageFormat; in particular,
    UnexpectedAppendOffset if the first batch contains `next_offset` (follower_append.py).
    """
    batches: list[ReplicatedBatch] = []
    for position, header in iter_batches(data):
        if header.partition_leader_epoch > leader_epoch:
            break
        contains_end = not batches and 0 <= header.base_offset < next_offset <= header.last_offset
        lowest = header.base_offset if contains_end else next_offset
        if not lowest <= header.base_offset <= header.last_offset <= _LARGEST_OFFSET:
            raise CorruptMessage(
                f"the fetched batch at byte {position} has offsets {header.base_offset} to"
                f" {header.last_offset}, but must begin at or above offset {next_offset}"
            )
        if not crc_is_valid(data, position, header):
            raise CorruptMessage(
                f"the fetched batch at byte {position}, with base offset {header.base_offset},"
                " fails its checksum"
            )
        if contains_end:  # Only now, because the caller may restart the log for this batch.
            raise UnexpectedAppendOffset(header, next_offset)
        batch = ReplicatedBatch(position, header)
        if header.is_control:
            _check_control_batch(data, batch)
        batches.append(batch)
        next_offset = header.next_offset
    return batches


def _check_control_batch(data: memoryview, batch: ReplicatedBatch) -> None:
    """Raise CorruptMessage if the markers in a control batch cannot be read."""
    # Before the append, because it cannot be undone after the batch has been written by a job.
    if batch.header.compression != Compression.NONE:  # Brokers never compress these batches.
        raise CorruptMessage(f"the control batch at byte {batch.position} is compressed")
    for _ in read_markers(batch.of(data), batch.header):
        pass


def segment_base_offset(log_end_offset: int, header: BatchHeader) -> int:
    """Return the base offset of a new segment for a batch that follows `log_end_offset`.

    Usually the log end offset: recovery takes a gap between two segments for lost records.
    """
    if header.last_offset - log_end_offset <= MAX_RELATIVE_OFFSET:
        return log_end_offset
    return header.base_offset


def batches_that_fit(
    batches: Sequence[ReplicatedBatch], *, room_bytes: int, base_offset: int
) -> Sequence[ReplicatedBatch]:
    """Return the first batches that fit into `room_bytes` of a segment, 1 to 256 batches.

    `base_offset` is the segment's, from which index entries can only represent an int32.
    """
    start = batches[0].position
    for number, batch in enumerate(batches[1:], 1):
        if (
            number == _BATCHES_PER_WRITE
            or batch.end_position - start > room_bytes
            or batch.header.last_offset - base_offset > MAX_RELATIVE_OFFSET
        ):
            return batches[:number]
    return batches
