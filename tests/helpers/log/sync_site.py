"""A device with two log directories and its sync rounds, and logs as group commit sees them."""

from __future__ import annotations

from collections.abc import Sequence

from plogd.log.disk.group_commit import SyncRounds, SyncTicket
from plogd.ports import File
from tests.helpers.sim.sim_files import Operation, SimFiles
from tests.helpers.sim.sim_ports import SimPorts


class DirtyLog:
    """A log as group commit sees it: files, an end offset, and the ends reported as durable."""

    def __init__(self, site: Site, name: str, log_dir: str, file_count: int) -> None:
        self.log_dir = log_dir
        self.directory = f"{log_dir}/{name}"
        self.closed = False
        self.end_offset = 0
        self.durable: list[int] = []
        self.directory_is_dirty = False
        self._rounds = site.rounds
        site.files.mkdir(self.directory)
        self.files: list[File] = [
            site.files.open_append(f"{self.directory}/{number}") for number in range(file_count)
        ]

    def append(self, nbytes: int = 10) -> None:
        for file in self.files:
            file.append(b"x" * nbytes)
        self.end_offset += 1
        self._rounds.request(self, nbytes)

    def begin_sync(self) -> SyncTicket | None:
        if self.closed:
            return None
        files = [file.retain() for file in self.files]
        directory = self.directory if self.directory_is_dirty else None
        return SyncTicket(log=self, end_offset=self.end_offset, files=files, directory=directory)

    def complete_sync(self, ticket: SyncTicket) -> None:
        self.durable.append(ticket.end_offset)


class Site:
    """The sync rounds of one device with two log directories."""

    def __init__(self, *, sync_fs: bool = True, max_unsynced_bytes: int = 1000) -> None:
        self.files = SimFiles(["/a", "/b"])
        self.ports = SimPorts(files=self.files)
        self.files.sync_fs_supported = sync_fs
        self.failures: list[tuple[Sequence[str], int | None]] = []
        self.operations: list[str] = []
        self.rounds = SyncRounds(
            self.ports.bundle(),
            log_dirs=["/a", "/b"],
            on_failure=lambda log_dirs, error: self.failures.append((log_dirs, error.errno)),
            max_unsynced_bytes=max_unsynced_bytes,
            use_sync_fs=True,
        )
        self.files.on_operation = self._observe

    def _observe(self, operation: Operation) -> None:
        if operation.name.startswith("sync"):
            self.operations.append(operation.name)

    def log(self, name: str = "t-0", log_dir: str = "/a", file_count: int = 1) -> DirtyLog:
        return DirtyLog(self, name, log_dir, file_count)

    def end_turn(self) -> None:
        self.ports.timers.run_due()

    def let_take(self, **ms: float) -> None:
        """Set the duration of operations, by name."""

        def observe(operation: Operation) -> None:
            self._observe(operation)
            took_ms = ms.get(operation.name, 0.0)
            self.ports.clock.advance_to(self.ports.clock.monotonic_ms() + took_ms)

        self.files.on_operation = observe

    def sync(self, log: DirtyLog) -> list[str]:
        """Return the disk operations of one sync round of this log."""
        self.operations.clear()
        log.append()
        self.ports.settle()
        return self.operations
