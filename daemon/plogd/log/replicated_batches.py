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
from plog.records.batch import BatchHeader, crc_is_valid, iter_batches
from plogd.log.segment.index_file import MAX_RELATIVE_OFFSET


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
    leader did not write it. Raises CorruptMessage or UnsupportedForMessageFormat.
    """
    batches = []
    for position, header in iter_batches(data):
        if header.partition_leader_epoch > leader_epoch:
            break
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            raise CorruptMessage(
                f"the fetched batch at byte {position} has offsets {header.base_offset} to"
                f" {header.last_offset}, but must begin at or above offset {next_offset}"
            )
        if not crc_is_valid(data, position, header):
            raise CorruptMessage(
                f"the fetched batch at byte {position}, with base offset {header.base_offset},"
                " fails its checksum"
            )
        batches.append(ReplicatedBatch(position, header))
        next_offset = header.next_offset
    return batches


def batches_that_fit(
    batches: Sequence[ReplicatedBatch], *, room_bytes: int, base_offset: int
) -> Sequence[ReplicatedBatch]:
    """Return the first batches that fit into `room_bytes` of a segment, at least one batch.

    `base_offset` is the segment's, from which index entries can only represent an int32.
    """
    start = batches[0].position
    for number, batch in enumerate(batches[1:], 1):
        if (
            batch.end_position - start > room_bytes
            or batch.header.last_offset - base_offset > MAX_RELATIVE_OFFSET
        ):
            return batches[:number]
    return batches
