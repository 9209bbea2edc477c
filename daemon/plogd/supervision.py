"""Report the broker's progress, state, problems and liveness to its service manager.

While the logs are loaded or closed, any progress extends the time that systemd allows for the
startup or shutdown. Without progress, the extension ends after `STALL_MAX_MS`. From READY to the
end of the shutdown, the broker also sends systemd's watchdog messages.

service.py calls this; the task ``status`` of tasks.py calls `update`. Reactor thread only. Source:
sd_notify(3), systemd.service(5).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from twisted.logger import Logger

from plogd.broker import Broker
from plogd.files import DiskSpace
from plogd.net.connections import Connections
from plogd.ports import Clock, Timer, Timers
from plogd.sdnotify import ServiceNotifier
from plogd.status_text import Traffic, closing_text, loading_text, serving_text

log = Logger()

PROGRESS_MS: Final = 1_000.0
"""Interval between reports of progress."""
STALL_MAX_MS: Final = 300_000
"""Maximum time without progress during startup or shutdown, after the unit's own timeout has
passed."""
_LOG_PROGRESS_MS: Final = 10_000.0
"""Minimum time between two log lines about the progress."""
_REFUSAL_SHOWN_MS: Final = 60_000.0
"""Time for which the status shows a log directory after its last refused write."""
_FULL_BYTES: Final = 1 << 20
"""A file system with less free space is reported as full: no batch of the default maximum size
fits."""


class Supervision:
    """Sends the reports of one broker; without a service manager, only logs the progress.

    Args:
        timers: the broker's timers, which do not lose calls if memory is exhausted.
    """

    def __init__(
        self,
        notifier: ServiceNotifier,
        broker: Broker,
        connections: Connections,
        *,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._notifier = notifier
        self._broker = broker
        self._connections = connections
        self._clock = clock
        self._timers = timers
        self._progress: _Progress | None = None
        self._watchdog_timer: Timer | None = None
        self._addresses = ""
        self._has_failed = False
        self._free_bytes: dict[str, int | None] = {}
        """The free space of each log directory; None while it is being looked up."""
        self._sent = ""
        self._traffic = Traffic(bytes_in=0, bytes_out=0)
        self._counted = (0.0, 0, 0)
        """The time of the last count of bytes, and the bytes received and sent until then."""

    # -- start --------------------------------------------------------------------------------

    def starting(self) -> None:
        """Report the progress of loading until `serving`, `failed` or `stopping` is called."""
        progress = self._broker.log_manager.load_progress

        def text() -> str | None:
            amount = progress.amount
            return loading_text(amount) if amount.total_logs else None

        self._report_progress(lambda: progress.amount, text)

    def serving(self, addresses: str) -> None:
        """Report that the broker serves requests at `addresses`, and start the watchdog."""
        self._end_progress()
        self._addresses = addresses
        self._count()
        self.ready()
        self._feed_watchdog()

    def failed(self, why: str) -> None:
        """Report why the broker cannot start or must stop; the text remains after the shutdown."""
        # From now on, no other text may replace the reason.
        self._has_failed = True
        self._end_progress()
        self._notifier.status(why)

    # -- serving ------------------------------------------------------------------------------

    def ready(self) -> None:
        """Report that the broker serves requests, or that a reload has ended."""
        self._sent = self._text()
        self._notifier.ready(self._sent)

    def update(self) -> None:
        """Send the state if it has changed."""
        if not self._notifier.is_connected or self._has_failed:
            return
        self._count()
        text = self._text()
        if text != self._sent:
            self._sent = text
            self._notifier.status(text)
        self._look_up_space()

    def _look_up_space(self) -> None:
        """Look up the free space of the log directories for the next update."""
        ports = self._broker.ports
        for log_dir in self._broker.log_manager.dirs.online:
            path = log_dir.path
            if path in self._free_bytes and self._free_bytes[path] is None:
                # The previous lookup has not finished, because the disk hangs.
                continue
            self._free_bytes[path] = None
            # In a job, because the call waits if the disk hangs.
            found = ports.jobs.submit(log_dir.lane, partial(ports.files.space, path))
            found.then(partial(self._found_space, path), partial(self._no_space_found, path))

    def _found_space(self, path: str, space: DiskSpace) -> None:
        self._free_bytes[path] = space.usable_bytes

    def _no_space_found(self, path: str, error: Exception) -> None:
        # The broker takes a failed directory offline at its next read or write.
        del self._free_bytes[path]

    def _text(self) -> str:
        return serving_text(
            self._addresses,
            self._problems(),
            len(self._broker.replica_manager.partitions),
            len(self._connections),
            self._traffic,
        )

    def _problems(self) -> list[str]:
        broker = self._broker
        offline, now_ms = broker.log_manager.offline_dirs, self._clock.monotonic_ms()
        problems = [f"log directories offline: {', '.join(offline)}"] if offline else []
        refusals = {
            path: why
            for path, (when_ms, why) in broker.log_manager.refusals.last.items()
            # An offline directory is listed above, and it rejects writes in any case.
            if path not in offline and now_ms - when_ms < _REFUSAL_SHOWN_MS
        }
        problems += [f"writes to {path} are rejected: {why}" for path, why in refusals.items()]
        problems += [
            f"no space left in {path}"
            for path, free_bytes in self._free_bytes.items()
            if free_bytes is not None and free_bytes < _FULL_BYTES and path not in refusals
        ]
        if broker.metadata.problem:
            problems.append(broker.metadata.problem)
        return problems

    def _count(self) -> None:
        """Compute the traffic since the last count, if that was at least a second ago."""
        now_ms, connections = self._clock.monotonic_ms(), self._connections
        then_ms, bytes_in, bytes_out = self._counted
        seconds = (now_ms - then_ms) / 1000
        # Over a shorter period, the rates would depend on single requests.
        if seconds >= 1:
            self._counted = (now_ms, connections.bytes_in, connections.bytes_out)
            self._traffic = Traffic(
                bytes_in=(connections.bytes_in - bytes_in) / seconds,
                bytes_out=(connections.bytes_out - bytes_out) / seconds,
            )

    def _feed_watchdog(self) -> None:
        interval_ms = self._notifier.watchdog_interval_ms
        if interval_ms is not None:
            self._notifier.alive()
            # A reactor timer, not a thread: if the reactor is blocked, the message must not be
            # sent, so that systemd restarts the broker.
            self._watchdog_timer = self._timers.call_later(interval_ms, self._feed_watchdog)

    # -- stop ---------------------------------------------------------------------------------

    def stopping(self) -> None:
        """Report that the broker is stopping, and the progress of closing logs until `ended`."""
        # Otherwise, this text would replace the reason why the broker stops.
        self._notifier.stopping("" if self._has_failed else closing_text(0, 0))
        manager = self._broker.log_manager
        total_logs = len(manager.logs)

        def text() -> str | None:
            return None if self._has_failed else closing_text(manager.closed_logs, total_logs)

        self._report_progress(lambda: manager.closed_logs, text)

    def ended(self) -> None:
        """Stop all reports, because the shutdown is complete."""
        self._end_progress()
        if self._watchdog_timer is not None:
            self._watchdog_timer.cancel()

    # -- progress -----------------------------------------------------------------------------

    def _report_progress(self, count: Callable[[], object], text: Callable[[], str | None]) -> None:
        self._end_progress()
        self._progress = _Progress(
            self._notifier, self._clock, self._timers, count=count, text=text
        )

    def _end_progress(self) -> None:
        if self._progress is not None:
            self._progress.end()
            self._progress = None


class _Progress:
    """Reports progress every second until `end` is called, if `count` has changed."""

    def __init__(
        self,
        notifier: ServiceNotifier,
        clock: Clock,
        timers: Timers,
        *,
        count: Callable[[], object],
        text: Callable[[], str | None],
    ) -> None:
        self._notifier = notifier
        self._clock = clock
        self._timers = timers
        self._count = count
        self._text = text
        self._counted = count()
        self._logged_ms = clock.monotonic_ms()
        self._timer = timers.call_later(PROGRESS_MS, self._report)

    def _report(self) -> None:
        # The next report is scheduled first, so that an exception below does not end the reports.
        self._timer = self._timers.call_later(PROGRESS_MS, self._report)
        counted = self._count()
        # Without progress, the timeout is not extended, so that systemd ends a startup that hangs.
        if counted == self._counted:
            return
        self._counted = counted
        text = self._text()
        self._notifier.progress(text, STALL_MAX_MS)
        if text is not None and self._clock.monotonic_ms() - self._logged_ms >= _LOG_PROGRESS_MS:
            self._logged_ms = self._clock.monotonic_ms()
            log.info("{progress}", progress=text)

    def end(self) -> None:
        """Stop reporting."""
        self._timer.cancel()
