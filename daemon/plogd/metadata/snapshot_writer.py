"""Write a metadata snapshot: a file with the records of an image, which replaces a part of the log.

A snapshot consists of ordinary record batches, whose offsets start at 0. The first batch contains
the control record SnapshotHeader, and the last one SnapshotFooter, which proves that the file is
complete. The file has the suffix ``.part`` until it is durable.

The image is encoded on the reactor's thread, in slices, and the bytes are written by jobs. A thread
that encodes records would take the interpreter lock for longer than a slice.

Source: KIP-630; Kafka 4.3 RecordsSnapshotWriter, FileRawSnapshotWriter.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeVar

from plog.records.batch import set_base_offset_and_epoch
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.records.control import ControlType, encode_control_key
from plog.wire.internal.raft_records import SnapshotFooterRecord, SnapshotHeaderRecord
from plogd.fair_queue import SLICE, FairQueue
from plogd.metadata.image import MetadataImage
from plogd.metadata.image_records import image_records
from plogd.metadata.record_batch import batch_of
from plogd.metadata.snapshot_name import PART_SUFFIX, SnapshotName
from plogd.ports import Cancelled, File, Files, Jobs

T = TypeVar("T")

_WRITE_BYTES: Final = 256 * 1024
"""Bytes to collect before a job writes them."""
_VERSION: Final = 0
"""The version of both control records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSnapshot:
    """The size of a snapshot that was written."""

    records: int
    size_bytes: int


class SnapshotWriter:
    """Writes one snapshot to `directory`; `lane` is that of its jobs.

    `may_continue` is called before each job; if it returns False, `write` fails with Cancelled and
    leaves the incomplete file.
    """

    def __init__(
        self,
        directory: str,
        name: SnapshotName,
        *,
        last_timestamp_ms: int,
        files: Files,
        jobs: Jobs,
        lane: str,
        fair_queue: FairQueue,
        may_continue: Callable[[], bool],
    ) -> None:
        self._directory = directory
        self._epoch = name.epoch
        self._path = posixpath.join(directory, name.file_name)
        self._part_path = self._path + PART_SUFFIX
        self._last_timestamp_ms = last_timestamp_ms
        self._files = files
        self._jobs = jobs
        self._lane = lane
        self._fair_queue = fair_queue
        self._may_continue = may_continue
        self._records = 0
        self._size_bytes = 0
        self._unwritten = bytearray()
        self._file: File | None = None

    async def write(self, image: MetadataImage) -> WrittenSnapshot:
        """Write the file durably; `image` must not change during that time.

        Raises Cancelled, and OSError after it has removed the incomplete file, if possible.
        """
        try:
            await self._submit(self._create)
            header = SnapshotHeaderRecord(
                version=_VERSION, last_contained_log_timestamp=self._last_timestamp_ms
            )
            self._add_control(ControlType.SNAPSHOT_HEADER, header.encode(_VERSION))
            records = image_records(image)
            while True:
                await self._fair_queue.turn()
                some = list(islice(records, SLICE))
                if not some:
                    break
                self._add_batch(batch_of(some, self._last_timestamp_ms), len(some))
                if len(self._unwritten) >= _WRITE_BYTES:
                    await self._submit(self._append(self._take()))
            footer = SnapshotFooterRecord(version=_VERSION)
            self._add_control(ControlType.SNAPSHOT_FOOTER, footer.encode(_VERSION))
            await self._submit(self._append(self._take()))
            await self._submit(self._complete)
        except Exception:
            job = self._remove if self._may_continue() else self._close
            # Only the first error is raised; the next snapshot or startup removes the file.
            with contextlib.suppress(Exception):
                await self._jobs.submit(self._lane, job)
            raise
        return WrittenSnapshot(records=self._records, size_bytes=self._size_bytes)

    # -- batches ------------------------------------------------------------------------------

    def _add_control(self, control_type: ControlType, value: bytes) -> None:
        record = Record(
            timestamp=self._last_timestamp_ms, key=encode_control_key(control_type), value=value
        )
        self._add_batch(bytearray(build_batch([record], is_control=True)), 1)

    def _add_batch(self, batch: bytearray, records: int) -> None:
        set_base_offset_and_epoch(batch, 0, self._records, self._epoch)
        self._records += records
        self._size_bytes += len(batch)
        self._unwritten += batch

    def _take(self) -> bytearray:
        taken, self._unwritten = self._unwritten, bytearray()
        return taken

    # -- jobs ---------------------------------------------------------------------------------

    async def _submit(self, job: Callable[[], T]) -> T:
        if not self._may_continue():
            raise Cancelled
        return await self._jobs.submit(self._lane, job)

    def _create(self) -> None:
        remove_parts(self._files, self._directory)
        self._file = self._files.open_append(self._part_path)

    def _append(self, data: bytearray) -> Callable[[], None]:
        def append() -> None:
            assert self._file is not None
            self._file.append(data)

        return append

    def _complete(self) -> None:
        assert self._file is not None
        # Before the rename, so that the name never refers to incomplete content.
        self._file.sync()
        self._close()
        self._files.rename(self._part_path, self._path)
        # Before the caller deletes the records that the snapshot replaces.
        self._files.sync_dir(self._directory)

    def _remove(self) -> None:
        self._close()
        self._files.unlink(self._part_path)

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def remove_parts(files: Files, directory: str) -> None:
    """Unlink incomplete snapshots in `directory`. Runs as a job. Raises OSError."""
    for name in files.listdir(directory):
        if name.endswith(PART_SUFFIX):
            files.unlink(posixpath.join(directory, name))


def remove_snapshots(files: Files, directory: str, names: Sequence[SnapshotName]) -> None:
    """Unlink complete snapshots. Runs as a job. Raises OSError."""
    for name in names:
        files.unlink(posixpath.join(directory, name.file_name))
