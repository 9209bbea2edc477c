"""Sealing: make all of a rolled segment durable, so that recovery may skip it.

A seal syncs the segment's records and indexes, and writes what a start needs besides them: the
snapshot of the producers' state at its end, and the leader epochs. It runs in parallel with the
sync rounds of flush.py, as a job on the log directory's lane. `Log` rolls, and advances its
recovery point when the seal is done.

An OSError from a sync takes the directory offline. A full disk, or an error that is a bug, costs
only this seal, which is tried again after `RETRY_MS` unless the log has been closed since: its
directory may belong to another topic of the same name by then.

Source: Kafka 3.9 UnifiedLog.roll, UnifiedLog.flush; docs/architecture.md, rules R11 and R12.
Invariants: a segment counts as sealed only when everything above is on disk; a snapshot in a log's
directory proves that all segments below its offset were sealed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plogd.log.deletion import lane_of
from plogd.log.housekeeping import RETRY_MS, Housekeeping
from plogd.log.index_rebuild import IndexRebuilds
from plogd.log.io_errors import is_refusal
from plogd.log.log import Log
from plogd.log.log_segment import LogSegment
from plogd.ports import File, Jobs, Timers

_TASK = "seal"


class Sealing:
    """The seals of all logs of a broker; called on the reactor's thread.

    `storage_failed(log_dir, error)` takes a log directory offline.
    """

    def __init__(
        self,
        *,
        jobs: Jobs,
        timers: Timers,
        housekeeping: Housekeeping,
        index_rebuilds: IndexRebuilds,
        storage_failed: Callable[[str, OSError], None],
    ) -> None:
        self._jobs = jobs
        self._timers = timers
        self._housekeeping = housekeeping
        self._index_rebuilds = index_rebuilds
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
            """A job; the error it returns means that there was no room, and is no failure."""
            opened: list[File] = []
            try:
                # Opened before the first sync: only what has not begun may be tried again.
                try:
                    opened.extend(file.retain() for file in closed)
                except OSError as error:
                    if not is_refusal(error):
                        raise
                    return error
                for file in (*held, *opened):
                    file.sync()
            finally:
                _close(opened)
            try:
                write_epochs()
                write_snapshot()
            except OSError as error:
                if not is_refusal(error):
                    raise
                return error
            return None

        def done(refusal: OSError | None) -> None:
            _close(held)
            if refusal is None:
                log.sealed(segment)
                if segment.index_is_suspect:  # While it was active, that had to wait.
                    self._index_rebuilds.check(log, segment)
            else:
                log.leader_epochs.is_dirty = True  # They may not have been written.
                self._put_off(log, segment, write_snapshot, refusal)

        def failed(error: Exception) -> None:
            _close(held)  # Here and not in the job, which may never have run.
            if log.closed:  # It was deleted meanwhile, its directory may be gone.
                return
            if isinstance(error, OSError):
                self._storage_failed(log.log_dir, error)
            else:
                log.leader_epochs.is_dirty = True  # They may not have been written.
                self._put_off(log, segment, write_snapshot, error)

        self._jobs.submit(lane_of(log.log_dir), seal).then(done, failed)

    def _put_off(
        self, log: Log, segment: LogSegment, write_snapshot: Callable[[], None], error: Exception
    ) -> None:
        """Try again later; until then, recovery would read the segment again."""
        self._housekeeping.failed(_TASK, str(log.topic_partition), error)

        def again() -> None:
            if log.is_unsealed(segment):
                self._submit(log, segment, write_snapshot)
            else:  # Retention has deleted it: only the snapshot knows its producers.
                self._note_producers(log, write_snapshot)

        self._retry(log, again)

    def _retry(self, log: Log, again: Callable[[], None]) -> None:
        def retry() -> None:
            # The directory of a closed log may be that of a new topic of the same name.
            if not (log.closed or log.offline):
                again()

        self._timers.call_later(RETRY_MS, retry)

    def _note_producers(self, log: Log, write_snapshot: Callable[[], None]) -> None:
        def failed(error: Exception) -> None:
            if log.closed or log.offline:
                return
            if isinstance(error, OSError) and not is_refusal(error):
                self._storage_failed(log.log_dir, error)
            else:
                self._housekeeping.failed(_TASK, str(log.topic_partition), error)
                self._retry(log, lambda: self._note_producers(log, write_snapshot))

        self._jobs.submit(lane_of(log.log_dir), write_snapshot).then(lambda _: None, failed)


def _close(files: Sequence[File]) -> None:
    for file in files:
        file.close()
