"""Rebalance listeners: application callbacks for assigned, revoked and lost partitions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any, Protocol, cast

from plog.client.callback_checks import check_methods, refuse
from plog.client.network.ports import Cancelled
from plog.types import TopicPartition

CallUser = Callable[..., Awaitable[Any]]
"""Calls a function of the application with arguments, in the thread that its face requires."""


class ConsumerRebalanceListener(Protocol):
    """The type of listeners that `subscribe` accepts: any object with these two methods.

    It may also have a method ``on_partitions_lost``; otherwise, lost partitions are reported as
    revoked.
    """

    def on_partitions_revoked(self, partitions: list[TopicPartition], /) -> Any:
        """Called before partitions are revoked."""
        ...

    def on_partitions_assigned(self, partitions: list[TopicPartition], /) -> Any:
        """Called after partitions have been assigned."""
        ...


class RebalanceListener:
    """A base class for listeners; override the methods you need. Called only during polls."""

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> Any:
        """Called before partitions are revoked: the last chance to commit their offsets."""

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> Any:
        """Called with newly assigned partitions, without those that were kept."""

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> Any:
        """Called if partitions may already have new owners, so that commits would be refused.

        By default, calls `on_partitions_revoked`.
        """
        return self.on_partitions_revoked(partitions)


def check_listener(listener: object) -> ConsumerRebalanceListener | None:
    """Return `listener`. Raises TypeError if it lacks the methods of a listener."""
    if listener is not None:
        advice = "give an object with these methods, such as a plog.RebalanceListener"
        check_methods(
            "listener", listener, ("on_partitions_assigned", "on_partitions_revoked"), advice
        )
        lost = getattr(listener, "on_partitions_lost", None)
        if lost is not None and not callable(lost):
            refuse("listener", listener, "its on_partitions_lost is not a method")
    return cast(ConsumerRebalanceListener | None, listener)


class Listening:
    """Calls a listener, if any, and keeps its exception until the rebalance is complete."""

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
        """Call `on_partitions_lost`, or `on_partitions_revoked` if the listener lacks it."""
        # The fallback is that of Kafka's interface, where on_partitions_lost is optional.
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
            # Kept until the step is complete: a listener's exception must not interrupt the
            # member's transition.
            error.add_note(f"raised by {name} of the rebalance listener")
            self._error = self._error or error
        finally:
            self._calls -= 1
