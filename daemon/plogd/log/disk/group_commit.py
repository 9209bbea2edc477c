"""Group commit: one round of disk syncs at a time makes all that was appended before it durable.

A file system (``st_dev``) has one `SyncRounds`. A log that appended asks for a sync; when no
round is in flight one starts at the end of the turn and takes *every* log that asked, noting each
log's end. Appends made during a round wait for the next. Under load the rounds grow by themselves;
an idle broker, or a single request in flight, is synced at once. Only for those whom the last round
has just answered does one wait a moment (commit_delay.py).

A round is some ``fdatasync`` calls, or a single ``syncfs`` where many files are dirty and the
kernel reports its errors (ext4 and xfs, Linux >= 5.8); which one is cheaper is learned from
running costs. A sync that fails is never repeated: its pages may be gone while the next call
reports success ("fsyncgate"), so the log directory goes offline instead.

Called on the reactor's thread, except `_sync_files` and `_sync_file_system`, which are jobs.
Invariant: a log's durable end only ever becomes an end noted before the sync began.
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
from plogd.ports import Clock, File, Files, Jobs, Later, Timers, Turn, failed, gather, ready, spawn

_PARALLEL_LANES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncTicket:
    """What one log wants durable: the files to sync, and the end offset that then is."""

    log: Syncable
    end_offset: int
    files: Sequence[File]
    directory: str | None
    """The directory to sync too, when it holds a name that is not durable yet."""

    def release(self) -> None:
        """Let go of the files, which were retained for the job."""
        for file in self.files:
            file.close()


class Syncable(Protocol):
    """A log, as group commit sees it."""

    @property
    def log_dir(self) -> str:
        """The log directory (an entry of ``log.dirs``) that goes offline when a sync fails."""
        ...

    @property
    def closed(self) -> bool:
        """Whether nothing of it needs to last any more; set before its directory is renamed."""
        ...

    def begin_sync(self) -> SyncTicket | None:
        """Note what is dirty now; None when the log was closed meanwhile."""
        ...

    def complete_sync(self, ticket: SyncTicket) -> None:
        """The ticket's files are durable."""
        ...


class SyncFailed(Exception):
    """A sync reported an error: these log directories can no longer be trusted."""

    def __init__(self, log_dirs: Sequence[str], error: OSError) -> None:
        super().__init__(f"{', '.join(log_dirs)}: {error}")
        self.log_dirs = tuple(log_dirs)
        self.error = error


