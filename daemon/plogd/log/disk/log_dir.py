"""One entry of ``log.dirs``: its lock, its identity, its clean mark and its checkpoints.

A log directory holds a directory per partition and a few small files about all of them. What is
in a partition's directory is `Log`'s and recovery's business; choosing a directory is
`LogManager`'s.

Everything here touches files and is called in jobs on the directory's lane, but for the plain
attributes. Source: Kafka 3.9 LogManager, MetaProperties, CleanShutdownFileHandler.
Invariant: the clean mark exists only while no broker uses the directory (KAFKA-10471).
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Mapping

from plog.errors import PlogError
from plog.types import TopicPartition
from plogd.log import file_names
from plogd.log.disk import checkpoint_files
from plogd.log.disk.checkpoint_files import CorruptCheckpoint, MetaProperties
from plogd.ports import Files, Report

OFFSET_CHECKPOINTS = (
    file_names.HIGH_WATERMARK_CHECKPOINT,
    file_names.LOG_START_OFFSET_CHECKPOINT,
    file_names.RECOVERY_POINT_CHECKPOINT,
)


class LogDirUnusable(PlogError):
    """A log directory cannot be used; the message says which, why and what to do."""


class LogDir:
    """See the module's text. `path` is as in ``log.dirs``; `lane` is where its jobs run."""

    def __init__(self, path: str, files: Files, report: Report) -> None:
        self.path = path
        self.lane = f"dir:{path}"
        self.offline = False
        self.was_clean = False
        """Whether the last broker here stopped cleanly."""
        self.identity: MetaProperties | None = None
        """What meta.properties says; None in a directory never used."""
        self._offsets: dict[str, Mapping[TopicPartition, int]] = {
            name: {} for name in OFFSET_CHECKPOINTS
        }
        """What each checkpoint file says."""
        self._unwritten = set(OFFSET_CHECKPOINTS)
        """Checkpoints that this process has not written."""
        self.files = files
        self._report = report
        self._unlock: Callable[[], None] | None = None

    def open(self) -> None:
        """Make the directory if it is missing, lock it, read its files.

        Raises LogDirUnusable when another broker holds it or its identity cannot be read.
        """
        self._make()
        try:
            self._unlock = self.files.lock(posixpath.join(self.path, file_names.LOCK_FILE))
        except BlockingIOError as error:
            raise LogDirUnusable(
                f"{self.path} is in use by another broker; give each broker its own log.dirs"
            ) from error
        try:
            self.identity = checkpoint_files.read_meta_properties(self.files, self.path)
        except CorruptCheckpoint as error:
            raise LogDirUnusable(
                f"{error}: restore it from another log directory of this broker, "
                "or remove it if you are sure whose directory this is"
            ) from error
        for name in OFFSET_CHECKPOINTS:
            self._offsets[name] = self._read(name)

    @property
    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        """What is known to have been durable and replicated."""
        return self._offsets[file_names.HIGH_WATERMARK_CHECKPOINT]

    @property
    def log_starts(self) -> Mapping[TopicPartition, int]:
        """Below these offsets the logs have been deleted."""
        return self._offsets[file_names.LOG_START_OFFSET_CHECKPOINT]

    @property
    def recovery_points(self) -> Mapping[TopicPartition, int]:
        """What recovery need not look at."""
        return self._offsets[file_names.RECOVERY_POINT_CHECKPOINT]

    def _make(self) -> None:
        """Make the directory and whatever is missing above it, so that their names last."""
        missing = []
        path = posixpath.abspath(self.path)
        while not self.files.exists(path):
            missing.append(path)
            path = posixpath.dirname(path)
        self.files.mkdir(self.path)
        if not self.files.exists(posixpath.join(self.path, file_names.META_PROPERTIES)):
            self._sync_names(missing)

    def _sync_names(self, made: Collection[str]) -> None:
        """Make durable the names that lead to a directory in which no broker has started yet.

        Not only the ones `made` now: an earlier start may have made them and failed to sync.
        """
        path, device = posixpath.abspath(self.path), self.files.device(self.path)
        while (parent := posixpath.dirname(path)) != path and self.files.device(parent) == device:
            try:
                self.files.sync_dir(parent)
            except PermissionError:  # No broker made anything there.
                if path in made:
                    raise
            path = parent

    def take_over(self, identity: MetaProperties) -> None:
        """Begin to use the directory: remove its clean mark, write meta.properties if it is new."""
        self.was_clean = checkpoint_files.take_clean_mark(self.files, self.path)
        if not self.was_clean:
            # A broker that was killed while it created logs may not have synced their names.
            self.files.sync_dir(self.path)
        if self.identity != identity:
            checkpoint_files.write_meta_properties(self.files, self.path, identity)
            self.identity = identity

    def holds_partitions(self) -> bool:
        """Whether there is any partition in it that was not put out of use."""
        parsed = [
            file_names.parse_partition_dir_name(name) for name in self.files.listdir(self.path)
        ]
        return any(one is not None and not one.state for one in parsed)

    def write_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace one of the three checkpoint files as a whole."""
        checkpoint_files.write_offsets(self.files, posixpath.join(self.path, name), offsets)
        self._offsets[name] = offsets
        self._unwritten.discard(name)

    def has_written(self, name: str, offsets: Mapping[TopicPartition, int]) -> bool:
        """Whether that is what this process has last written there."""
        return name not in self._unwritten and self._offsets[name] == offsets

    def forget(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Take the entries of logs that are gone out of the checkpoints, if there are any.

        A new log of such a name must not be cut, or deleted, by what was true of the old one.
        """
        for name, offsets in self._offsets.items():
            if any(topic_partition in offsets for topic_partition in topic_partitions):
                kept = {key: offsets[key] for key in offsets if key not in topic_partitions}
                self.write_offsets(name, kept)

    def close(self, *, clean: bool) -> None:
        """Let go of the directory; with `clean`, everything in it is durable and closed."""
        if clean:
            checkpoint_files.write_clean_mark(self.files, self.path)
        self.release()

    def release(self) -> None:
        """Let go of the lock."""
        if self._unlock is not None:
            self._unlock()
            self._unlock = None

    def _read(self, name: str) -> Mapping[TopicPartition, int]:
        """A checkpoint, or nothing where it is damaged: recovery then looks at everything."""
        try:
            return checkpoint_files.read_offsets(self.files, posixpath.join(self.path, name))
        except CorruptCheckpoint as error:
            self._report(
                "a damaged checkpoint counts as a missing one: {error}",
                error=str(error),
                level="warn",
            )
            return {}
