"""Operations on topics that must not overlap: one at a time for each collision key.

Names with the same `collision_key` exclude each other, because only one of their topics may exist.
Called on the reactor thread, by the controller.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from plogd.concurrency import Turns
from plogd.controller.term import Term
from plogd.controller.topic_creation import collision_key
from plogd.ports import Later

T = TypeVar("T")


class ExclusiveNames:
    """The topic names that an operation is using, and the operations that wait for them."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self._waiting: dict[str, deque[Later[None]]] = {}
        """Waiting operations, by the collision key of a name that another operation is using."""
        self._turns = Turns()

    async def run(self, name: str, operation: Callable[[], Coroutine[Later[Any], Any, T]]) -> T:
        """Run `operation` after all earlier operations on names with this collision key.

        Raises NotController if the term ends before that.
        """
        key = collision_key(name)
        await self._enter(key)
        try:
            result = await operation()
        # Not `finally`: when a test kills the process, the coroutine is closed, and must not resume
        # another one.
        except Exception:
            self._leave(key)
            raise
        self._leave(key)
        return result

    async def _enter(self, key: str) -> None:
        if key in self._waiting:
            turn: Later[None] = Later()
            self._waiting[key].append(turn)
            await self._term.wait(turn)
        else:
            self._waiting[key] = deque()

    def _leave(self, key: str) -> None:
        if self._waiting[key]:
            # The key stays in the dict, so no new operation can overtake the waiting ones. `Turns`
            # resumes them in a loop: if each operation resumed the next, a hundred of them would
            # exhaust the stack.
            self._turns.give(self._waiting[key].popleft())
        else:
            del self._waiting[key]
