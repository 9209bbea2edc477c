"""New logs on disk: a directory each, its first segment, the topic's id, all durable.

Called by `LogManager`, in a job on the log directory's lane. It chooses the directory, and sees to
it that no checkpoint there still speaks of an older log of the same name. Loading a log that
exists is log_recovery.py's work.

Source: Kafka 3.9 LogManager.getOrCreateLog, PartitionMetadataFile.
Invariant: a creation that fails leaves nothing behind, open or on disk, if the disk lets it.
"""

from __future__ import annotations

import contextlib
import itertools
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from plog.types import TopicPartition, Uuid
from plogd.log import file_names
from plogd.log.deletion import remove_tree
from plogd.log.disk.checkpoint_files import write_topic_id, write_topic_ids
from plogd.log.leader_epochs import LeaderEpochs
from plogd.log.log_state import LogState
from plogd.log.producer_state import ProducerStateManager
from plogd.log.segment.log_segment import LogSegment
from plogd.ports import Files
from plogd.topic_config import TopicConfig

_TOGETHER_FROM = 16
"""So many new logs are made durable by two syncs of the file system, and not by two each."""
_FIRST_LOG = file_names.segment_file_name(0, file_names.LOG_SUFFIX)
_MADE_FILES = frozenset(
    {
        _FIRST_LOG,
        file_names.segment_file_name(0, file_names.INDEX_SUFFIX),
        file_names.segment_file_name(0, file_names.TIME_INDEX_SUFFIX),
        file_names.PARTITION_METADATA,
        f"{file_names.PARTITION_METADATA}.tmp",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLog:
    """A log to be made."""

    topic_partition: TopicPartition
    topic_id: Uuid
    config: TopicConfig


def create_logs(
    files: Files, log_dir: str, new_logs: Sequence[NewLog], *, producer_id_expiration_ms: int
) -> list[LogState]:
    """Make all of `new_logs` in one log directory, durably, or none, whatever is raised.

    A directory that is in the way is put aside as stray, or removed if nothing was written there
    (a creation that was never finished).
    """
    is_quicker_together = len(new_logs) >= _TOGETHER_FROM and files.supports_sync_fs(log_dir)
    states: list[LogState] = []
    try:
        for new_log in new_logs:
            states.append(_create_log(files, log_dir, new_log, producer_id_expiration_ms))
        owned = [(state.directory, state.topic_id) for state in states]
        if is_quicker_together:
            write_topic_ids(files, owned, lambda: files.sync_fs_apart(log_dir))
        else:
            for directory, topic_id in owned:
                write_topic_id(files, directory, topic_id)  # And syncs the directory.
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
    """The log, but for the file that says whose it is; not durable yet."""
    topic_partition, topic_id = new_log.topic_partition, new_log.topic_id
    directory = posixpath.join(log_dir, file_names.partition_dir_name(topic_partition))
    if files.exists(directory):
        put_aside(files, log_dir, topic_partition, topic_id.hex())
    try:
        files.mkdir(directory)
        segment = LogSegment.create(files, directory, 0, new_log.config)
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
            files, directory, expiration_ms=producer_id_expiration_ms
        ),
        log_start_offset=0,
        log_end_offset=0,
        high_watermark=0,
        recovery_point=0,
    )


def put_aside(
    files: Files, log_dir: str, topic_partition: TopicPartition, unique_id: str
) -> str | None:
    """Give a partition's directory a ``-stray`` name, and return that. Raises OSError.

    One in which nothing was ever written is removed instead: None. `unique_id` is hex digits; crash
    after crash may have left something of that name.
    """
    directory = posixpath.join(log_dir, file_names.partition_dir_name(topic_partition))
    if _was_never_used(files, directory):
        remove_tree(files, directory)
        return None
    for number in itertools.count():
        name = file_names.stray_dir_name(topic_partition, f"{unique_id}{number or ''}")
        aside = posixpath.join(log_dir, name)
        if not files.exists(aside):
            break
    files.rename(directory, aside)
    return aside


def _was_never_used(files: Files, directory: str) -> bool:
    """Whether a directory is what a creation makes, or the beginning of it, and no more."""
    return all(
        name in _MADE_FILES and (name != _FIRST_LOG or not _size(files, directory, name))
        for name in files.listdir(directory)
    )


def _size(files: Files, directory: str, name: str) -> int:
    file = files.open_read(posixpath.join(directory, name))
    try:
        return file.size()
    finally:
        file.close()


def _discard(files: Files, directory: str) -> None:
    """Remove what was made; what stays is put aside by the next creation or the next start."""
    with contextlib.suppress(Exception):
        remove_tree(files, directory)
