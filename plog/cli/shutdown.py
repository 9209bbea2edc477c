"""Graceful shutdown for tools that run until they are interrupted.

After the first SIGINT or SIGTERM, the tool completes work in progress, commits offsets and prints
its last line. Another signal interrupts the shutdown.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Final, Self

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_SIGNALLED: Final = 128
"""Shells add this to the number of the signal that terminated a process."""
# A second signal within this time belongs to the same request, because a terminal can signal both
# the process and its process group.
_SAME_REQUEST_S: Final = 0.5


class Shutdown:
    """A context in which signals request a shutdown; only for the main thread.

    The signal handler calls `wake`, which must interrupt a blocking call in the tool.
    """

    def __init__(self, wake: Callable[[], object] | None = None) -> None:
        self._wake = wake
        self._event = threading.Event()
        self._signal: int | None = None
        self._requested_s = 0.0
        self._previous: dict[int, object] = {}

    @property
    def requested(self) -> bool:
        """Return whether a signal has requested a shutdown."""
        return self._event.is_set()

    @property
    def exit_code(self) -> int:
        """Return 0, or a shell's exit code for a process that the signal has terminated."""
        return 0 if self._signal is None else _SIGNALLED + self._signal

    def wait(self, seconds: float) -> bool:
        """Sleep at most `seconds`, and return whether a shutdown has been requested."""
        return self._event.wait(seconds)

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            # The previous handlers are restored, because tests run several tools in one process.
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)  # type: ignore[arg-type]  # As returned by signal().

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._event.is_set():
            if time.monotonic() - self._requested_s >= _SAME_REQUEST_S:
                # `run_tool` handles it, so that closing the client cannot delay the end any longer.
                raise KeyboardInterrupt
            return
        self._signal = number
        self._requested_s = time.monotonic()
        self._event.set()
        if self._wake is not None:
            self._wake()
