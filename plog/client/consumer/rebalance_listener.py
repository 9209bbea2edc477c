"""What an application may do when partitions are assigned and revoked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any, Protocol, cast

from plog.client.callback_checks import check_methods, refuse
from plog.client.network.ports import Cancelled
from plog.types import TopicPartition

CallUser = Callable[..., Awaitable[Any]]
"""Calls a function of the application with arguments, where its face wants it called."""


class ConsumerRebalanceListener(Protocol):
    """What `subscribe` takes as its listener: any object with these two methods.

    It may also have ``on_partitions_lost``; without it, lost partitions count as revoked.
    """

    def on_partitions_revoked(self, partitions: list[TopicPartition], /) -> Any:
        """These partitions will go to others."""
        ...

    def on_partitions_assigned(self, partitions: list[TopicPartition], /) -> Any:
        """These partitions are new."""
        ...


class RebalanceListener:
    """Derive from this and override what is needed. Called only while the application polls."""

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> Any:
        """These will go to others: the last chance to commit how far they have been read."""

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> Any:
        """These are new; those that stayed are not among them."""

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> Any:
        """Others may have these already, a commit would be refused. By default as if revoked."""
        return self.on_partitions_revoked(partitions)


def check_listener(listener: object) -> ConsumerRebalanceListener | None:
    """Return `listener`. Raises TypeError for an object without the methods of one."""
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
    """Calls a listener, if there is one, and keeps what it raises until the rest has been done."""

    def __init__(self, listener: ConsumerRebalanceListener | None, call_user: CallUser) -> None:
        self._listener = check_listener(listener)
        self._call_user = call_user
        self._error: Exception | None = None
        self._calls = 0

    @property
    def is_calling(self) -> bool:
        """Whether the listener is at work just now."""
        return bool(self._calls)

    async def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """See `RebalanceListener`."""
        await self._call("on_partitions_revoked", partitions)

    async def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """See `RebalanceListener`."""
        await self._call("on_partitions_assigned", partitions)

    async def lost(self, partitions: Collection[TopicPartition]) -> None:
        """See `RebalanceListener`; a listener with two methods gets them as revoked."""
        has_it = hasattr(self._listener, "on_partitions_lost")
        await self._call("on_partitions_lost" if has_it else "on_partitions_revoked", partitions)

    def raise_error(self) -> None:
        """Raise what the listener raised first."""
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
            error.add_note(f"raised by {name} of the rebalance listener")
            self._error = self._error or error
        finally:
            self._calls -= 1
