"""Write snapshots of the metadata while a broker runs, and delete the records that they replace.

A snapshot is due when `metadata.log.max.record.bytes.between.snapshots` bytes follow the newest
one, or `metadata.log.max.snapshot.interval.ms` after it if anything has changed. It contains the
image at the end of the log. The log rolls to a new segment at this offset, and the snapshot is
written while changes continue (snapshot_writer.py).

The two newest snapshots are kept, and the log since the older one. A broker can therefore start
even if the newest snapshot is damaged. Only when a snapshot is durable, the records before its
predecessor and all older snapshots are deleted. If an attempt fails, nothing is deleted, and
another one begins after `RETRY_MS`.

Called on the reactor's thread. Source: KIP-630; Kafka 4.3 SnapshotGenerator, KafkaMetadataLog.
Invariant: on disk, there is always a usable snapshot (or offset 0) with all records after it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from plogd.fair_queue import FairQueue
from plogd.log.deletion import lane_of
from plogd.log.disk.reserved_space import RECORDS_BYTES, keep_room
from plogd.log.housekeeping import RETRY_MS, Housekeeping
from plogd.log.log import Log
from plogd.metadata.image import MetadataImage
from plogd.metadata.image_loader import LoadedImage, snapshots_in
from plogd.metadata.snapshot_name import SnapshotName
from plogd.metadata.snapshot_writer import SnapshotWriter, remove_parts, remove_snapshots
from plogd.ports import Cancelled, Later, Ports, Timer, ready, spawn
from plogd.waiters import Waiters

_TASK: Final = "metadata-snapshot"
_ROOM_BYTES: Final = 4 * RECORDS_BYTES
"""Free space without which no snapshot is written, because it would take the space of the
metadata log's next segment."""


