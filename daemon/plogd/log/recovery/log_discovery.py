"""Which partitions lie in a log directory, and whose they are.

A partition's directory says by its name which partition it holds, and by ``partition.metadata``
for which topic it was made: a topic that was deleted and made again has the same name and another
id. Where that file cannot be read, the name has to do. Loading what was found is log_recovery.py's
work, the choice log_manager.py's.

Source: Kafka 3.9 LogManager.loadLog, PartitionMetadataFile.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from plog.types import TopicPartition, Uuid
from plogd.log import file_names
from plogd.log.deletion import remove_tree
from plogd.log.disk.checkpoint_files import CorruptCheckpoint, read_topic_id
from plogd.log.disk.log_dir import LogDir
from plogd.ports import Files, Report
from plogd.topic_config import TopicConfig

_STRAYS_NAMED = 3
"""How many directories the line about them names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTopic:
    """The topic a partition belongs to, as the cluster's metadata has it."""

    topic_id: Uuid
    config: TopicConfig
    leader_epoch: int | None = None
    """The epoch in which its partition is about to be led; None where that is not known."""

    @property
    def outlived_a_start(self) -> bool:
        """Whether its log surely was on disk once: each start begins an epoch, 0 is its making."""
        return self.leader_epoch is not None and self.leader_epoch > 1


TopicOf: TypeAlias = Callable[[TopicPartition], KnownTopic | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLog:
    """A partition's directory; `topic_id` is None where its own word for it cannot be read."""

    log_dir: LogDir
    topic_partition: TopicPartition
    topic_id: Uuid | None

    def is_of(self, topic: KnownTopic | None) -> bool:
        """Whether this may be the log of `topic`."""
        return topic is not None and self.topic_id in (None, topic.topic_id)


def find_logs(files: Files, log_dir: LogDir, report: Report) -> list[FoundLog]:
    """A job: the partitions in a log directory; what waits to be deleted is removed on the way.

    What an earlier start has put aside stays, as in Kafka, and is told of.
    """
    found: list[FoundLog] = []
    strays: list[str] = []
    for name in files.listdir(log_dir.path):
        path = posixpath.join(log_dir.path, name)
        parsed = file_names.parse_partition_dir_name(name)
        if parsed is None or not files.is_dir(path):
            continue
        if parsed.state == file_names.DELETE_DIR_SUFFIX:
            remove_tree(files, path)
        elif parsed.state == file_names.STRAY_DIR_SUFFIX:
            strays.append(name)
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
            "{log_dir} holds {count} partitions of no known topic, put aside as {names}: they are "
            "never read or deleted; remove them if nobody misses their records",
            log_dir=log_dir.path,
            count=len(strays),
            names=", ".join(strays[:_STRAYS_NAMED]) + (" ..." if strays[_STRAYS_NAMED:] else ""),
            level="warn",
        )
    return found


def topic_id_of(files: Files, directory: str) -> Uuid | None:
    """The topic a partition directory was made for; None where that cannot be told."""
    try:
        return read_topic_id(files, directory)
    except CorruptCheckpoint:
        return None


def surest_first(found: Iterable[FoundLog]) -> list[FoundLog]:
    """Those that say themselves whose they are before those that only have the name."""
    return sorted(found, key=lambda one: one.topic_id is None)