class SyncRounds:
    """The sync rounds of one file system; see the module's text.

    `log_dirs` are the log directories on it, `max_unsynced_bytes` the bound beyond which appends
    must wait for `room`. `on_failure` hears the directories whose sync failed: their logs stay as
    they are, nothing of them becomes durable.
    """

    def __init__(
        self,
        *,
        log_dirs: Sequence[str],
        files: Files,
        jobs: Jobs,
        clock: Clock,
        turn: Turn,
        timers: Timers,
        on_failure: Callable[[Sequence[str], OSError], None],
        max_unsynced_bytes: int,
        use_sync_fs: bool,
    ) -> None:
        self._log_dirs = tuple(log_dirs)
        self._path = log_dirs[0]
        self._files = files
        self._jobs = jobs
        self._clock = clock
        self._turn = turn
        self._on_failure = on_failure
        self._max_unsynced_bytes = max_unsynced_bytes
        self._may_sync_fs = use_sync_fs and files.supports_sync_fs(self._path)
        self._lane = f"sync:{files.device(self._path)}"
        self._costs = SyncCosts()
        self._dirty: dict[Syncable, int] = {}
        """Logs that asked, in the order they did, with the bytes each appended since."""
        self._unsynced_bytes = 0
        self._round_bytes = 0
        self._unwritten_bytes = 0
        self._in_flight = False
        self._scheduled = False
        self._company = CommitDelay(clock, timers, lambda: turn.defer(self._begin))
        self._waiting_for_room: deque[Later[None]] = deque()
        self._waiting_for_idle: list[Later[None]] = []
        self.rounds = 0
        self.synced_logs = 0
        self.file_system_rounds = 0

    def request(self, log: Syncable, nbytes: int) -> None:
        """`log` appended `nbytes` and wants them durable in the next round."""
        self._dirty[log] = self._dirty.get(log, 0) + nbytes
        self._unsynced_bytes += nbytes
        self._company.came()
        self._schedule()

    def hold(self, nbytes: int) -> None:
        """`nbytes` more, or fewer, wait to be written before anybody can ask for their sync."""
        self._unwritten_bytes += nbytes
        if nbytes < 0:
            notify_all(self._to_wake())

    @property
    def has_room(self) -> bool:
        """Whether an append may be made now, or must wait for `room` behind others."""
        unsafe_bytes = self._unsynced_bytes + self._unwritten_bytes
        return unsafe_bytes < self._max_unsynced_bytes and not self._waiting_for_room

    def room(self) -> Later[None]:
        """Wait, first come first served, until the unsynced bytes are below their bound."""
        if self.has_room:
            return ready(None)
        later: Later[None] = Later()
        self._waiting_for_room.append(later)
        return later

    def idle(self) -> Later[None]:
        """Wait until nothing is to be written or dirty and no round is in flight (shutdown)."""
        if self._is_idle:
            return ready(None)
        later: Later[None] = Later()
        self._waiting_for_idle.append(later)
        return later

    @property
    def _is_idle(self) -> bool:
        return not (self._in_flight or self._dirty or self._unwritten_bytes)

    def _schedule(self) -> None:
        if not (self._in_flight or self._scheduled):
            self._scheduled = True
            self._turn.defer(self._start)

    def _start(self) -> None:
        """Begin a round, now or when those are here whom the last one has answered."""
        must_wait = False
        try:
            must_wait = not self._waiting_for_room and self._company.must_wait()
        finally:
            if not must_wait:
                self._begin()

    def _begin(self) -> None:
        self._scheduled = False
        self._company.round_begins()
        tickets = [ticket for log in self._dirty if (ticket := log.begin_sync()) is not None]
        self._dirty.clear()
        self._round_bytes = self._unsynced_bytes
        self._in_flight = True
        self.rounds += 1
        self.synced_logs += len(tickets)
        try:
            syncing = self._sync(tickets)
        except Exception as error:
            syncing = failed(error)
        syncing.then(
            lambda failures: self._finish(tickets, failures),
            lambda error: self._finish(tickets, [_as_failure(tickets, error)]),
        )

    def _sync(self, tickets: Sequence[SyncTicket]) -> Later[list[SyncFailed]]:
        """Run one round; the failures, none of which concerns a ticket not named in them."""
        file_count = sum(len(ticket.files) + (ticket.directory is not None) for ticket in tickets)
        if not file_count:
            return ready([])
        if self._may_sync_fs and self._costs.prefers_file_system(
            file_count, self._clock.monotonic_ms()
        ):
            self.file_system_rounds += 1
            return self._jobs.submit(self._lane, lambda: self._sync_file_system(tickets))
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
        """A job: ``fdatasync`` each file; a failure costs its own log directory only."""
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
            if not log.closed:  # Deleted since the round began: nobody waits for its names.
                raise

    def _sync_file_system(self, tickets: Sequence[SyncTicket]) -> list[SyncFailed]:
        """A job: one ``syncfs``; its error cannot be told apart, so it costs every directory."""
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
            self._go_on,
        ]
        notify_all(calls)

    def _go_on(self) -> None:
        calls: list[Callable[[], None]] = [
            # What has become durable is answered in this turn, which takes longer the more that is.
            partial(self._turn.defer, self._company.round_answered),
            *([self._schedule] if self._dirty else []),
        ]
        notify_all(chain(calls, self._to_wake()))

    def _to_wake(self) -> Iterator[Callable[[], None]]:
        """One after the other, as long as there is room: each may append."""
        while (
            self._waiting_for_room
            and self._unsynced_bytes + self._unwritten_bytes < self._max_unsynced_bytes
        ):
            yield partial(self._waiting_for_room.popleft().succeed, None)
        if self._is_idle and self._waiting_for_idle:
            yield partial(self._turn.defer, self._tell_idle)

    def _tell_idle(self) -> None:
        """Wake those who wait for it, unless what was made durable has led to another append."""
        if self._is_idle:
            waiting, self._waiting_for_idle = self._waiting_for_idle, []
            notify_all(partial(later.succeed, None) for later in waiting)


def _as_failure(tickets: Sequence[SyncTicket], error: Exception) -> SyncFailed:
    """A sync that ended without saying what it had synced leaves every ticket in doubt."""
    log_dirs = sorted({ticket.log.log_dir for ticket in tickets})
    return SyncFailed(log_dirs, storage_error("sync job", error))
