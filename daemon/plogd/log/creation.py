"""Durably create logs: for each log, a directory with its first segment and its topic id.

`LogManager` chooses the log directory, removes checkpoint entries for older logs with the same
name, and calls `create_logs` in a job on the directory's lane. recovery/log_recovery.py loads
existing logs.

All files of a request's logs are created first and then made durable together, with a single
syncfs if there are many. Records are appended only afterward, so a crash in between can damage only
logs without records: the next startup loads them as empty logs of the topic with their name.

Source: Kafka 3.9 LogManager.getOrCreateLog, PartitionMetadataFile. Invariants: a failed creation
does not leave open files, and leaves nothing on disk unless the disk fails; a log that accepts
records has a durable topic id.
"""

from __future__ import annotations

import contextlib
import itertools
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from plog.types import TopicPartition, Uuid
from plogd.descriptor_budget import DescriptorBudget
from plogd.log import file_names
from plogd.log.deletion import remove_tree
from plogd.log.disk.checkpoint_files import write_first_topic_id
from plogd.log.leader_epochs import LeaderEpochs
from plogd.log.log_loss import LogLoss, write_first_loss
from plogd.log.log_state import LogState
from plogd.log.producer_snapshot import ProducerSnapshots
from plogd.log.producer_state import ProducerStateManager
from plogd.log.segment.log_segment import LogSegment
from plogd.ports import Files, size_of
from plogd.topic_config import TopicConfig

# On a busy disk, creating a thousand logs with separate syncs took 10 to 20 s instead of 6 s.
_SYNC_FS_FROM = 16
"""Minimum number of new logs for which one file system sync replaces the syncs of each log."""
_FIRST_LOG = file_names.segment_file_name(0, file_names.LOG_SUFFIX)
_MADE_FILES = frozenset(
    {
        _FIRST_LOG,
        file_names.segment_file_name(0, file_names.INDEX_SUFFIX),
        file_names.segment_file_name(0, file_names.TIME_INDEX_SUFFIX),
        file_names.PARTITION_METADATA,
        file_names.LOST_RECORDS,
        f"{file_names.PARTITION_METADATA}.tmp",  # Left by a crash while the file was replaced.
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLog:
    """A log to be created."""

    topic_partition: TopicPartition
    topic_id: Uuid
    config: TopicConfig
    loss: LogLoss | None = None
    """What the log lacks if it replaces a log that this broker has lost (rule C2)."""


def lack_of_descriptors(descriptors: DescriptorBudget, *, existing: int, count: int) -> str:
    """Return why `count` logs cannot be created besides the existing ones; "" if they can."""
    if existing + count <= descriptors.max_logs:
        return ""
    return (
        f"cannot create {count} logs: the broker already has {existing} logs, and can have at most"
        f" {descriptors.max_logs} with {descriptors.limit} descriptors; delete topics, or raise"
        " LimitNOFILE or ulimit -n and restart the broker"
    )


def create_logs(
    files: Files, log_dir: str, new_logs: Sequence[NewLog], *, producer_id_expiration_ms: int
) -> list[LogState]:
    """Durably create all of `new_logs` in one log directory, or none of them if an error occurs.

    A directory that already has a log's name is removed if it holds no records, and gets a
    ``-stray`` name otherwise.
    """
    uses_sync_fs = len(new_logs) >= _SYNC_FS_FROM and files.supports_sync_fs(log_dir)
    states: list[LogState] = []
    try:
        for new_log in new_logs:
            state = _create_log(files, log_dir, new_log, producer_id_expiration_ms)
            states.append(state)
            if new_log.loss is not None:
                # Before the topic id: without it, the directory is not yet the log of the topic.
                write_first_loss(files, state.directory, new_log.loss, sync=not uses_sync_fs)
            write_first_topic_id(files, state.directory, state.topic_id, sync=not uses_sync_fs)
            if not uses_sync_fs:
                files.sync_dir(state.directory)
        if uses_sync_fs:
            # On a separate descriptor: the kernel reports a write error once per descriptor, so
            # this sync could otherwise consume an error that group commit must see.
            files.sync_fs_apart(log_dir)
        else:
            files.sync_dir(log_dir)
    except Exception:
        for state in states:
            state.segments[0].close()
            _discard(files, state.directory)
        raise
    return states


def _create_log(
    files: Files, log_dir: str, new_log: NewLog, producer_id_expiration_ms: int
) -> LogState:
    """Create a log without its topic id, and without making it durable."""
    topic_partition, topic_id = new_log.topic_partition, new_log.topic_id
    directory = posixpath.join(log_dir, file_names.partition_dir_name(topic_partition))
    # The directory exists only if an earlier creation or deletion has failed.
    if files.exists(directory):
        rename_as_stray(files, log_dir, topic_partition, topic_id.hex())
    try:
        files.mkdir(directory)
        segment = LogSegment.create(files, directory, 0, new_log.config, in_new_directory=True)
    except Exception:
        _discard(files, directory)
        raise
    return LogState(
        topic_partition=topic_partition,
        topic_id=topic_id,
        directory=directory,
        log_dir=log_dir,
        config=new_log.config,
        segments=[segment],
        leader_epochs=LeaderEpochs(files, directory),
        producer_state=ProducerStateManager(
            ProducerSnapshots(files, directory), expiration_ms=producer_id_expiration_ms
        ),
        log_start_offset=0,
        log_end_offset=0,
        high_watermark=0,
        recovery_point=0,
        loss=new_log.loss,
    )


def rename_as_stray(
    files: Files, log_dir: str, topic_partition: TopicPartition, unique_id: str
) -> str | None:
    """Rename a partition's directory to a ``-stray`` name; return the new path. Raises OSError.

    If the directory never held records, removes it and returns None. `unique_id` consists of hex
    digits.
    """
    directory = posixpath.join(log_dir, file_names.partition_dir_name(topic_partition))
    # Left by a crash during topic creation: it contains nothing that the operator could need.
    if _was_never_used(files, directory):
        remove_tree(files, directory)
        return None
    # The name may exist after repeated crashes during the creation of the same topic.
    for number in itertools.count():
        name = file_names.stray_dir_name(topic_partition, f"{unique_id}{number or ''}")
        aside = posixpath.join(log_dir, name)
        if not files.exists(aside):
            break
    files.rename(directory, aside)
    return aside


def _was_never_used(files: Files, directory: str) -> bool:
    """Return whether a directory holds no records and only files that `create_logs` writes."""
    return all(
        name in _MADE_FILES
        and (name != _FIRST_LOG or not size_of(files, posixpath.join(directory, name)))
        for name in files.listdir(directory)
    )


def _discard(files: Files, directory: str) -> None:
    """Remove a directory whose creation failed."""
    # If the directory cannot be removed, the next creation or startup renames it.
    with contextlib.suppress(Exception):
        remove_tree(files, directory)
