"""Write a follower's batches to its log, as many as possible with a single write.

`Log.append_as_follower` calls this while the disk is fast; otherwise, disk/slow_disk_writes.py
writes the batches. Called on the reactor's thread.

A leader's log may start inside a batch, after DeleteRecords. A follower that begins at this offset
fetches the whole batch, which begins below the log start offset of the follower. As in Kafka,
`append_or_restart` then begins the empty log again, at the base offset of the batch: the segment's
name, its index entries and recovery require that no batch of a segment begins below its base
offset.

Source: Kafka 3.9 UnifiedLog.appendAsFollower, LocalLog.append,
Partition.appendRecordsToFollowerOrFutureReplica. Invariant: if a batch cannot be
added to the log, neither it nor a later batch is in the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from plogd.log.disk.slow_disk import SlowDisk
from plogd.log.disk.slow_disk_writes import WrittenLog
from plogd.log.log_results import AppendInfo
from plogd.log.replicated_batches import (
    ReplicatedBatch,
    UnexpectedAppendOffset,
    batches_that_fit,
    segment_base_offset,
)
from plogd.ports import Later


class FollowerLog(WrittenLog, Protocol):
    """The parts of a `Log` that an append of replicated batches uses."""

    def roll(self, base_offset: int | None = None) -> None:
        """Start a new active segment. Raises KafkaStorageError."""
        ...

    def request_sync_if_due(self, nbytes: int) -> None:
        """Request a sync of the last `nbytes` if the settings require one."""
        ...


class RestartableLog(Protocol):
    """The parts of a `Log` that `append_or_restart` uses."""

    log_start_offset: int
    log_end_offset: int

    @property
    def is_being_written(self) -> bool:
        """Whether a job may be writing to the active segment."""
        ...

    def append_as_follower(
        self, data: memoryview, *, leader_epoch: int, now_ms: int
    ) -> AppendInfo | None:
        """Append whole batches; see `Log.append_as_follower`."""
        ...

    def truncate_fully(self, start: int) -> Later[None]:
        """Remove all records, durably, and begin the log at offset `start`."""
        ...


async def append_or_restart(
    log: RestartableLog, data: memoryview, *, leader_epoch: int, now_ms: int
) -> AppendInfo | None:
    """Append as `Log.append_as_follower` does, also if an empty log starts inside the first batch.

    Such a log then starts at the base offset of the batch, so the caller must raise its log start
    offset to the leader's again. `data` must not change until this has returned. Raises
    UnexpectedAppendOffset if the log is not empty.
    """
    try:
        return log.append_as_follower(data, leader_epoch=leader_epoch, now_ms=now_ms)
    except UnexpectedAppendOffset as error:
        if log.log_start_offset < log.log_end_offset or log.is_being_written:
            raise
        first_offset = error.first_offset
    await log.truncate_fully(first_offset)
    return log.append_as_follower(data, leader_epoch=leader_epoch, now_ms=now_ms)


def append_replicated_batches(
    log: FollowerLog,
    data: memoryview,
    batches: Sequence[ReplicatedBatch],
    *,
    writes: SlowDisk,
    now_ms: int,
) -> None:
    """Append checked batches, which are in `data`. Raises KafkaStorageError."""
    while batches:
        started_ms = writes.monotonic_ms()
        try:
            count = _append_to_one_segment(log, data, batches, now_ms)
        except OSError as error:
            raise log.disk_failed("append", error) from error
        writes.took(writes.monotonic_ms() - started_ms)
        batches = batches[count:]


def _append_to_one_segment(
    log: FollowerLog, data: memoryview, batches: Sequence[ReplicatedBatch], now_ms: int
) -> int:
    """Append the first batches, which one segment can hold; return their number."""
    first, config = batches[0].header, log.config
    if log.segments.active.should_roll(
        config, first.size_bytes, first.max_timestamp, first.last_offset, now_ms
    ):
        log.roll(segment_base_offset(log.log_end_offset, first))
    segment = log.segments.active
    group = batches_that_fit(
        batches,
        room_bytes=config.segment_bytes - segment.size_bytes,
        base_offset=segment.base_offset,
    )
    start = group[0].position
    position = segment.append_batches(
        data[start : group[-1].end_position],
        [(batch.position - start, batch.header) for batch in group],
    )
    added_bytes = 0
    try:
        for batch in group:
            header, epoch = batch.header, batch.header.partition_leader_epoch
            try:
                log.appended(header, header.base_offset, epoch, batch.of(data), sync_bytes=0)
            except Exception as error:
                segment.undo_append(position + batch.position - start, error)
                raise
            added_bytes += header.size_bytes
    finally:
        # Once for all batches: the delay of a round depends on the number of requests.
        log.request_sync_if_due(added_bytes)
    return len(group)
