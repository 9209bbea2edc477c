"""The small files in a log directory, each replaced atomically.

A log directory (an entry of ``log.dirs``) contains the offset checkpoints and ``meta.properties``;
a partition's directory contains the leader epochs and the topic id. A missing file is read as
empty, and a damaged file raises CorruptCheckpoint; the callers decide how to proceed. Writes wait
for the disk, so they run in jobs. clean_shutdown.py handles the clean shutdown file.

Source: Kafka 3.9 CheckpointFile, OffsetCheckpointFile, LeaderEpochCheckpointFile,
PartitionMetadataFile, MetaProperties.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from plog.errors import PlogError
from plog.types import ZERO_UUID, TopicPartition, Uuid, uuid_from_text, uuid_to_text
from plogd.log import file_names
from plogd.ports import Files

_TEMPORARY_SUFFIX = ".tmp"
_VERSION = 0


class CorruptCheckpoint(PlogError):
    """A checkpoint file is damaged. The message contains the path and the problem."""


def write_atomic(files: Files, path: str, data: bytes) -> None:
    """Durably replace the content of `path`; after a crash, the file has the old or new content.

    Raises OSError. The file then keeps its old content, unless only the last sync has failed.
    """
    # In the same directory, because a rename is atomic only within a file system.
    temporary = path + _TEMPORARY_SUFFIX
    if files.exists(temporary):  # Left by a crash; open_append would append to its content.
        files.unlink(temporary)
    try:
        file = files.open_append(temporary)
        try:
            file.append(data)
            file.sync()  # Before the rename, so that the name never refers to incomplete content.
        finally:
            file.close()
        files.rename(temporary, path)
    except Exception:
        # Only the first error is raised; the next write removes any remaining temporary file.
        with contextlib.suppress(Exception):
            files.unlink(temporary)
        raise
    files.sync_dir(posixpath.dirname(path))  # Otherwise, a crash could undo the rename.


def read_offsets(files: Files, path: str) -> dict[TopicPartition, int]:
    """Read an offset checkpoint: recovery points, log start offsets or high watermarks.

    The file is text: a line with the version, 0; a line with the number of entries; then a line
    ``topic partition offset`` for each entry. Returns no entries if the file is missing. Raises
    CorruptCheckpoint.
    """
    entries = _read_entries(files, path, fields=3)
    return {TopicPartition(topic, int(number)): int(offset) for topic, number, offset in entries}


def write_offsets(files: Files, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace an offset checkpoint. Raises OSError."""
    lines = [f"{topic} {number} {offset}" for (topic, number), offset in offsets.items()]
    _write_entries(files, path, lines)


class EpochEntry(NamedTuple):
    """A leader epoch and the offset of the first record written in it."""

    epoch: int
    start_offset: int


def read_leader_epochs(files: Files, directory: str) -> list[EpochEntry]:
    """Read a partition's ``leader-epoch-checkpoint``, a text file with entries ``epoch offset``.

    Returns no entries if the file is missing. Raises CorruptCheckpoint.
    """
    path = posixpath.join(directory, file_names.LEADER_EPOCH_CHECKPOINT)
    lines = _read_entries(files, path, fields=2)
    entries = [EpochEntry(int(epoch), int(offset)) for epoch, offset in lines]
    # -1 stands for an unknown epoch or offset, so a negative entry would be misunderstood.
    if any(entry.epoch < 0 or entry.start_offset < 0 for entry in entries):
        raise CorruptCheckpoint(f"{path} contains a negative epoch or offset")
    return entries


def write_leader_epochs(files: Files, directory: str, entries: Iterable[EpochEntry]) -> None:
    """Replace ``leader-epoch-checkpoint``. Raises OSError."""
    path = posixpath.join(directory, file_names.LEADER_EPOCH_CHECKPOINT)
    _write_entries(files, path, [f"{epoch} {offset}" for epoch, offset in entries])


def read_topic_id(files: Files, directory: str) -> Uuid | None:
    """Read the topic id of a partition's log from ``partition.metadata``.

    Returns None if the file is missing. Raises CorruptCheckpoint.
    """
    path = posixpath.join(directory, file_names.PARTITION_METADATA)
    text = _read_text(files, path)
    if text is None:
        return None
    values = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    try:
        version, topic_id = int(values["version"]), uuid_from_text(values["topic_id"].strip())
    except KeyError as error:
        raise CorruptCheckpoint(f"{path}: {error.args[0]} is missing") from error
    except ValueError as error:
        raise CorruptCheckpoint(f"{path}: {error}") from error
    # In the protocol, the zero id means that a topic has no id.
    if version < _VERSION or topic_id == ZERO_UUID:
        raise CorruptCheckpoint(f"{path}: invalid version {version} or topic id {topic_id.hex()}")
    return topic_id


def write_topic_id(files: Files, directory: str, topic_id: Uuid) -> None:
    """Replace ``partition.metadata``. Raises OSError."""
    path = posixpath.join(directory, file_names.PARTITION_METADATA)
    write_atomic(files, path, _topic_id_text(topic_id))


