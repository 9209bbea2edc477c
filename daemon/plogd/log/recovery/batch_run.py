"""Check a run of ordinary batches in one loop: recovery spends most of its time here.

A batch is ordinary if it follows the batch before it without a gap, is not part of a transaction,
and has the same leader epoch. segment_recovery.py checks all other batches one by one, and each
batch that gets an index entry. Pure: the function receives the bytes of a segment.
"""

from __future__ import annotations

from typing import NamedTuple

from plog.records.batch import (
    ATTRIBUTES_POSITION,
    CONTROL_BIT,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
    TRANSACTIONAL_BIT,
)
from plog.records.crc32c import crc32c

_NOT_ORDINARY = TRANSACTIONAL_BIT | CONTROL_BIT
_MIN_SIZE = HEADER_SIZE
_NO_TIMESTAMP = -1


class BatchRun(NamedTuple):
    """Valid batches up to `position`; the offsets below `next_offset` are complete."""

    position: int
    next_offset: int
    max_timestamp: int
    """The largest timestamp; -1 if no batch has one."""
    offset_of_max_timestamp: int
    """The last offset of the first batch with this timestamp."""
    has_producers: bool
    """Whether an idempotent producer has sent one of the batches."""


def check_run(
    data: memoryview,
    position: int,
    *,
    until_position: int,
    next_offset: int,
    end_offset: int,
    leader_epoch: int,
) -> BatchRun:
    """Check the ordinary batches that begin at `position`, and before `until_position`.

    Ends before the first batch that is not ordinary, invalid, incomplete in `data`, or reaches
    `end_offset`.
    """
    unpack, size_of_data = HEADER.unpack_from, len(data)
    last_start = min(until_position, size_of_data - HEADER_SIZE + 1)
    max_timestamp, offset_of_max, has_producers = _NO_TIMESTAMP, -1, False
    while position < last_start:
        (
            base_offset,
            length,
            epoch,
            magic,
            crc,
            attributes,
            delta,
            _,
            timestamp,
            producer_id,
            _,
            _,
            _,
        ) = unpack(data, position)
        end_position = position + LOG_OVERHEAD + length
        last_offset = base_offset + delta
        if (
            base_offset != next_offset
            or epoch != leader_epoch
            or magic != MAGIC
            or delta < 0
            or length < _MIN_SIZE - LOG_OVERHEAD
            or end_position > size_of_data
            or last_offset >= end_offset
            or attributes & _NOT_ORDINARY
            or crc32c(data[position + ATTRIBUTES_POSITION : end_position]) != crc
        ):
            break
        if timestamp > max_timestamp:
            max_timestamp, offset_of_max = timestamp, last_offset
        if producer_id > NO_PRODUCER_ID:
            has_producers = True
        position, next_offset = end_position, last_offset + 1
    return BatchRun(position, next_offset, max_timestamp, offset_of_max, has_producers)
