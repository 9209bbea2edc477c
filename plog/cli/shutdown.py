"""Ending a tool that runs until somebody stops it, with everything in its place.

The first SIGINT or SIGTERM asks for the end: what is under way is finished, offsets are committed,
and the last line is printed. A later one interrupts that; one that comes at once is the same wish,
sent to a process and to its group.
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
"""What a shell adds to the number of the signal that ended a process."""
_IMPATIENT_S: Final = 0.5


class Shutdown:
    """A context in which signals ask for an end; only for the main thread."""

    def __init__(self, wake: Callable[[], object] | None = None) -> None:
        self._wake = wake
        self._event = threading.Event()
        self._signal: int | None = None
        self._requested_s = 0.0
        self._previous: dict[int, object] = {}

    @property
    def requested(self) -> bool:
        """Whether somebody has asked for the end."""
        return self._event.is_set()

    @property
    def exit_code(self) -> int:
        """0, or what a shell shows of a process that this signal has ended."""
        return 0 if self._signal is None else _SIGNALLED + self._signal

    def wait(self, seconds: float) -> bool:
        """Sleep, but not beyond the request; whether there is one."""
        return self._event.wait(seconds)

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)  # type: ignore[arg-type]  # What signal() returned.

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._event.is_set():
            if time.monotonic() - self._requested_s >= _IMPATIENT_S:
                raise KeyboardInterrupt
            return
        self._signal = number
        self._requested_s = time.monotonic()
        self._event.set()
        if self._wake is not None:
            self._wake()
