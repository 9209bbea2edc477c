"""Listeners: the methods that are called, and the handling of their exceptions."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest

from plog.client.consumer.rebalance_listener import Listening, RebalanceListener
from plog.client.network.ports import Cancelled
from plog.types import TopicPartition

ONE = frozenset({TopicPartition("t", 0)})


async def call_user(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def run(coroutine: Any) -> None:
    """Run a coroutine that never waits."""
    with pytest.raises(StopIteration):
        coroutine.send(None)


class Revoking(RebalanceListener):
    def __init__(self) -> None:
        self.revoked: list[Collection[TopicPartition]] = []

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.revoked.append(partitions)


def test_lost_partitions_count_as_revoked_unless_overridden() -> None:
    listener = Revoking()
    listening = Listening(listener, call_user)
    run(listening.lost(ONE))
    run(listening.assigned(ONE))
    assert listener.revoked == [sorted(ONE)]


def test_any_object_with_listener_methods_is_accepted() -> None:
    class Two:
        calls: list[str] = []

        def on_partitions_revoked(self, partitions: object) -> None:
            self.calls.append("revoked")

        def on_partitions_assigned(self, partitions: object) -> None:
            self.calls.append("assigned")

    listening = Listening(Two(), call_user)
    run(listening.lost(ONE))
    run(listening.assigned(ONE))
    assert Two.calls == ["revoked", "assigned"]


def test_first_exception_is_kept_until_raised() -> None:
    class Failing(RebalanceListener):
        def on_partitions_revoked(self, partitions: object) -> None:
            raise ValueError("first")

        def on_partitions_assigned(self, partitions: object) -> None:
            raise ValueError("second")

    listening = Listening(Failing(), call_user)
    run(listening.revoked(ONE))
    run(listening.assigned(ONE))
    with pytest.raises(ValueError, match="first") as caught:
        listening.raise_error()
    assert "on_partitions_revoked" in caught.value.__notes__[0]
    listening.raise_error()


def test_cancelled_poll_cancels_the_callback() -> None:
    async def never(*_: Any) -> None:
        raise Cancelled

    listening = Listening(Revoking(), never)
    with pytest.raises(Cancelled):
        listening.revoked(ONE).send(None)
    listening.raise_error()


def test_nothing_is_called_without_listener() -> None:
    run(Listening(None, call_user).revoked(ONE))
