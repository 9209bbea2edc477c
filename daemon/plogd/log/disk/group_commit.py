"""Group commit: sync dirty logs in rounds, one at a time, and advance their durable ends.

Each file system (``st_dev``) has one `SyncRounds`. A log requests a sync after an append. If no
round is in progress, a round starts at the end of the turn. It includes *every* log that has
requested a sync, and records each log's end. Appends made during a round wait for the next round.
Rounds therefore grow with the load, while an idle broker syncs a single request immediately. A
round is delayed briefly only if clients of the last round are expected to send again
(commit_delay.py).

A round consists of several ``fdatasync`` calls, or of a single ``syncfs`` if many files are dirty
and ``syncfs`` reports errors (ext4 and xfs, Linux >= 5.8). The choice depends on recently measured
costs. If a sync fails, the log directory goes offline.

Called on the reactor's thread, except `_sync_files` and `_sync_file_system`, which run as jobs.
Invariant: a log's durable end only advances to an end that was recorded before the sync began.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Protocol

from plogd.log.disk.bound_call import bind
from plogd.log.disk.commit_delay import CommitDelay
from plogd.log.disk.sync_costs import SyncCosts
from plogd.log.io_errors import storage_error
from plogd.notify_all import notify_all
from plogd.ports import File, Later, Ports, failed, gather, ready, spawn
from plogd.waiters import Waiters

_PARALLEL_LANES = 8
"""Number of jobs that share the files in a large round if ``syncfs`` is not used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncTicket:
    """A log's part of a sync round: the files to sync, and the end that then becomes durable."""

    log: Syncable
    end_offset: int
    files: Sequence[File]
    directory: str | None
    """The log's directory if it contains new names that must be synced; otherwise None."""

    def release(self) -> None:
        """Release the files, which are retained for the job."""
        for file in self.files:
            file.close()


class Syncable(Protocol):
    """The parts of a `Log` that group commit uses."""

    @property
    def log_dir(self) -> str:
        """The log directory (an entry of ``log.dirs``) that goes offline when a sync fails."""
        ...

    @property
    def closed(self) -> bool:
        """Whether the log no longer needs syncs; set before its directory is renamed."""
        ...

    def begin_sync(self) -> SyncTicket | None:
        """Return the dirty files and the current end; None if the log has been closed."""
        ...

    def complete_sync(self, ticket: SyncTicket) -> None:
        """Record that the ticket's files are durable."""
        ...


class SyncFailed(Exception):
    """A sync has failed, so it is unknown what these log directories contain on disk."""

    def __init__(self, log_dirs: Sequence[str], error: OSError) -> None:
        super().__init__(f"{', '.join(log_dirs)}: {error}")
        self.log_dirs = tuple(log_dirs)
        self.error = error


