"""The durable mark of a log that lacks records which other replicas may have (rule C2).

A log lacks records if its disk was replaced, if a file was removed or truncated, or if a batch that
was durable is damaged. The mark is the file ``lost-records`` in the partition's directory, which
Kafka ignores. It is written before anything else hides the loss, and removed when the replica has
left the in-sync replicas: then it can lead only after it has copied everything.

recovery/log_recovery.py, and replica/cluster/lost_records.py for logs that are missing, find
losses. The latter decides what such a replica may do. Partitions with a single replica get no mark:
their leader continues after the loss. A mark remains if a partition loses its other replicas.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from plog.errors import KafkaStorageError
from plog.types import TopicPartition
from plogd.log import file_names
from plogd.log.disk.checkpoint_files import write_atomic
from plogd.log.disk.log_dir import LogDir
from plogd.log.io_errors import describe
from plogd.ports import Files, Jobs

_VERSION = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLoss:
    """What a log lacks."""

    first_offset: int
    """The first offset that is missing or damaged."""
    lacks_end: bool
    """Whether the end of the log is missing, so that this replica must not lead at all: it would
    assign offsets again that consumers have read. Otherwise, the later records can be read."""

    def merged(self, other: LogLoss | None) -> LogLoss:
        """Return both losses as one."""
        if other is None:
            return self
        return LogLoss(
            first_offset=min(self.first_offset, other.first_offset),
            lacks_end=self.lacks_end or other.lacks_end,
        )


def read_loss(files: Files, directory: str) -> LogLoss | None:
    """Return the loss in a partition's directory, or None. A damaged mark counts as a full loss."""
    try:
        text = files.read_file(posixpath.join(directory, file_names.LOST_RECORDS)).decode()
        values = dict(line.split(": ", 1) for line in text.splitlines())
        return LogLoss(
            first_offset=int(values["first_offset"]), lacks_end=values["lacks_end"] != "false"
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError):
        return LogLoss(first_offset=0, lacks_end=True)


def write_loss(files: Files, directory: str, loss: LogLoss) -> None:
    """Durably write the mark. Raises OSError."""
    write_atomic(files, posixpath.join(directory, file_names.LOST_RECORDS), _encode(loss))


def write_first_loss(files: Files, directory: str, loss: LogLoss, *, sync: bool) -> None:
    """Write the mark in a new directory, and make it durable if `sync` is set. Raises OSError."""
    file = files.open_append(posixpath.join(directory, file_names.LOST_RECORDS))
    try:
        file.append(_encode(loss))
        if sync:
            file.sync()
    finally:
        file.close()


def _encode(loss: LogLoss) -> bytes:
    lines = (
        f"version: {_VERSION}",
        f"first_offset: {loss.first_offset}",
        f"lacks_end: {str(loss.lacks_end).lower()}",
    )
    return "".join(f"{line}\n" for line in lines).encode()


class LossMark:
    """The mark of a log that is being loaded; `loss` is what it says. Used in jobs."""

    def __init__(self, files: Files, directory: str, *, is_kept: bool) -> None:
        """Without `is_kept`, new losses are not recorded: there are no other replicas."""
        self._files = files
        self._directory = directory
        self._is_kept = is_kept
        # An earlier mark counts, because the partition may have had other replicas before.
        self.loss = read_loss(files, directory)

    def note(self, loss: LogLoss) -> None:
        """Add a loss, durably. Raises OSError."""
        merged = loss.merged(self.loss)
        if self._is_kept and merged != self.loss:
            write_loss(self._files, self._directory, merged)
            self.loss = merged


class LogLosses:
    """The losses of a broker's open logs. Called on the reactor's thread."""

    def __init__(
        self, files: Files, jobs: Jobs, *, storage_failed: Callable[[str, OSError], None]
    ) -> None:
        self._files = files
        self._jobs = jobs
        self._storage_failed = storage_failed
        self._losses: dict[TopicPartition, LogLoss] = {}

    def opened(self, topic_partition: TopicPartition, loss: LogLoss | None) -> None:
        """Note what a log lacks that was loaded or created."""
        if loss is None:
            self._losses.pop(topic_partition, None)
        else:
            self._losses[topic_partition] = loss

    def get(self, topic_partition: TopicPartition) -> LogLoss | None:
        """Return what the log of a partition lacks, or None."""
        return self._losses.get(topic_partition)

    async def all_marked(self, log_dirs: Iterable[LogDir]) -> None:
        """Note that every lost log in these directories has been created, with its mark."""
        for log_dir in log_dirs:
            if log_dir.may_lack_logs:
                try:
                    await self._jobs.submit(log_dir.lane, log_dir.remove_new_mark)
                except OSError as error:
                    self._storage_failed(log_dir.path, error)

    async def clear(
        self, topic_partition: TopicPartition, *, log_dir: str, directory: str, lane: str
    ) -> None:
        """Durably remove the mark of a log. Raises KafkaStorageError."""

        def remove() -> None:
            path = posixpath.join(directory, file_names.LOST_RECORDS)
            if self._files.exists(path):
                self._files.unlink(path)
                self._files.sync_dir(directory)

        try:
            await self._jobs.submit(lane, remove)
        except OSError as error:
            self._storage_failed(log_dir, error)
            raise KafkaStorageError(
                f"{topic_partition}: cannot remove {file_names.LOST_RECORDS} in {directory}:"
                f" {describe(error)}"
            ) from error
        self._losses.pop(topic_partition, None)
