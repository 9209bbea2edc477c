"""Those who wait for memory, served in the order in which they came.

Only the first is woken when some is free, so that ten thousand records that wait cost no more than
those that get in; and no small record takes what a large one before it is waiting for. Engine's
thread only.

Source: Kafka 4.3 BufferPool.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from types import TracebackType
from typing import Self

from plog.client.network.ports import Network, Signal


class BufferPoolQueue:
    """See the module's text. `on_change` hears how many wait now."""

    def __init__(self, network: Network, on_change: Callable[[int], None]) -> None:
        self._network = network
        self._on_change = on_change
        self._places: OrderedDict[Place, None] = OrderedDict()
        self._is_serving = False

    def __len__(self) -> int:
        return len(self._places)

    def place(self) -> Place:
        """One at the end; ``with`` it, so that it is left in any case."""
        return Place(self, self._network.signal())

    def serve(self) -> None:
        """There may be memory: let the first one see, and where it gets some, the next."""
        if self._is_serving:  # By one that leaves while it is served.
            return
        self._is_serving = True
        try:
            while (first := self.first) is not None:
                first.news.set()
                if self.first is first:
                    break
        finally:
            self._is_serving = False

    def end(self) -> None:
        """There will be none: let all of them see."""
        for place in tuple(self._places):
            place.news.set()

    @property
    def first(self) -> Place | None:
        """Whose turn it is."""
        return next(iter(self._places), None)

    def enter(self, place: Place) -> None:
        """`place` is the last one now."""
        self._places[place] = None
        self._on_change(len(self._places))

    def leave(self, place: Place) -> None:
        """`place` waits no more."""
        was_first = place is self.first
        del self._places[place]
        self._on_change(len(self._places))
        if was_first:
            self.serve()


class Place:
    """Where somebody stands in a line."""

    def __init__(self, line: BufferPoolQueue, news: Signal) -> None:
        self._line = line
        self.news = news
        """Set when there may be something for this one."""

    def __enter__(self) -> Self:
        self._line.enter(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not isinstance(error, GeneratorExit):  # As in task_completion.py.
            self._line.leave(self)

    @property
    def is_first(self) -> bool:
        """Whether it is its turn."""
        return self._line.first is self
