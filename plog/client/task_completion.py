"""A context manager that calls a function when a block ends, except during garbage collection.

An application may drop an open client along with its reactor or event loop. The garbage collector
then closes suspended coroutines in arbitrary order and runs their ``finally`` blocks. A function
that wakes other coroutines would resume them during the collection, or fail because they are
already closed ("cannot reuse already awaited coroutine"). Therefore, a block that ends with
GeneratorExit does not call its function.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any


class TaskCompletion:
    """A context manager that calls a function at the end of its block, except on GeneratorExit.

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
        # The garbage collector raises GeneratorExit in a suspended coroutine. Calling the function
        # now would wake other coroutines during the collection.
        if not isinstance(error, GeneratorExit):
            self._function(*self._arguments)