class SnapshotGenerator:
    """Writes the snapshots of one metadata log.

    Args:
        image: returns the image if it matches the end of the log, otherwise None.
        max_bytes, interval_ms: the two settings; an interval of 0 means that time does not count.
    """

    def __init__(
        self,
        log: Log,
        ports: Ports,
        *,
        fair_queue: FairQueue,
        housekeeping: Housekeeping,
        image: Callable[[], MetadataImage | None],
        loaded: LoadedImage,
        max_bytes: int,
        interval_ms: int,
    ) -> None:
        self._log = log
        self._clock = ports.clock
        self._timers = ports.timers
        self._files = ports.files
        self._jobs = ports.jobs
        self._report = ports.report
        self._fair_queue = fair_queue
        self._housekeeping = housekeeping
        self._image = image
        self._max_bytes = max_bytes
        self._interval_ms = interval_ms
        # Not the lane of the directory, whose other jobs must not wait for the sync of a snapshot.
        self._lane = f"{lane_of(log.log_dir)}:snapshot"
        self._newest = loaded.snapshot
        """The newest usable snapshot."""
        self.newest_bytes = loaded.snapshot_bytes
        """Size of the newest usable snapshot; 0 without one."""
        self._size_bytes = loaded.replayed.size_bytes
        """Size of the batches after the newest snapshot."""
        self._last_timestamp_ms = loaded.replayed.last_timestamp_ms
        self._since_ms = self._clock.monotonic_ms()
        """When the newest snapshot was begun or loaded."""
        self._has_room = False
        """Whether the disk has enough free space, according to the last check."""
        self._has_rolled = False
        """Whether a failed attempt has rolled the log, so that the next one need not."""
        self._is_busy = self._is_retrying = self._is_stopped = False
        self._timer: Timer | None = None
        """For the next check, which may be a retry."""
        self._ended: Waiters[None] = Waiters()

    def start(self) -> Later[None]:
        """Remove snapshots that a crash has left incomplete. Never fails."""
        return spawn(self._remove_parts())

    async def _remove_parts(self) -> None:
        job = partial(remove_parts, self._files, self._log.directory)
        try:
            await self._jobs.submit(self._lane, job)
        except Exception as error:
            self._housekeeping.failed(_TASK, self._log.topic_partition, error)

    def applied(self, size_bytes: int, timestamp_ms: int) -> None:
        """Count a batch that has been applied to the image, and write a snapshot if one is due."""
        self._size_bytes += size_bytes
        self._last_timestamp_ms = timestamp_ms
        self._check()

    def stop(self) -> Later[None]:
        """Write no more snapshots, and wait for the job in progress."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        return self._ended.wait() if self._is_busy else ready(None)

    @property
    def newest_age_ms(self) -> float:
        """Time since the newest snapshot was begun, or since the start without one."""
        return self._clock.monotonic_ms() - self._since_ms

    # -- when ---------------------------------------------------------------------------------

    def _check(self) -> None:
        """Begin the next step if a snapshot is due, or set a timer for the time when it is."""
        if self._is_busy or self._is_retrying or self._is_stopped:
            return
        # After a restart, the log may end at the newest snapshot.
        if not self._size_bytes or not self._log.is_writable:
            return
        wait_ms = self._wait_ms()
        if wait_ms is None:
            return
        if wait_ms > 0:
            if self._timer is None:
                self._check_after(wait_ms)
        elif not self._has_room:
            self._run(self._look_for_room())
        else:
            image = self._image()
            # If it does not match the log, `applied` is called soon.
            if image is not None and not self._log.is_being_written:
                self._has_room = False
                self._run(self._write(image.copy()))

    def _wait_ms(self) -> float | None:
        """Return the time until a snapshot is due; None if that depends on later changes."""
        if self._size_bytes >= self._max_bytes:
            return 0.0
        if not self._interval_ms:
            return None
        return self._since_ms + self._interval_ms - self._clock.monotonic_ms()

    def _check_after(self, delay_ms: float) -> None:
        def due() -> None:
            self._timer = None
            self._is_retrying = False
            self._check()

        if self._timer is not None:
            self._timer.cancel()

        self._timer = self._timers.call_later(delay_ms, due)

    # -- one attempt --------------------------------------------------------------------------

    def _run(self, step: Coroutine[Later[Any], Any, None]) -> None:
        def ended(_: None) -> None:
            self._is_busy = False
            self._ended.succeed(None)
            self._check()

        def failed(error: Exception) -> None:
            self._is_busy = False
            self._ended.succeed(None)
            # The broker is stopping, or the log directory is offline.
            if isinstance(error, Cancelled):
                return
            self._housekeeping.failed(_TASK, self._log.topic_partition, error)
            if not self._is_stopped:
                self._is_retrying = True
                self._check_after(RETRY_MS)

        self._is_busy = True
        spawn(step).then(ended, failed)

    async def _look_for_room(self) -> None:
        directory = self._log.directory
        space = await self._jobs.submit(self._lane, lambda: self._files.space(directory))
        # On a full disk, the active segment has reserved space, which a new segment may not get.
        if space.usable_bytes < _ROOM_BYTES:
            raise OSError(errno.ENOSPC, "No space left on device", directory)
        self._has_room = True

    async def _write(self, image: MetadataImage) -> None:
        log, end_offset, counted = self._log, self._log.log_end_offset, self._size_bytes
        epoch = log.leader_epochs.epoch_for_offset(end_offset - 1)
        name = SnapshotName(end_offset=end_offset, epoch=epoch)
        began_ms = self._clock.monotonic_ms()
        # Before the first wait, so that the new segment begins where the snapshot ends.
        if log.segments.active.size_bytes and not self._has_rolled:
            log.roll_soon()
            self._has_rolled = True
        # On a slow disk, a job rolls the log; the task `metadata-room` reserves the space later.
        if not log.is_being_written:
            await keep_room(log, self._jobs)
        writer = SnapshotWriter(
            log.directory,
            name,
            last_timestamp_ms=self._last_timestamp_ms,
            files=self._files,
            jobs=self._jobs,
            lane=self._lane,
            fair_queue=self._fair_queue,
            may_continue=lambda: log.is_writable and not self._is_stopped,
        )
        written = await writer.write(image)
        self._report(
            "wrote metadata snapshot {name}: {records} records, {size_bytes} bytes",
            name=name.file_name,
            records=written.records,
            size_bytes=written.size_bytes,
            topic_partition=log.topic_partition,
        )
        previous, self._newest = self._newest, name
        self.newest_bytes = written.size_bytes
        self._size_bytes -= counted
        self._since_ms = began_ms
        self._has_rolled = False
        await self._delete_older(name, previous)

    async def _delete_older(self, name: SnapshotName, previous: SnapshotName | None) -> None:
        """Delete what is no longer needed to load `previous` or `name`."""
        log = self._log
        if not log.is_writable:
            return
        # Without a previous snapshot, the log begins at offset 0 and takes its place.
        if previous is not None:
            log.delete_records_before(previous.end_offset)

        def remove() -> None:
            found = snapshots_in(self._files, log.directory)
            # These include damaged snapshots.
            older = [one for one in found if one not in (name, previous)]
            remove_snapshots(self._files, log.directory, older)

        await self._jobs.submit(self._lane, remove)
