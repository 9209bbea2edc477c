"""While memory is exhausted, close connections that occupy some of it without making progress.

While the memory for requests or responses is exhausted, every connection that uses some of it must
make progress: each second, at least a tenth of its request must arrive, or a tenth of its response
must be read. Otherwise, the connection is closed and the reason is logged. Only delays caused by
the client count: a request that waits for memory, for an earlier request or for a quota is not
considered slow.

While there is enough memory, connection.py applies more generous limits. Created by connections.py,
which calls `begin` when memory is exhausted; reactor thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from plogd.net.open_connection import OpenConnection
from plogd.net.request_memory import RequestMemory
from plogd.net.response_memory import ResponseMemory
from plogd.ports import Clock, Timers

CHECK_INTERVAL_MS: Final = 250.0
WINDOW_MS: Final = 2000.0
"""Period over which progress is measured; enough for ten round trips around the world."""
WITHIN_MS: Final = 10_000.0
"""Maximum time for a whole request or response."""
STALLED_MS: Final = 1000.0
"""A client that reads nothing for this long is considered stalled. While memory use is more than
twice the limit, `CHECK_INTERVAL_MS` is enough."""


class _Window(NamedTuple):
    """The start of a measurement: the bytes transferred by then, and the total size."""

    since_ms: float
    done_bytes: int
    size_bytes: int


class MemoryShortage:
    """Checks connections while memory is exhausted; `all_open` returns the connections to check."""

    def __init__(
        self,
        memory: RequestMemory,
        responses: ResponseMemory,
        *,
        all_open: Callable[[], Iterable[OpenConnection]],
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._memory = memory
        self._responses = responses
        self._all_open = all_open
        self._clock = clock
        self._timers = timers
        self._is_scheduled = False
        self._arriving: dict[OpenConnection, _Window] = {}
        self._unsent: dict[OpenConnection, _Window] = {}

    def begin(self) -> None:
        """Check immediately, and then repeatedly until enough memory is free."""
        if not self._is_scheduled:
            self._schedule(0)

    def _schedule(self, delay_ms: float) -> None:
        self._is_scheduled = True
        self._timers.call_later(delay_ms, self._check)

    def _check(self) -> None:
        self._is_scheduled = False
        now_ms = self._clock.monotonic_ms()
        # Windows of an earlier shortage are dropped: they would include a time without a shortage.
        self._arriving = self._check_requests(now_ms) if self._memory.waiting else {}
        self._unsent = self._check_responses(now_ms) if self._responses.is_full else {}
        # Looked up again, because the connections just closed may have ended the shortage.
        if self._memory.waiting or self._responses.is_full:
            self._schedule(CHECK_INTERVAL_MS)

    def _check_requests(self, now_ms: float) -> dict[OpenConnection, _Window]:
        windows: dict[OpenConnection, _Window] = {}
        for connection in self._all_open():
            arriving = connection.arriving
            if arriving is None:
                continue
            done_bytes, size_bytes = arriving
            window = self._arriving.get(connection)
            if window is None or window.size_bytes != size_bytes:  # Another request.
                window = _Window(now_ms, done_bytes, size_bytes)
            elif now_ms - window.since_ms >= WINDOW_MS:
                if _is_slow(window, now_ms, done_bytes):
                    connection.close_slow(
                        " while other requests were waiting for memory (queued.max.request.bytes)"
                    )
                    continue
                # A new window, so that a client cannot send fast at first and then stop.
                window = _Window(now_ms, done_bytes, size_bytes)
            windows[connection] = window
        return windows

    def _check_responses(self, now_ms: float) -> dict[OpenConnection, _Window]:
        responses = self._responses
        windows: dict[OpenConnection, _Window] = {}
        # The largest first, so that the shortage ends after few connections are closed.
        for connection, nbytes in responses.largest_first():
            # The connections closed so far have freed enough memory.
            if not responses.is_full:
                break
            # A single response may exceed the limit while no other connection has unsent responses.
            is_alone = len(responses) == 1
            sent_bytes = connection.sent_bytes
            window = self._unsent.get(connection)
            if window is None:
                window = _Window(now_ms, sent_bytes, nbytes)
            waited_ms = now_ms - window.since_ms
            has_read_nothing = sent_bytes == window.done_bytes
            has_stalled = has_read_nothing and waited_ms >= STALLED_MS
            if waited_ms >= WINDOW_MS and not has_stalled:
                has_stalled = _is_slow(window, now_ms, sent_bytes)
                window = _Window(now_ms, sent_bytes, nbytes)
            is_far_too_much = responses.used_bytes > 2 * responses.limit_bytes and not is_alone
            # Even now, a client has one interval to read something: many connections may hold the
            # same shared response, and their clients read it as soon as it arrives.
            if is_far_too_much and has_read_nothing and waited_ms >= CHECK_INTERVAL_MS:
                has_stalled = True
            if has_stalled:
                connection.close_unread(nbytes)
                continue
            windows[connection] = window
        return windows


def _is_slow(window: _Window, now_ms: float, done_bytes: int) -> bool:
    required_bytes = window.size_bytes * (now_ms - window.since_ms) / WITHIN_MS
    return done_bytes - window.done_bytes < required_bytes
