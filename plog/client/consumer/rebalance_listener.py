"""Rebalance listeners: application callbacks for assigned, revoked and lost partitions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any, Protocol, cast

from plog.client.callback_checks import check_methods, refuse
from plog.client.network.ports import Cancelled
from plog.types import TopicPartition

CallUser = Callable[..., Awaitable[Any]]
"""Calls an application's function with arguments, in the thread that the face requires."""


class ConsumerRebalanceListener(Protocol):
    """The type of listener that `subscribe` accepts: any object with these two methods.

    A listener may also have a method ``on_partitions_lost``. Otherwise, lost partitions are
    reported as revoked.
    """

    def on_partitions_revoked(self, partitions: list[TopicPartition], /) -> Any:
        """Handle a revocation; the consumer calls this before partitions are revoked."""
        ...

    def on_partitions_assigned(self, partitions: list[TopicPartition], /) -> Any:
        """Handle an assignment; the consumer calls this after partitions have been assigned."""
        ...


class RebalanceListener:
    """A base class for listeners; override the methods you need.

    The consumer calls a listener only during polls, and during `unsubscribe` and `close`.
    """

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> Any:
        """Handle a revocation; this is the last chance to commit offsets of these partitions."""

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> Any:
        """Handle an assignment; `partitions` contains only newly assigned partitions."""

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> Any:
        """Handle the loss of partitions that may already have new owners.

        A commit for these partitions would be rejected. By default, this method calls
        `on_partitions_revoked`.
        """
        return self.on_partitions_revoked(partitions)


def check_listener(listener: object) -> ConsumerRebalanceListener | None:
    """Return `listener`. Raises TypeError if it lacks the methods of a listener."""
    if listener is not None:
        advice = "pass an object with these methods, such as a plog.RebalanceListener"
        check_methods(
            "listener", listener, ("on_partitions_assigned", "on_partitions_revoked"), advice
        )
        lost = getattr(listener, "on_partitions_lost", None)
        if lost is not None and not callable(lost):
            refuse("listener", listener, "its on_partitions_lost is not a method")
    return cast(ConsumerRebalanceListener | None, listener)


class Listening:
    """A subscription's listener, if any, and its first exception, until `raise_error` raises it."""

    def __init__(self, listener: ConsumerRebalanceListener | None, call_user: CallUser) -> None:
        self._listener = check_listener(listener)
        self._call_user = call_user
        self._error: Exception | None = None
        self._calls = 0

    @property
    def is_calling(self) -> bool:
        """Whether the listener is running."""
        return bool(self._calls)

    async def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Call `on_partitions_revoked`."""
        await self._call("on_partitions_revoked", partitions)

    async def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Call `on_partitions_assigned`."""
        await self._call("on_partitions_assigned", partitions)

    async def lost(self, partitions: Collection[TopicPartition]) -> None:
        """Call `on_partitions_lost` or, if the listener lacks it, `on_partitions_revoked`."""
        # As in Kafka's interface, on_partitions_lost is optional and has this default.
        has_it = hasattr(self._listener, "on_partitions_lost")
        await self._call("on_partitions_lost" if has_it else "on_partitions_revoked", partitions)

    def raise_error(self) -> None:
        """Raise the listener's first exception, if there was one."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    async def _call(self, name: str, partitions: Collection[TopicPartition]) -> None:
        method = getattr(self._listener, name, None)
        if method is None:
            return
        self._calls += 1
        try:
            await self._call_user(method, sorted(partitions))
        except Cancelled:
            raise
        except Exception as error:
            # Keep the exception until the rebalance step is complete: it must not interrupt the
            # member's transition.
            error.add_note(f"raised by the rebalance listener's {name}")
            self._error = self._error or error
        finally:
            self._calls -= 1
