"""Names of the files and directories in a log directory, as in Kafka.

A partition's directory is called ``<topic>-<partition>``; before its deletion, it is renamed to
``<topic>-<partition>.<32 hex digits>-delete``. The names of a segment's files begin with the base
offset in 20 digits. A suffix denotes the type of the file, and a second suffix its state, for
example ``.deleted``.

Source: Kafka 3.9 LogFileUtils, LocalLog.parseTopicPartitionName, LocalLog.logDeleteDirName.
"""

from __future__ import annotations

import posixpath
import re
from functools import lru_cache
from typing import NamedTuple

from plog.types import TopicPartition

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
# Files are renamed in this order: after a crash, startup removes indexes without a `.log`, but
# would rebuild the indexes of a `.log` that was to be deleted.
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
"""The suffixes of a segment's files; the ``.log`` file comes first."""

DELETED_SUFFIX = ".deleted"
"""Second suffix of a file that was removed from the log and will be unlinked later."""
CLEANED_SUFFIX = ".cleaned"
"""Second suffix of a file that compaction or an index rebuild is writing."""
SWAP_SUFFIX = ".swap"
"""Second suffix of a file that compaction has written and is renaming."""
STRAY_SUFFIX = ".stray"
"""Last suffix of a file that recovery has removed from the log; only the operator deletes the file.

Startup, retention and Kafka ignore files with this suffix. See `stray_state`."""

DELETE_DIR_SUFFIX = "-delete"
FUTURE_DIR_SUFFIX = "-future"
STRAY_DIR_SUFFIX = "-stray"

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
META_PROPERTIES = "meta.properties"
LOST_RECORDS = "lost-records"
"""The mark of a log that lacks records (log_loss.py); Kafka ignores it."""
NEW_LOG_DIR = "plog-new-log-dir"
"""The mark of a log directory in which lost logs may still be missing (log_dir.py)."""
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"

# Kafka's name for the log of a KRaft quorum (decision 0002).
METADATA_DIR = "__cluster_metadata-0"
_MAX_DIR_NAME = 255  # NAME_MAX of Linux file systems.
# Without re.ASCII, \d would match digits from other scripts, and int() accepts those as well.
_SEGMENT_FILE = re.compile(
    r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(\.deleted|\.cleaned|\.swap)?",
    re.ASCII,
)
# The last hyphen precedes the partition, because the name of a topic may contain hyphens.
_PARTITION_DIR = re.compile(
    r"([^\s/]+)-(\d{1,10})(?:\.([^\s.]+)(-delete|-future|-stray))?", re.ASCII
)


class SegmentFileName(NamedTuple):
    """The parts of a segment file's name."""

    base_offset: int
    suffix: str
    state: str
    """Empty, or one of DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX."""


class PartitionDirName(NamedTuple):
    """The parts of a partition directory's name.

    The topic in a ``-delete`` or ``-stray`` name may be shortened.
    """

    topic_partition: TopicPartition
    state: str
    """Empty, or one of DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX, STRAY_DIR_SUFFIX."""


def segment_file_name(base_offset: int, suffix: str, state: str = "") -> str:
    """Return the name of one of a segment's files.

    >>> segment_file_name(42, LOG_SUFFIX)
    '00000000000000000042.log'
    >>> segment_file_name(0, INDEX_SUFFIX, DELETED_SUFFIX)
    '00000000000000000000.index.deleted'
    """
    # As in Kafka, padded so that the names sort by offset: 2**63 has 19 digits.
    return f"{base_offset:020d}{suffix}{state}"


def stray_state(number: int) -> str:
    """Return the end of a segment file's name after recovery has removed it from the log.

    `number` distinguishes removed segments that had the same base offset.

    >>> segment_file_name(42, LOG_SUFFIX, stray_state(1))
    '00000000000000000042.log.stray'
    >>> segment_file_name(42, LOG_SUFFIX, stray_state(2))
    '00000000000000000042.log.2.stray'
    """
    return STRAY_SUFFIX if number == 1 else f".{number}{STRAY_SUFFIX}"


def segment_path(directory: str, base_offset: int, suffix: str, state: str = "") -> str:
    """Return the path of one of a segment's files in `directory`."""
    return posixpath.join(directory, segment_file_name(base_offset, suffix, state))


# A startup parses each name several times, and the same names occur in all partitions.
@lru_cache(maxsize=1024)
def parse_segment_file_name(name: str) -> SegmentFileName | None:
    """Parse the name of a segment file; return None for any other name.

    >>> parse_segment_file_name("00000000000000000042.timeindex.deleted")
    SegmentFileName(base_offset=42, suffix='.timeindex', state='.deleted')
    >>> parse_segment_file_name("leader-epoch-checkpoint")
    """
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None:
        return None
    return SegmentFileName(int(match[1]), match[2], match[3] or "")


def partition_dir_name(topic_partition: TopicPartition) -> str:
    """Return the name of a partition's directory.

    >>> partition_dir_name(TopicPartition("page-views", 3))
    'page-views-3'
    """
    return f"{topic_partition.topic}-{topic_partition.partition}"


def is_metadata_dir(directory: str) -> bool:
    """Return whether a directory holds the log of the embedded metadata store.

    >>> is_metadata_dir("/data/__cluster_metadata-0"), is_metadata_dir("/data/orders-0")
    (True, False)
    """
    return posixpath.basename(directory) == METADATA_DIR


def deleted_dir_name(topic_partition: TopicPartition, unique_id: str) -> str:
    """Return the ``-delete`` name of a partition's directory; shorten the topic if necessary.

    `unique_id` has 32 hex digits.

    >>> deleted_dir_name(TopicPartition("page-views", 3), "0123456789abcdef0123456789abcdef")
    'page-views-3.0123456789abcdef0123456789abcdef-delete'
    """
    return _marked_dir_name(topic_partition, unique_id, DELETE_DIR_SUFFIX)


def stray_dir_name(topic_partition: TopicPartition, unique_id: str) -> str:
    """Return the name of a stray partition directory; shorten the topic if necessary.

    >>> stray_dir_name(TopicPartition("page-views", 3), "0123456789abcdef0123456789abcdef")
    'page-views-3.0123456789abcdef0123456789abcdef-stray'
    """
    return _marked_dir_name(topic_partition, unique_id, STRAY_DIR_SUFFIX)


def _marked_dir_name(topic_partition: TopicPartition, unique_id: str, suffix: str) -> str:
    # As in Kafka's LocalLog.logDeleteDirName: a topic name can have 249 characters.
    tail = f"-{topic_partition.partition}.{unique_id}{suffix}"
    return topic_partition.topic[: _MAX_DIR_NAME - len(tail)] + tail


def parse_partition_dir_name(name: str) -> PartitionDirName | None:
    """Parse the name of a partition's directory; return None for any other name.

    >>> parse_partition_dir_name("page-views-3")
    PartitionDirName(topic_partition=TopicPartition(topic='page-views', partition=3), state='')
    >>> parse_partition_dir_name("page-views-3.0123456789abcdef0123456789abcdef-delete").state
    '-delete'
    >>> parse_partition_dir_name("lost+found")
    """
    match = _PARTITION_DIR.fullmatch(name)
    if match is None:
        return None
    return PartitionDirName(TopicPartition(match[1], int(match[2])), match[4] or "")
