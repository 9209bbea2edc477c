"""A context manager that calls a function when a block ends, except during garbage collection.

If the application drops a client without closing it, along with its reactor or event loop, the
garbage collector closes the suspended coroutines in arbitrary order and runs their ``finally``
blocks. Waking other coroutines there would resume them in the middle of collection, or fail because
they are closed already ("cannot reuse already awaited coroutine"). Therefore, the function is not
called if a block ends with GeneratorExit.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any


class TaskCompletion:
    """Calls a function when its ``with`` block ends, unless it ends with GeneratorExit.

    >>> with TaskCompletion(print, "done"):
    ...     print("at work")
    at work
    done
    """

    __slots__ = ("_arguments", "_function")

    def __init__(self, function: Callable[..., object], *arguments: Any) -> None:
        self._function = function
        self._arguments = arguments

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # GeneratorExit comes from the garbage collector: calling the function now would wake other
        # coroutines in the middle of a collection.
        if not isinstance(error, GeneratorExit):
            self._function(*self._arguments)