class SyncRounds:
    """The sync rounds for one file system.

    `log_dirs` are the log directories on the file system. While more than `max_unsynced_bytes` are
    pending, appends must wait for `room`. `on_failure` is called with the directories in which a
    sync failed; the durable ends of their logs do not advance.
    """

    def __init__(
        self,
        ports: Ports,
        *,
        log_dirs: Sequence[str],
        on_failure: Callable[[Sequence[str], OSError], None],
        max_unsynced_bytes: int,
        use_sync_fs: bool,
    ) -> None:
        self._log_dirs = tuple(log_dirs)
        self._path = log_dirs[0]
        self._files = ports.files
        self._jobs = ports.jobs
        self._clock = ports.clock
        self._turn = ports.turn
        self._on_failure = on_failure
        self._max_unsynced_bytes = max_unsynced_bytes
        self._may_sync_fs = use_sync_fs and self._files.supports_sync_fs(self._path)
        # Not a directory's lane, because a sync must not wait for a deletion or a seal.
        self._lane = f"sync:{self._files.device(self._path)}"
        self._costs = SyncCosts()
        self._dirty: dict[Syncable, int] = {}
        """Logs that have requested a sync, in order, each with the number of appended bytes."""
        self._unsynced_bytes = 0
        self._round_bytes = 0
        self._unwritten_bytes = 0
        self._in_flight = False
        self._scheduled = False
        self._commit_delay = CommitDelay(
            ports.clock, ports.timers, lambda: self._turn.defer(self._begin)
        )
        self._waiting_for_room: deque[Later[None]] = deque()
        self._waiting_for_idle: list[Later[None]] = []
        self._waiting_for_round: Waiters[None] = Waiters()
        self.rounds = 0
        self.synced_logs = 0
        self.file_system_rounds = 0

    def request(self, log: Syncable, nbytes: int) -> None:
        """Include `log`, which has appended `nbytes`, in the next round."""
        self._dirty[log] = self._dirty.get(log, 0) + nbytes
        self._unsynced_bytes += nbytes
        self._commit_delay.sync_requested()
        self._schedule()

    def hold(self, nbytes: int) -> None:
        """Add `nbytes` to the bytes that wait to be written; a negative number releases them."""
        # The same limit applies to these bytes, because a slow disk must not exhaust memory.
        self._unwritten_bytes += nbytes
        if nbytes < 0:
            notify_all(self._wake_ups())

    @property
    def has_room(self) -> bool:
        """Whether an append can run now, without waiting for `room`."""
        unsafe_bytes = self._unsynced_bytes + self._unwritten_bytes
        # A new append must not overtake appends that are already waiting.
        return unsafe_bytes < self._max_unsynced_bytes and not self._waiting_for_room

    def room(self) -> Later[None]:
        """Wait until fewer bytes than the limit are pending; waiters are woken in order."""
        if self.has_room:
            return ready(None)
        later: Later[None] = Later()
        self._waiting_for_room.append(later)
        return later

    def idle(self) -> Later[None]:
        """Wait until no write, sync request or round is pending; used during shutdown."""
        if self._is_idle:
            return ready(None)
        later: Later[None] = Later()
        self._waiting_for_idle.append(later)
        return later

    def round_ended(self) -> Later[None]:
        """Wait until the round in progress has ended."""
        return self._waiting_for_round.wait() if self._in_flight else ready(None)

    @property
    def _is_idle(self) -> bool:
        return not (self._in_flight or self._dirty or self._unwritten_bytes)

    def _schedule(self) -> None:
        if not (self._in_flight or self._scheduled):
            self._scheduled = True
            # At the end of the turn, so that all appends of the turn share the round.
            self._turn.defer(self._start)

    def _start(self) -> None:
        """Begin a round, either now or after waiting for the expected requests."""
        must_wait = False
        try:
            # Appends that wait for room need this round to end, so the delay would be wasted.
            must_wait = not self._waiting_for_room and self._commit_delay.must_wait()
        finally:  # Even after an exception: otherwise, no other round would ever be scheduled.
            if not must_wait:
                self._begin()

    def _begin(self) -> None:
        self._scheduled = False
        self._commit_delay.round_begins()
        # The ends are recorded before the sync begins, because the sync may miss later appends.
        tickets = [ticket for log in self._dirty if (ticket := log.begin_sync()) is not None]
        self._dirty.clear()
        # Bytes that are appended from now on belong to the next round.
        self._round_bytes = self._unsynced_bytes
        self._in_flight = True
        self.rounds += 1
        self.synced_logs += len(tickets)
        try:
            syncing = self._sync(tickets)
        except Exception as error:  # Handled like a failed job, because tickets must be released.
            syncing = failed(error)
        syncing.then(
            lambda failures: self._finish(tickets, failures),
            lambda error: self._finish(tickets, [_as_failure(tickets, error)]),
        )

    def _sync(self, tickets: Sequence[SyncTicket]) -> Later[list[SyncFailed]]:
        """Run one round; return the failures. All other directories are durable afterward."""
        file_count = sum(len(ticket.files) + (ticket.directory is not None) for ticket in tickets)
        if not file_count:
            return ready([])
        if self._may_sync_fs and self._costs.prefers_file_system(
            file_count, self._clock.monotonic_ms()
        ):
            self.file_system_rounds += 1
            return self._jobs.submit(self._lane, lambda: self._sync_file_system(tickets))
        # If syncfs is available, large rounds use it as soon as it is cheaper, and its cost is
        # compared with the cost of sequential syncs. Otherwise, parallel jobs sync large rounds.
        if self._may_sync_fs or file_count < 2 * _PARALLEL_LANES:
            return self._jobs.submit(self._lane, lambda: self._sync_files(tickets))
        return spawn(self._sync_side_by_side(tickets))

    async def _sync_side_by_side(self, tickets: Sequence[SyncTicket]) -> list[SyncFailed]:
        shares = [tickets[start::_PARALLEL_LANES] for start in range(_PARALLEL_LANES)]
        jobs = [
            self._jobs.submit(f"{self._lane}:{number}", bind(self._sync_files, share))
            for number, share in enumerate(shares)
            if share
        ]
        return [failure for failures in await gather(jobs) for failure in failures]

    def _sync_files(self, tickets: Sequence[SyncTicket]) -> list[SyncFailed]:
        """Call ``fdatasync`` for each file; a failure affects only one log directory. A job."""
        failures: list[SyncFailed] = []
        count, started_ms = 0, self._clock.monotonic_ms()
        for ticket in tickets:
            try:
                for file in ticket.files:
                    file.sync()
                    count += 1
                if ticket.directory is not None:
                    self._sync_directory(ticket.log, ticket.directory)
                    count += 1
            # Never retried: the kernel may have dropped the pages that it failed to write, and the
            # next call would report success ("fsyncgate").
            except Exception as error:
                failure = storage_error("sync", error)
                failures.append(SyncFailed([ticket.log.log_dir], failure))
        if count:
            now_ms = self._clock.monotonic_ms()
            self._costs.observe_files(count, now_ms - started_ms, now_ms)
        return failures

    def _sync_directory(self, log: Syncable, directory: str) -> None:
        try:
            self._files.sync_dir(directory)
        except FileNotFoundError:
            if not log.closed:  # A log deleted during the round does not need durable names.
                raise

    def _sync_file_system(self, tickets: Sequence[SyncTicket]) -> list[SyncFailed]:
        """Call ``syncfs`` once; a failure affects every log directory. Runs as a job."""
        started_ms = self._clock.monotonic_ms()
        try:
            self._files.sync_fs(self._path)
        except Exception as error:
            return [SyncFailed(self._log_dirs, storage_error("sync", error))]
        now_ms = self._clock.monotonic_ms()
        self._costs.observe_file_system(now_ms - started_ms, now_ms)
        return []

    def _finish(self, tickets: Sequence[SyncTicket], failures: Sequence[SyncFailed]) -> None:
        self._in_flight = False
        self._unsynced_bytes -= self._round_bytes
        failed_dirs = {log_dir for failure in failures for log_dir in failure.log_dirs}
        durable = [ticket for ticket in tickets if ticket.log.log_dir not in failed_dirs]
        calls: list[Callable[[], None]] = [
            *(partial(ticket.log.complete_sync, ticket) for ticket in durable),
            *(ticket.release for ticket in tickets),
            *(partial(self._on_failure, one.log_dirs, one.error) for one in failures),
            partial(self._waiting_for_round.succeed, None),
            self._continue,
        ]
        notify_all(calls)

    def _continue(self) -> None:
        calls: list[Callable[[], None]] = [
            # Deferred, because the delay of the next round is measured from the end of this turn,
            # when the responses of this round have been sent.
            partial(self._turn.defer, self._commit_delay.round_answered),
            *([self._schedule] if self._dirty else []),
        ]
        notify_all(chain(calls, self._wake_ups()))

    def _wake_ups(self) -> Iterator[Callable[[], None]]:
        """Yield wake-ups as long as there is room; each woken append may use up the room."""
        while (
            self._waiting_for_room
            and self._unsynced_bytes + self._unwritten_bytes < self._max_unsynced_bytes
        ):
            yield partial(self._waiting_for_room.popleft().succeed, None)
        if self._is_idle and self._waiting_for_idle:
            yield partial(self._turn.defer, self._notify_idle)

    def _notify_idle(self) -> None:
        """Wake the waiters of `idle`, unless another append has been made in the meantime."""
        if self._is_idle:
            waiting, self._waiting_for_idle = self._waiting_for_idle, []
            notify_all(partial(later.succeed, None) for later in waiting)


def _as_failure(tickets: Sequence[SyncTicket], error: Exception) -> SyncFailed:
    """Return one failure for all tickets, because the job did not report what it had synced."""
    log_dirs = sorted({ticket.log.log_dir for ticket in tickets})
    return SyncFailed(log_dirs, storage_error("sync job", error))
