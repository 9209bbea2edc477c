"""What a coroutine of the engine has others know when it ends, however it ends, but for one way.

A client that nobody has closed, together with the reactor or loop it ran on, may be thrown away.
The garbage collector then ends its coroutines where they wait, in any order, and a ``finally`` runs
in each. Were others woken there, they would go on in the middle of that, or could not any more
because they have been ended before ("cannot reuse already awaited coroutine"). So nobody is told.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any


class TaskCompletion:
    """``with TaskCompletion(function, ...):`` calls it when the block has ended. See the module's
    text.

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
        if not isinstance(error, GeneratorExit):
            self._function(*self._arguments)
