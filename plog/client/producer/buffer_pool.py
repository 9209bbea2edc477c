"""The queue of sends that wait for buffer memory, served in order of arrival.

Freed memory wakes only the first waiter. Use only in the engine's thread.

Source: Kafka 4.3 BufferPool.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from types import TracebackType
from typing import Self

from plog.client.network.ports import Network, Signal


class BufferPoolQueue:
    """A FIFO queue of waiters; `on_change` receives its length after each change."""

    def __init__(self, network: Network, on_change: Callable[[int], None]) -> None:
        self._network = network
        self._on_change = on_change
        self._places: OrderedDict[Place, None] = OrderedDict()
        self._is_serving = False

    def __len__(self) -> int:
        return len(self._places)

    def place(self) -> Place:
        """Return a place at the end of the queue; use it in a ``with`` block."""
        return Place(self, self._network.signal())

    def serve(self) -> None:
        """Notify the first waiter that memory may be free; if it leaves, notify the next waiter."""
        # Waking all waiters would cost time for each of them, and a small record could take the
        # memory that an earlier, larger record waits for.

        # A notified waiter that leaves the queue also calls this method. The loop below already
        # notifies the next waiter.
        if self._is_serving:
            return
        self._is_serving = True
        try:
            while (first := self.first) is not None:
                first.news.set()
                # If the first waiter still waits, the free memory was not enough for it. The others
                # must not overtake it.
                if self.first is first:
                    break
        finally:
            self._is_serving = False

    def wake_all(self) -> None:
        """Notify all waiters, because the producer is closing."""
        for place in tuple(self._places):
            place.news.set()

    @property
    def first(self) -> Place | None:
        """The waiter whose turn it is."""
        return next(iter(self._places), None)

    def enter(self, place: Place) -> None:
        """Append `place` to the queue."""
        self._places[place] = None
        self._on_change(len(self._places))

    def leave(self, place: Place) -> None:
        """Remove `place` from the queue."""
        was_first = place is self.first
        del self._places[place]
        self._on_change(len(self._places))
        # The free memory may be enough for the next waiter, even if it was not for this one.
        if was_first:
            self.serve()


class Place:
    """A waiter's place in a BufferPoolQueue."""

    def __init__(self, queue: BufferPoolQueue, news: Signal) -> None:
        self._queue = queue
        self.news = news
        """Set when there may be memory for this waiter."""

    def __enter__(self) -> Self:
        self._queue.enter(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # During garbage collection, no other coroutine may be woken; see task_completion.py.
        if not isinstance(error, GeneratorExit):
            self._queue.leave(self)

    @property
    def is_first(self) -> bool:
        """Whether it is this waiter's turn."""
        return self._queue.first is self
