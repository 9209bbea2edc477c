"""Lock and read the log directories of a stopped Kafka broker.

A running Kafka broker holds a POSIX record lock on ``.lock``, and a running plog broker holds a
flock; while `SourceLocks` are held, neither broker can start in these directories.

import_plan.py decides whether the directories can be adopted. Source: Kafka 3.9
LogManager.loadLogs, FileLock, MetaPropertiesEnsemble.
"""

from __future__ import annotations

import fcntl
import os
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

from plog.errors import CorruptMessage, PlogError
from plog.records.batch import iter_batches
from plog.records.reader import read_records
from plog.types import TopicPartition
from plogd.log import file_names
from plogd.log.disk.checkpoint_files import (
    CorruptCheckpoint,
    MetaProperties,
    read_meta_properties,
    read_offsets,
)
from plogd.log.disk.log_dir import OFFSET_CHECKPOINTS
from plogd.metadata.embedded_store import METADATA_PARTITION
from plogd.metadata.snapshot_name import parse_snapshot_name
from plogd.ports import Files
from plogd.tools.metadata import kraft_log_reader
from plogd.tools.storage.cluster_state import ClusterState
from plogd.tools.storage.log_inspection import LogFacts

METADATA_DIR = file_names.partition_dir_name(METADATA_PARTITION)
TRANSACTION_TOPIC = "__transaction_state"

_TRANSACTION_VALUE = Struct(">hqhib")
"""Version, producer id, producer epoch, timeout, status: the first fields in every version."""
# Ids of Kafka's TransactionState.
_UNFINISHED = {1: "ongoing", 2: "being committed", 3: "being aborted", 7: "being fenced"}


