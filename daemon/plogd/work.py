"""The port for work that takes much CPU time: a generator function that runs in another process.

A thread would take the interpreter from the reactor for 5 ms at a time, so work such as compaction
runs in a process of its own, with low priority. `function(files, argument)` yields reports; it does
nothing between two reports until the next one is requested, so that the broker controls its pace.
Function, argument and reports are plain data: they are pickled.

child_process.py implements the port; `InPlaceWork` serves tests and the simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Protocol, TypeAlias

from plog.errors import PlogError
from plogd.files import Files

_NEVER = 1 << 62

WorkFunction: TypeAlias = Callable[[Files, Any], Generator[Any, None, None]]


class WorkerDied(PlogError):
    """The process that runs a function has ended, for example because it was killed."""


class Task(Protocol):
    """A function in progress."""

    def next_report(self) -> Any:
        """Return the next report, or None at the end. Runs as a job.

        Raises WorkerDied, or the function's OSError or PlogError.
        """
        ...

    def stop(self) -> None:
        """End the function at once. May be called on any thread, and more than once."""
        ...

    def close(self) -> None:
        """End the function, and release its resources. Runs as a job, after the last report."""
        ...


class Work(Protocol):
    """Runs functions in other processes.

    Attributes:
        max_processes: the number of processes that can run at the same time without waiting for a
            core.
        worthwhile_bytes: the number of bytes to check for which it is worth starting a process.
    """

    max_processes: int
    worthwhile_bytes: int

    def begin(self, function: WorkFunction, argument: Any) -> Task:
        """Begin `function` when its first report is requested."""
        ...


class InPlaceWork:
    """Runs functions in this process, on the thread of the job that requests a report."""

    max_processes = 2

    def __init__(self, files: Files, *, worthwhile_bytes: int = _NEVER) -> None:
        self._files = files
        self.worthwhile_bytes = worthwhile_bytes

    def begin(self, function: WorkFunction, argument: Any) -> Task:
        """Begin `function` when its first report is requested."""
        return _InPlaceTask(function(self._files, argument))


class _InPlaceTask:
    def __init__(self, steps: Generator[Any, None, None]) -> None:
        self._steps = steps
        self._is_stopped = False

    def next_report(self) -> Any:
        """Run the function up to its next report."""
        if self._is_stopped:
            raise WorkerDied("the function was stopped")
        return next(self._steps, None)

    def stop(self) -> None:
        """End the function before its next report."""
        self._is_stopped = True

    def close(self) -> None:
        """End the function."""
        self._steps.close()
