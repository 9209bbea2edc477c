"""Find the partitions in a log directory, and the topics to which they belong.

A partition's directory has the name of the partition, and its ``partition.metadata`` file contains
the topic id. The id distinguishes a topic from a deleted topic with the same name. If the file
cannot be read, the topic is identified by its name. log_loader.py selects the logs that
log_recovery.py loads.

Source: Kafka 3.9 LogManager.loadLog, PartitionMetadataFile.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from plog.types import ZERO_UUID, TopicPartition, Uuid
from plogd.log import file_names
from plogd.log.deletion import remove_tree
from plogd.log.disk.checkpoint_files import CorruptCheckpoint, read_topic_id
from plogd.log.disk.log_dir import LogDir
from plogd.ports import Files, Report, size_of
from plogd.topic_config import TopicConfig

_STRAYS_NAMED = 3
"""Maximum number of stray directories in the log line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTopic:
    """The topic of a partition, according to the cluster metadata."""

    topic_id: Uuid
    """ZERO_UUID if it cannot be read; then every log with the topic's name is of this topic."""
    config: TopicConfig
    leader_epoch: int | None = None
    """The leader epoch that the partition is about to enter; None if unknown."""
    has_other_replicas: bool = False
    """Whether other brokers have replicas of the partition."""
    is_being_deleted: bool = False
    """Whether the log may already be gone, because the topic is being deleted."""

    @property
    def was_on_disk(self) -> bool:
        """Whether the log has been on disk before."""
        # The creation of the topic assigns epoch 0, and each startup adds 1.
        return self.leader_epoch is not None and self.leader_epoch > 1


TopicOf: TypeAlias = Callable[[TopicPartition], KnownTopic | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLog:
    """A partition's directory; `topic_id` is None if ``partition.metadata`` cannot be read."""

    log_dir: LogDir
    topic_partition: TopicPartition
    topic_id: Uuid | None

    def is_of(self, topic: KnownTopic | None) -> bool:
        """Return whether this can be the log of `topic`."""
        return topic is not None and (
            topic.topic_id == ZERO_UUID or self.topic_id in (None, topic.topic_id)
        )


def find_logs(files: Files, log_dir: LogDir, report: Report) -> list[FoundLog]:
    """Return the partitions in a log directory, and remove those marked for deletion.

    Runs as a job. As in Kafka, existing stray directories are kept; they are reported.
    """
    found: list[FoundLog] = []
    strays: list[str] = []
    stray_partitions: list[TopicPartition] = []
    for name in files.listdir(log_dir.path):
        path = posixpath.join(log_dir.path, name)
        parsed = file_names.parse_partition_dir_name(name)
        if parsed is None or not files.is_dir(path):
            continue
        if parsed.state == file_names.DELETE_DIR_SUFFIX:
            # The broker stopped before the deletion was complete.
            remove_tree(files, path)
        elif parsed.state == file_names.STRAY_DIR_SUFFIX:
            strays.append(name)
            stray_partitions.append(parsed.topic_partition)
        # A -future directory is ignored: Kafka was copying a replica into it (KIP-113), and the
        # complete replica is in another log directory.
        elif not parsed.state:
            found.append(
                FoundLog(
                    log_dir=log_dir,
                    topic_partition=parsed.topic_partition,
                    topic_id=topic_id_of(files, path),
                )
            )
    if strays:
        report(
            "{log_dir} contains {count} partitions of unknown topics, which were moved to"
            " {names}: they are neither read nor deleted; remove them if you do not need their"
            " records",
            log_dir=log_dir.path,
            count=len(strays),
            names=", ".join(strays[:_STRAYS_NAMED]) + (" ..." if strays[_STRAYS_NAMED:] else ""),
            topic_partitions=stray_partitions,
            level="warn",
        )
    return found


def bytes_to_scan(files: Files, directory: str, recovery_point: int) -> int:
    """Return the size of the segments that recovery will scan in a partition directory.

    Recovery scans the segment that contains the recovery point, and all later segments. Runs as a
    job.
    """
    sizes: dict[int, int] = {}
    try:
        for name in files.listdir(directory):
            parsed = file_names.parse_segment_file_name(name)
            if parsed is not None and parsed.suffix == file_names.LOG_SUFFIX and not parsed.state:
                sizes[parsed.base_offset] = size_of(files, posixpath.join(directory, name))
    # The size is only used in reports. If the disk has failed, loading the log reports the failure.
    except OSError:
        return 0
    # Empty segments are ignored, as in log_recovery.py, because appends may have continued in the
    # segment before an empty segment.
    holders = (base for base, size in sizes.items() if size and base <= recovery_point)
    first = max(holders, default=0)
    return sum(size for base, size in sizes.items() if base >= first)


def topic_id_of(files: Files, directory: str) -> Uuid | None:
    """Return the topic id of a partition directory; None if it cannot be read."""
    try:
        return read_topic_id(files, directory)
    except CorruptCheckpoint:
        return None


def with_topic_id_first(found: Iterable[FoundLog]) -> list[FoundLog]:
    """Return the logs with a readable topic id, followed by the logs known only by name."""
    return sorted(found, key=lambda one: one.topic_id is None)
