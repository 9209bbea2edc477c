"""Load the leader epochs of a log, or rebuild them from its batches.

Called by log_recovery.py, in jobs. Source: Kafka 3.9 LeaderEpochFileCache, LogLoader.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from plog.records.batch import BatchHeader
from plogd.log import file_names
from plogd.log.disk.checkpoint_files import CorruptCheckpoint
from plogd.log.leader_epochs import LeaderEpochs
from plogd.log.recovery.load_request import LoadRequest
from plogd.log.recovery.segment_recovery import replay_readable
from plogd.log.segment.log_segment import LogSegment
from plogd.ports import Files, Report


def load_epochs(
    files: Files, request: LoadRequest, segments: Sequence[LogSegment], report: Report
) -> LeaderEpochs:
    """Load the epochs from their checkpoint, or from all batches if it is damaged or missing."""
    try:
        _check_epochs_exist(files, request, segments)
        return LeaderEpochs.load(files, request.directory, highest=request.leader_epoch)
    except CorruptCheckpoint as error:
        report(
            "rebuilding the leader epochs: {error}",
            error=str(error),
            topic_partition=request.topic_partition,
            level="warn",
        )
    epochs = LeaderEpochs(files, request.directory, highest=request.leader_epoch)

    def note(position: int, header: BatchHeader) -> None:
        request.work.step()
        note_epoch(epochs, header)

    for segment in segments:
        replay_readable(segment, segment.base_offset, note)
    epochs.is_dirty = True  # Written even if it is empty, so that it is not rebuilt again.
    return epochs


def _check_epochs_exist(files: Files, request: LoadRequest, segments: Sequence[LogSegment]) -> None:
    """Raise CorruptCheckpoint if a segment was sealed, but the checkpoint is missing."""
    # A seal writes it. Recovery finds the epochs of the other segments in their batches.
    point = request.recovery_point
    if any(segment.size_bytes and segment.base_offset < point for segment in segments):
        path = posixpath.join(request.directory, file_names.LEADER_EPOCH_CHECKPOINT)
        if not files.exists(path):
            raise CorruptCheckpoint(f"{path} is missing")


def note_epoch(epochs: LeaderEpochs, header: BatchHeader) -> None:
    """Record the epoch of a batch that recovery has found."""
    if header.partition_leader_epoch >= 0:
        epochs.assign(header.partition_leader_epoch, header.base_offset)