class SourceUnusable(PlogError):
    """A directory does not belong to a stopped Kafka broker; the message contains the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDir:
    """One log directory of the broker to import."""

    path: str
    identity: MetaProperties
    clean: bool
    partitions: tuple[TopicPartition, ...]
    left_behind: tuple[str, ...]
    """Directories of partitions that are deleted, stray or being moved."""
    offsets: dict[str, dict[TopicPartition, int]]
    """The three offset checkpoints, by file name; a corrupt checkpoint is empty."""
    holds_metadata: bool


class SourceLocks:
    """Locks on the ``.lock`` files of directories. The constructor raises SourceUnusable.

    Kafka removes its lock file when it stops. With `to_change`, a missing file is created, so that
    no broker can start during the import. Otherwise, nothing is written to the directories, and the
    caller calls `check_still` at the end.
    """

    def __init__(self, paths: Sequence[str], *, to_change: bool = False) -> None:
        self._descriptors: list[int] = []
        self._paths = tuple(paths)
        # A broker removes this file when it starts, which `check_still` notices.
        self._clean = {path for path in paths if _has_clean_mark(path)}
        self._to_change = to_change
        for path in paths:
            try:
                self._lock(path)
            except SourceUnusable:
                self.close()
                raise

    def _lock(self, path: str) -> None:
        how = os.O_RDWR | os.O_CREAT if self._to_change else os.O_RDONLY
        # For a shared lock, it is enough to open the file for reading.
        kind = fcntl.LOCK_EX if self._to_change else fcntl.LOCK_SH
        try:
            descriptor = os.open(
                posixpath.join(path, file_names.LOCK_FILE), how | os.O_CLOEXEC, 0o644
            )
        # Kafka removes this file when it stops, so no broker is running.
        except FileNotFoundError:
            return
        self._descriptors.append(descriptor)
        try:
            # plog locks with flock, Kafka (Java's FileLock) with a POSIX record lock.
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            fcntl.lockf(descriptor, kind | fcntl.LOCK_NB)
        except OSError as error:
            raise SourceUnusable(
                f"{path} is in use: a broker is running there; stop it cleanly, then try again"
            ) from error

    def check_still(self) -> None:
        """Raise SourceUnusable if a broker was started in a directory without a lock file."""
        for path in self._paths:
            if path in self._clean and not _has_clean_mark(path):
                raise SourceUnusable(
                    f"a broker was started in {path} during the import, so the copy may be "
                    "inconsistent; stop the broker cleanly, then try again"
                )

    def close(self) -> None:
        """Release all locks."""
        while self._descriptors:
            os.close(self._descriptors.pop())


def _has_clean_mark(path: str) -> bool:
    return os.path.exists(posixpath.join(path, file_names.CLEAN_SHUTDOWN_FILE))


def read_source_dir(files: Files, path: str) -> SourceDir:
    """Read the identity and contents of one log directory. Raises SourceUnusable, OSError."""
    try:
        identity = read_meta_properties(files, path)
    except CorruptCheckpoint as error:
        # Each directory of a broker contains the same cluster id and node id.
        raise SourceUnusable(f"{error}; restore it from another of the broker's log.dirs") from None
    if identity is None:
        raise SourceUnusable(
            f"{path} is not a log directory of a Kafka broker: {file_names.META_PROPERTIES} is"
            " missing"
        )
    partitions: list[TopicPartition] = []
    left_behind: list[str] = []
    for name in files.listdir(path):
        parsed = file_names.parse_partition_dir_name(name)
        if parsed is None or not files.is_dir(posixpath.join(path, name)):
            continue
        if parsed.state:
            # Kafka would delete or replace these directories, so their records are not needed.
            left_behind.append(name)
        elif parsed.topic_partition.topic != METADATA_PARTITION.topic:
            partitions.append(parsed.topic_partition)
    return SourceDir(
        path=path,
        identity=identity,
        clean=files.exists(posixpath.join(path, file_names.CLEAN_SHUTDOWN_FILE)),
        partitions=tuple(partitions),
        left_behind=tuple(left_behind),
        offsets={name: _offsets(files, posixpath.join(path, name)) for name in OFFSET_CHECKPOINTS},
        holds_metadata=files.is_dir(posixpath.join(path, METADATA_DIR)),
    )


def _offsets(files: Files, path: str) -> dict[TopicPartition, int]:
    try:
        return read_offsets(files, path)
    except CorruptCheckpoint:
        # Kafka's LogManager also ignores a checkpoint that it cannot read.
        return {}


def read_kraft_metadata(files: Files, log_dir: str) -> ClusterState:
    """Read Kafka's `__cluster_metadata-0` in `log_dir`. Raises UnreadableMetadata, OSError."""
    directory = posixpath.join(log_dir, METADATA_DIR)
    listed = files.listdir(directory)
    snapshots = [(parse_snapshot_name(name), name) for name in listed]
    values: list[tuple[int, bytes]] = []
    start = 0
    complete = sorted((parsed, name) for parsed, name in snapshots if parsed is not None)
    if complete:
        newest, name = complete[-1]
        start = newest.end_offset
        data = files.read_file(posixpath.join(directory, name))
        values += [(start - 1, value) for value in kraft_log_reader.snapshot_values(data)]
    parsed_names = [file_names.parse_segment_file_name(name) for name in listed]
    bases = sorted(
        x.base_offset
        for x in parsed_names
        if x and not x.state and x.suffix == file_names.LOG_SUFFIX
    )
    # The snapshot replaces the segments below its end offset, which Kafka deletes (KIP-630).
    segments = [
        files.read_file(file_names.segment_path(directory, base, file_names.LOG_SUFFIX))
        for number, base in enumerate(bases)
        if bases[number + 1 : number + 2] == [] or bases[number + 1] > start
    ]
    values += kraft_log_reader.log_values(segments, start)
    return kraft_log_reader.read_state(values)


def unfinished_transactions(files: Files, logs: Sequence[LogFacts]) -> dict[str, str]:
    """Return the state of each unfinished transaction, by transactional id."""
    states: dict[str, str] = {}
    for facts in logs:
        if facts.topic_partition.topic != TRANSACTION_TOPIC:
            continue
        for base_offset in facts.base_offsets:
            path = file_names.segment_path(facts.directory, base_offset, file_names.LOG_SUFFIX)
            _follow_coordinator(files.read_file(path), states)
    return states


def _follow_coordinator(data: bytes, states: dict[str, str]) -> None:
    try:
        for position, header in iter_batches(data):
            if header.is_control:
                continue
            for record in read_records(data, position, header):
                # The version and the length of the string, an int16 each, precede the id.
                transactional_id = (record.key or b"")[4:].decode(errors="replace")
                value = record.value or b""
                # A record without a value removes the transactional id.
                status = 0
                if len(value) >= _TRANSACTION_VALUE.size:
                    status = _TRANSACTION_VALUE.unpack_from(value)[4]
                # The last record of each transactional id determines its state.
                states.pop(transactional_id, None)
                if status in _UNFINISHED:
                    states[transactional_id] = _UNFINISHED[status]
    except CorruptMessage:
        # A torn batch ends the log: the records after it were never acknowledged.
        return
