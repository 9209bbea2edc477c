"""Restore a log's producer state at startup, from a snapshot and the batches after it.

log_recovery.py calls this module in its job, after the segments have been recovered.
producer_state.py describes the state. Source: Kafka 3.9 UnifiedLog.rebuildProducerState.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from functools import cache

from plog.errors import CorruptMessage
from plog.records.batch import BatchHeader
from plogd.log.io_errors import is_refusal
from plogd.log.leader_epochs import LeaderEpochs
from plogd.log.producer_snapshot import ProducerSnapshots
from plogd.log.producer_state import BatchMetadata, ProducerStateManager
from plogd.log.recovery.load_progress import LoadWork
from plogd.log.recovery.load_request import LoadRequest
from plogd.log.recovery.segment_recovery import replay_batch, replay_producers, replay_readable
from plogd.log.segment.log_segment import LogSegment
from plogd.ports import Files


def load_producers(
    files: Files,
    request: LoadRequest,
    dropped: Sequence[LogSegment],
    segments: Sequence[LogSegment],
    log_end_offset: int,
    epochs: LeaderEpochs,
    without_producers: Collection[int] = (),
) -> ProducerStateManager:
    """Load the newest usable snapshot, replay all batches after it, and delete dropped segments.

    `without_producers` contains the base offsets of recovered segments that need not be replayed.
    """
    snapshots = ProducerSnapshots(files, request.directory)
    state = ProducerStateManager(snapshots, expiration_ms=request.producer_id_expiration_ms)
    loaded = [*dropped, *segments]
    snapshots.delete_stray([segment.base_offset for segment in loaded])
    offset = state.load(loaded[0].base_offset, log_end_offset)
    if offset is None:
        offset = loaded[0].base_offset
    # Otherwise, the snapshot already contains the producers of the dropped segments.
    if offset < segments[0].base_offset:
        for segment in dropped:
            _replay_dropped(segment, offset, state, request.work)
    is_noted = True
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        # A seal writes this snapshot after each roll. If the broker crashed before that, only
        # batches of older segments contain the state, and retention may soon delete them. Every
        # segment needs a snapshot, because a truncation deletes those above the new end.
        if offset < segment.base_offset and (following is None or state.producers):
            is_noted = _write_snapshot(state, segment.base_offset)
        end_offset = log_end_offset if following is None else following.base_offset
        if segment.base_offset in without_producers:
            request.work.step()
        elif end_offset > offset:
            replay_readable(segment, offset, _bind_replay(segment, state, epochs, request.work))
    for segment in dropped:
        if is_noted:
            segment.delete_files()
        else:  # Without the snapshot, the next startup needs these segments again.
            segment.close()
    state.date_silence(_append_times(files, request, segments))
    state.remove_expired(request.monotonic_ms)
    return state


def _append_times(
    files: Files, request: LoadRequest, segments: Sequence[LogSegment]
) -> Callable[[BatchMetadata], float]:
    """Return a function that computes the latest possible append time of a batch.

    The result is a monotonic time, derived from the modification time of the segment's file, or
    from the batch's timestamp if that is later. Batches below the first segment count as part of
    it.
    """
    bases = [segment.base_offset for segment in segments]

    @cache
    def written_ms(number: int) -> int:
        return files.modified_ms(segments[number].records_file.path)

    def appended_ms(batch: BatchMetadata) -> float:
        number = max(0, bisect_right(bases, batch.last_offset) - 1)
        # A copied file may have any modification time, so the timestamp is a second lower limit.
        latest_ms = max(written_ms(number), batch.timestamp)
        return request.monotonic_ms - max(0, request.now_ms - latest_ms)

    return appended_ms


def _replay_dropped(
    segment: LogSegment, from_offset: int, state: ProducerStateManager, work: LoadWork
) -> None:
    """Replay the producers of a dropped segment into `state`."""
    # From position 0 instead of by index: this segment was not recovered, so its indexes may be
    # wrong.
    with contextlib.suppress(CorruptMessage):
        for position, header in segment.records.batches_from(0):
            work.step()
            if header.last_offset >= from_offset:
                replay_producers(segment, position, header, state)


def _write_snapshot(state: ProducerStateManager, end_offset: int) -> bool:
    """Write a snapshot of the producers below `end_offset`; return False if the disk is full."""
    try:
        state.write_snapshot(end_offset)
    except OSError as error:
        if not is_refusal(error):
            raise
        return False
    return True


def _bind_replay(
    segment: LogSegment, state: ProducerStateManager, epochs: LeaderEpochs, work: LoadWork
) -> Callable[[int, BatchHeader], None]:
    def replay(position: int, header: BatchHeader) -> None:
        work.step()
        replay_batch(segment, position, header, state, epochs)

    return replay
