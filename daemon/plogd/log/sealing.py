"""Sealing: making durable all of a segment that was just rolled, so that recovery may skip it.

A seal syncs the segment's records and indexes, and writes what a start needs beside it: the
snapshot of the producers' state at its end, and the leader epochs. It runs beside the sync rounds
of flush.py, as a job on the log directory's lane. `Log` rolls, and moves its recovery point when it
hears that the seal is done.

Source: Kafka 3.9 UnifiedLog.roll, UnifiedLog.flush; docs/architecture.md, rules R11 and R12.
Invariant: a segment counts as sealed only when everything above is on disk.
"""

from __future__ import annotations

from collections.abc import Callable

from plogd.log.deletion import lane_of
from plogd.log.io_errors import is_refusal
from plogd.log.log import Log
from plogd.log.log_segment import LogSegment
from plogd.ports import Jobs, Report, Timers

RETRY_MS = 60_000
"""How long to wait when there was no room for the snapshot or the epochs."""


class Sealing:
    """The seals of all logs of a broker; called on the reactor's thread.

    `storage_failed(log_dir, error)` hears what the disk could not do.
    """

    def __init__(
        self,
        *,
        jobs: Jobs,
        timers: Timers,
        report: Report,
        storage_failed: Callable[[str, OSError], None],
    ) -> None:
        self._jobs = jobs
        self._timers = timers
        self._report = report
        self._storage_failed = storage_failed

    def seal(self, log: Log, segment: LogSegment, end_offset: int) -> None:
        """Make `segment`, just rolled at `end_offset`, durable, then tell `log`."""
        self._submit(log, segment, log.producer_state.prepare_snapshot(end_offset))

    def _submit(self, log: Log, segment: LogSegment, write_snapshot: Callable[[], None]) -> None:
        files = segment.sync_files()
        held = [file.retain() for file in files if file.is_open]
        closed = [file for file in files if not file.is_open]  # The job opens them.
        # Prepared here, where nobody assigns an epoch meanwhile.
        write_epochs = log.leader_epochs.prepare_flush()

        def seal() -> OSError | None:
            """A job; what is returned is no failure, but there was no room."""
            try:
                for file in (*held, *closed):
                    file.sync()
            finally:
                for file in held:
                    file.close()
            try:
                write_epochs()
                write_snapshot()
            except OSError as error:
                if not is_refusal(error):
                    raise
                return error
            return None

        def done(refusal: OSError | None) -> None:
            if refusal is None:
                log.sealed(segment)
            else:
                self._put_off(log, segment, write_snapshot, refusal)

        def failed(error: Exception) -> None:
            if not log.closed:  # Else it was deleted meanwhile, its directory may be gone.
                cause = error if isinstance(error, OSError) else OSError(f"seal failed: {error!r}")
                self._storage_failed(log.log_dir, cause)

        self._jobs.submit(lane_of(log.log_dir), seal).then(done, failed)

    def _put_off(
        self, log: Log, segment: LogSegment, write_snapshot: Callable[[], None], error: OSError
    ) -> None:
        """A full disk breaks nothing: until it has room, recovery would read the segment again."""
        self._report(
            "cannot seal a segment of {topic_partition} yet: {error}",
            topic_partition=str(log.topic_partition),
            error=str(error),
            level="warn",
        )

        def again() -> None:
            if log.closed or log.offline:
                return
            if log.is_unsealed(segment):
                self._submit(log, segment, write_snapshot)
            else:
                self._note_producers(log, write_snapshot)

        self._timers.call_later(RETRY_MS, again)

    def _note_producers(self, log: Log, write_snapshot: Callable[[], None]) -> None:
        """The segment was deleted meanwhile: nothing but the snapshot tells of its producers."""

        def failed(error: Exception) -> None:
            if log.closed or log.offline:
                return
            if isinstance(error, OSError) and not is_refusal(error):
                self._storage_failed(log.log_dir, error)
            else:
                self._timers.call_later(RETRY_MS, lambda: self._note_producers(log, write_snapshot))

        self._jobs.submit(lane_of(log.log_dir), write_snapshot).then(lambda _: None, failed)
