"""One entry of ``log.dirs``: its lock, identity, clean shutdown file and checkpoints.

A log directory contains one directory per partition, and a few small files that cover all
partitions. `Log` and recovery access the partition directories; `LogManager` chooses a log
directory for new logs.

Methods that access files run in jobs on the directory's lane, except `release`.
Source: Kafka 3.9 LogManager, MetaProperties, CleanShutdownFileHandler. Invariant: the clean
shutdown file exists only while no broker uses the directory (KAFKA-10471).
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Mapping

from plog.errors import PlogError
from plog.types import TopicPartition
from plogd.log import file_names
from plogd.log.disk import checkpoint_files, clean_shutdown
from plogd.log.disk.checkpoint_files import CorruptCheckpoint, MetaProperties
from plogd.ports import Files, Report

OFFSET_CHECKPOINTS = (
    file_names.HIGH_WATERMARK_CHECKPOINT,
    file_names.LOG_START_OFFSET_CHECKPOINT,
    file_names.RECOVERY_POINT_CHECKPOINT,
    file_names.CLEANER_OFFSET_CHECKPOINT,
)


class LogDirUnusable(PlogError):
    """A log directory cannot be used. The message contains its path, the cause and the remedy."""


class LogDir:
    """A log directory. `path` is spelled as in ``log.dirs``; the directory's jobs run on `lane`.

    Reads run on `read_lane`, because they must not wait for seals and deletions.
    """

    def __init__(self, path: str, files: Files, report: Report) -> None:
        self.path = path
        self.lane = f"dir:{path}"
        self.read_lane = f"read:{path}"
        self.offline = False
        self.was_clean = False
        """Whether the last broker that used the directory stopped cleanly."""
        self.clean_since_ms: int | None = None
        """The wall-clock time of that clean stop."""
        self.may_lack_logs = False
        """Whether the directory was new to a broker of a cluster, so that it may replace one with
        logs, and the lost logs have not all been created yet (rule C2)."""
        self.identity: MetaProperties | None = None
        """The content of meta.properties; None if the file is missing."""
        self._offsets: dict[str, Mapping[TopicPartition, int]] = {
            name: {} for name in OFFSET_CHECKPOINTS
        }
        """The content of each checkpoint file."""
        self._unwritten = set(OFFSET_CHECKPOINTS)
        """Checkpoints that this process has not written yet."""
        self.files = files
        self._report = report
        self._unlock: Callable[[], None] | None = None

    def open(self) -> None:
        """Create the directory if it is missing, lock it, and read its files.

        Raises LogDirUnusable if another broker has locked it or its identity is damaged.
        """
        self._make()
        # Locked before anything is read, because another broker may be replacing the files.
        try:
            self._unlock = self.files.lock(posixpath.join(self.path, file_names.LOCK_FILE))
        except BlockingIOError as error:
            raise LogDirUnusable(
                f"cannot lock {self.path}: in use by another broker; stop that broker, or give "
                "each broker its own log.dirs"
            ) from error
        try:
            self.identity = checkpoint_files.read_meta_properties(self.files, self.path)
        except CorruptCheckpoint as error:
            raise LogDirUnusable(
                f"{error}; restore the file from another log directory of this broker, or remove "
                "it if you are sure which broker the directory belongs to"
            ) from error
        for name in OFFSET_CHECKPOINTS:
            self._offsets[name] = self._read(name)

    @property
    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        """High watermarks; records below them are known to be durable."""
        return self._offsets[file_names.HIGH_WATERMARK_CHECKPOINT]

    @property
    def log_starts(self) -> Mapping[TopicPartition, int]:
        """Log start offsets; records below them have been deleted."""
        return self._offsets[file_names.LOG_START_OFFSET_CHECKPOINT]

    @property
    def cleaner_offsets(self) -> Mapping[TopicPartition, int]:
        """The ends of the compacted parts of logs."""
        return self._offsets[file_names.CLEANER_OFFSET_CHECKPOINT]

    @property
    def recovery_points(self) -> Mapping[TopicPartition, int]:
        """Recovery points; recovery skips records below them."""
        return self._offsets[file_names.RECOVERY_POINT_CHECKPOINT]

    def _make(self) -> None:
        """Durably create the directory and its missing parents."""
        # Collected before `mkdir`: afterward, new directories look like existing directories.
        missing = []
        path = posixpath.abspath(self.path)
        while not self.files.exists(path):
            missing.append(path)
            path = posixpath.dirname(path)
        self.files.mkdir(self.path)
        if not self.files.exists(posixpath.join(self.path, file_names.META_PROPERTIES)):
            self._sync_names(missing)

    def _sync_names(self, made: Collection[str]) -> None:
        """Durably record the path of a directory that no broker has used yet."""
        path, device = posixpath.abspath(self.path), self.files.device(self.path)
        # Names that are not in `made` are synced as well, because an earlier startup may have
        # failed to sync them. The loop ends at the mount point, which no broker has created.
        while (parent := posixpath.dirname(path)) != path and self.files.device(parent) == device:
            try:
                self.files.sync_dir(parent)
            except PermissionError:  # If this startup has not created `path`, the operator has.
                if path in made:
                    raise
            path = parent

    def take_over(self, identity: MetaProperties) -> None:
        """Start using the directory: remove its clean shutdown file and write its identity."""
        # First, because a crash after this point must not look like a clean stop (KAFKA-10471).
        self.clean_since_ms = clean_shutdown.clean_mark_ms(self.files, self.path)
        self.was_clean = clean_shutdown.take_clean_mark(self.files, self.path)
        if not self.was_clean:
            # A broker that was killed while it created logs may not have synced their names.
            self.files.sync_dir(self.path)
        mark = posixpath.join(self.path, file_names.NEW_LOG_DIR)
        # In Kafka's ZooKeeper mode, the version is 0.
        if self.identity is None and identity.version == 0:
            # Before meta.properties, without which the directory is still new after a crash.
            checkpoint_files.write_atomic(self.files, mark, b"version: 0\n")
        self.may_lack_logs = self.files.exists(mark)
        if self.identity != identity:
            checkpoint_files.write_meta_properties(self.files, self.path, identity)
            self.identity = identity

    def remove_new_mark(self) -> None:
        """Durably record that all lost logs have been created."""
        self.files.unlink(posixpath.join(self.path, file_names.NEW_LOG_DIR))
        self.files.sync_dir(self.path)
        self.may_lack_logs = False

    def holds_partitions(self) -> bool:
        """Return whether the directory contains a partition that is neither deleted nor stray."""
        parsed = [
            file_names.parse_partition_dir_name(name) for name in self.files.listdir(self.path)
        ]
        return any(one is not None and not one.state for one in parsed)

    def holds_metadata_log(self) -> bool:
        """Return whether the directory contains the log of an embedded or KRaft metadata store."""
        return self.files.exists(posixpath.join(self.path, file_names.METADATA_DIR))

    def write_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace one of the checkpoint files."""
        checkpoint_files.write_offsets(self.files, posixpath.join(self.path, name), offsets)
        self._offsets[name] = offsets
        self._unwritten.discard(name)

    def has_written(self, name: str, offsets: Mapping[TopicPartition, int]) -> bool:
        """Return whether this process has written the file, and last wrote these offsets."""
        return name not in self._unwritten and self._offsets[name] == offsets

    def forget(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Remove the entries for deleted logs from the checkpoints."""
        # Otherwise, a deleted log's offsets could truncate or delete a new log with that name.
        for name, offsets in self._offsets.items():
            if any(topic_partition in offsets for topic_partition in topic_partitions):
                kept = {key: offsets[key] for key in offsets if key not in topic_partitions}
                self.write_offsets(name, kept)

    def close(self, *, clean: bool) -> None:
        """Release the directory. Set `clean` only if all logs in it are durable and closed."""
        if clean:  # While the lock is held, because the next broker may start immediately.
            clean_shutdown.write_clean_mark(self.files, self.path)
        self.release()

    def release(self) -> None:
        """Release the lock."""
        if self._unlock is not None:
            self._unlock()
            self._unlock = None

    def _read(self, name: str) -> Mapping[TopicPartition, int]:
        """Return the content of a checkpoint; a damaged checkpoint is treated as empty."""
        try:
            return checkpoint_files.read_offsets(self.files, posixpath.join(self.path, name))
        # At worst, recovery reads all records, because no recovery point is known.
        except CorruptCheckpoint as error:
            self._report(
                "treating a damaged checkpoint as missing: {error}",
                error=str(error),
                level="warn",
            )
            return {}