def write_first_topic_id(files: Files, directory: str, topic_id: Uuid, *, sync: bool) -> None:
    """Write ``partition.metadata`` in a new directory, and make it durable if `sync` is set.

    Not with a temporary file: until the log has been created, it has no records that a damaged file
    could assign to another topic. Raises OSError.
    """
    file = files.open_append(posixpath.join(directory, file_names.PARTITION_METADATA))
    try:
        file.append(_topic_id_text(topic_id))
        if sync:
            file.sync()
    finally:
        file.close()


def sync_topic_id(files: Files, directory: str) -> None:
    """Make the content of ``partition.metadata`` durable, if the file exists. Raises OSError."""
    path = posixpath.join(directory, file_names.PARTITION_METADATA)
    if not files.exists(path):
        return
    file = files.open_on_demand(path)  # As the files of its segments.
    try:
        file.sync()
    finally:
        file.close()


def _topic_id_text(topic_id: Uuid) -> bytes:
    # As in Kafka's PartitionMetadata.encode, the last line does not end with a newline.
    return f"version: {_VERSION}\ntopic_id: {uuid_to_text(topic_id)}".encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """The content of ``meta.properties``: a log directory's cluster and broker."""

    cluster_id: str
    node_id: int
    directory_id: str = ""
    """The id of the directory as text; empty in files from older Kafka versions."""
    version: int = 1
    """0 in Kafka's ZooKeeper mode, in which the node id is called ``broker.id``."""


def read_meta_properties(files: Files, log_dir: str) -> MetaProperties | None:
    """Read ``meta.properties``; return None if it is missing. Raises CorruptCheckpoint."""
    path = posixpath.join(log_dir, file_names.META_PROPERTIES)
    text = _read_text(files, path)
    if text is None:
        return None
    _check_last_line(path, text)
    values = _parse_properties(text)
    try:
        version = int(values.get("version", "0"))
        if version not in (0, 1):
            raise ValueError(f"unknown version {version}")
        return MetaProperties(
            version=version,
            cluster_id=values["cluster.id"],
            node_id=int(values["broker.id" if version == 0 else "node.id"]),
            directory_id=values.get("directory.id", ""),
        )
    except KeyError as error:
        raise CorruptCheckpoint(f"{path}: {error.args[0]} is missing") from error
    except ValueError as error:
        raise CorruptCheckpoint(f"{path}: {error}") from error


def write_meta_properties(files: Files, log_dir: str, properties: MetaProperties) -> None:
    """Replace ``meta.properties``. Raises OSError."""
    node_id_name = "broker.id" if properties.version == 0 else "node.id"
    lines = [
        "# Written by plog: this log directory belongs to one broker of one cluster.",
        f"version={properties.version}",
        f"cluster.id={properties.cluster_id}",
        f"{node_id_name}={properties.node_id}",
    ]
    if properties.directory_id:
        lines.append(f"directory.id={properties.directory_id}")
    write_atomic(files, posixpath.join(log_dir, file_names.META_PROPERTIES), _join(lines))


def _read_text(files: Files, path: str) -> str | None:
    try:
        return files.read_file(path).decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint(f"{path}: {error}") from error


def _check_last_line(path: str, text: str) -> None:
    """Raise CorruptCheckpoint if the last line has no newline: its value may be incomplete."""
    if text and not text.endswith("\n"):
        raise CorruptCheckpoint(f"{path}: the file ends in the middle of a line")


def _read_entries(files: Files, path: str, *, fields: int) -> list[list[str]]:
    """Return the fields of each entry, of which the last two are integers.

    An empty file is treated as damaged.
    """
    text = _read_text(files, path)
    if text is None:
        return []
    # The number of entries does not reveal a truncated value: "12" may have been "123".
    _check_last_line(path, text)
    lines = text.splitlines()
    if len(lines) < 2:
        raise CorruptCheckpoint(f"{path} has {len(lines)} lines: the version or count is missing")
    try:
        version, count = int(lines[0]), int(lines[1])
        entries = [line.split() for line in lines[2:]]
        for entry in entries:
            if len(entry) != fields:
                raise ValueError(f"a line has {len(entry)} fields instead of {fields}")
            # Checked here, so that callers can convert the fields without error handling.
            for number in entry[fields - 2 :]:
                int(number)
    except ValueError as error:
        raise CorruptCheckpoint(f"{path}: {error}") from error
    if version != _VERSION or count != len(entries):
        raise CorruptCheckpoint(
            f"{path} has version {version} and {len(entries)} entries, instead of version"
            f" {_VERSION} and {count} entries"
        )
    return entries


def _write_entries(files: Files, path: str, lines: list[str]) -> None:
    write_atomic(files, path, _join([str(_VERSION), str(len(lines)), *lines]))


def _join(lines: list[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode()


def _parse_properties(text: str) -> dict[str, str]:
    """Parse the ``key=value`` lines of a Java properties file."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        stripped = line.strip()
        if stripped and stripped[0] not in "#!":
            key, _, value = stripped.partition("=")
            # Java escapes ':' and '=' in values with a backslash.
            values[key.strip()] = value.strip().replace("\\", "")
    return values
