"""Load the metadata image when a broker starts: the newest usable snapshot, and the log after it.

Of a snapshot that is damaged, or that cannot be read, nothing is used. An older snapshot, or the
log alone, then yields the same image, because the log keeps the records since the second newest
snapshot (snapshot_generator.py). If records are missing between a snapshot and the log, the startup
is aborted: otherwise, the broker would run without some of its topics or settings.

Source: KIP-630; Kafka 4.3 KafkaMetadataLog.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from plog.errors import KafkaStorageError
from plogd.log.log import Log
from plogd.metadata.image import MetadataImage
from plogd.metadata.log_replay import Replayed, replay_log
from plogd.metadata.snapshot_name import SnapshotName, parse_snapshot_name
from plogd.metadata.snapshot_reader import CorruptSnapshot, read_snapshot
from plogd.ports import Files, Report, size_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedImage:
    """An image, and the snapshot and the batches from which it was loaded."""

    image: MetadataImage
    snapshot: SnapshotName | None
    """None if the whole log was replayed."""
    snapshot_bytes: int
    """The size of the snapshot."""
    replayed: Replayed


def load_image(files: Files, log: Log, report: Report) -> LoadedImage:
    """Load the metadata in the directory of `log`.

    Raises KafkaStorageError if records are missing, damaged or unknown.
    """
    problems: list[str] = []
    for name in sorted(snapshots_in(files, log.directory), reverse=True):
        image = _read_usable(files, log, name, problems)
        if image is not None:
            replayed = replay_log(log, image, name.end_offset)
            _report_problems(report, log, problems, f"{name.file_name} and the later records")
            report(
                "loaded metadata snapshot {name} and {size_bytes} bytes of later records",
                name=name.file_name,
                size_bytes=replayed.size_bytes,
                topic_partition=log.topic_partition,
            )
            path = posixpath.join(log.directory, name.file_name)
            return LoadedImage(
                image=image,
                snapshot=name,
                snapshot_bytes=size_of(files, path),
                replayed=replayed,
            )
    if log.log_start_offset:
        why = "; ".join(problems) or "there is no .checkpoint file"
        raise KafkaStorageError(
            f"cannot load the metadata in {log.directory}: the records below offset "
            f"{log.log_start_offset} exist only in snapshots, and no snapshot can be used: {why}; "
            "restore the files of this directory from a backup"
        )
    image = MetadataImage()
    replayed = replay_log(log, image, 0)
    _report_problems(report, log, problems, "all records of the log")
    return LoadedImage(image=image, snapshot=None, snapshot_bytes=0, replayed=replayed)


def snapshots_in(files: Files, directory: str) -> list[SnapshotName]:
    """Return the complete snapshots in a directory. Raises KafkaStorageError."""
    try:
        found = [parse_snapshot_name(name) for name in files.listdir(directory)]
    except OSError as error:
        raise KafkaStorageError(f"cannot list {directory}: {error}") from error
    # Kafka writes a snapshot of offset 0, which no log needs, when it formats a directory.
    return [name for name in found if name is not None and name.end_offset > 0]


def _read_usable(
    files: Files, log: Log, name: SnapshotName, problems: list[str]
) -> MetadataImage | None:
    """Return the image in a snapshot, or None if it cannot be used; the reason is a problem."""
    path = posixpath.join(log.directory, name.file_name)
    if name.end_offset > log.log_end_offset:
        raise KafkaStorageError(
            f"cannot load the metadata in {log.directory}: {name.file_name} replaces the records "
            f"below offset {name.end_offset}, but the log ends at offset {log.log_end_offset}, "
            "because a file was truncated or removed; restore the files of this directory from a "
            "backup"
        )
    if name.end_offset < log.log_start_offset:
        problems.append(
            f"{path} ends at offset {name.end_offset}, and the log begins only at offset "
            f"{log.log_start_offset}"
        )
        return None
    try:
        return read_snapshot(files, log.directory, name)
    except (OSError, CorruptSnapshot) as error:
        problems.append(f"{path}: {error}")
        return None


def _report_problems(report: Report, log: Log, problems: list[str], loaded: str) -> None:
    if problems:
        report(
            "cannot use a metadata snapshot: {problems}; loaded {loaded}, which contain the same"
            " metadata; check the disk",
            problems="; ".join(problems),
            loaded=loaded,
            topic_partition=log.topic_partition,
            level="error",
        )
