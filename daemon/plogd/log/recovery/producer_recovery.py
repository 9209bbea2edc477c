"""Restore the state of a log's producers at a start, from a snapshot and the batches after it.

Called by log_recovery.py, in its job, when the segments have been recovered. What the state is for
is in producer_state.py. Source: Kafka 3.9 UnifiedLog.rebuildProducerState.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cache

from plog.errors import CorruptMessage
from plog.records.batch import BatchHeader
from plogd.log.io_errors import is_refusal
from plogd.log.leader_epochs import LeaderEpochs
from plogd.log.producer_state import BatchMetadata, ProducerStateManager
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
) -> ProducerStateManager:
    """Load the newest usable snapshot and replay all batches after it; delete what was dropped.

    A snapshot is written by a job after each roll. If a crash came in between, only the segments
    before the active one, even below the log's start, know their producers. Then it is written
    now, for those segments may soon be deleted.
    """
    state = ProducerStateManager(
        files, request.directory, expiration_ms=request.producer_id_expiration_ms
    )
    told = [*dropped, *segments]
    state.remove_stray_snapshots([segment.base_offset for segment in told])
    offset = state.load(told[0].base_offset, log_end_offset)
    if offset is None:
        offset = told[0].base_offset
    if offset < segments[0].base_offset:
        for segment in dropped:
            _replay_dropped(segment, offset, state)
    is_noted = True
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if following is None and offset < segment.base_offset:
            is_noted = _write_snapshot(state, segment.base_offset)
        if following is None or following.base_offset > offset:
            replay_readable(segment, offset, _bind_replay(segment, state, epochs))
    for segment in dropped:
        if is_noted:
            segment.delete_files()
        else:  # The next start finds them again.
            segment.close()
    state.date_silence(_append_times(files, request, segments))
    state.remove_expired(request.monotonic_ms)
    return state


def _append_times(
    files: Files, request: LoadRequest, segments: Sequence[LogSegment]
) -> Callable[[BatchMetadata], float]:
    """When a batch was appended at the latest, as monotonic time.

    That is when the file of its segment was last written, by the wall clock of then; a batch below
    the first segment counts as written with that. A snapshot has no time but that of the records.
    It counts where it is later: a file that was copied may have any date.
    """
    bases = [segment.base_offset for segment in segments]

    @cache
    def written_ms(number: int) -> int:
        return files.modified_ms(segments[number].records_file.path)

    def appended_ms(batch: BatchMetadata) -> float:
        number = max(0, bisect_right(bases, batch.last_offset) - 1)
        latest_ms = max(written_ms(number), batch.timestamp)
        return request.monotonic_ms - max(0, request.now_ms - latest_ms)

    return appended_ms


def _replay_dropped(segment: LogSegment, from_offset: int, state: ProducerStateManager) -> None:
    """Replay its producers into `state`; its indexes are not checked yet."""
    with contextlib.suppress(CorruptMessage):
        for position, header in segment.records.batches_from(0):
            if header.last_offset >= from_offset:
                replay_producers(segment, position, header, state)


def _write_snapshot(state: ProducerStateManager, end_offset: int) -> bool:
    """Write down the producers below `end_offset`; False: no room."""
    try:
        state.write_snapshot(end_offset)
    except OSError as error:
        if not is_refusal(error):
            raise
        return False
    return True


def _bind_replay(
    segment: LogSegment, state: ProducerStateManager, epochs: LeaderEpochs
) -> Callable[[int, BatchHeader], None]:
    return lambda position, header: replay_batch(segment, position, header, state, epochs)
