"""Listeners: what is called, and what becomes of what they raise."""

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
    """Run what never waits."""
    with pytest.raises(StopIteration):
        coroutine.send(None)


class Revoking(RebalanceListener):
    def __init__(self) -> None:
        self.revoked: list[Collection[TopicPartition]] = []

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.revoked.append(partitions)


def test_lost_is_revoked_unless_a_listener_knows_better() -> None:
    listener = Revoking()
    listening = Listening(listener, call_user)
    run(listening.lost(ONE))
    run(listening.assigned(ONE))
    assert listener.revoked == [sorted(ONE)]


def test_a_listener_made_for_another_client_will_do() -> None:
    class Two:
        told: list[str] = []

        def on_partitions_revoked(self, partitions: object) -> None:
            self.told.append("revoked")

        def on_partitions_assigned(self, partitions: object) -> None:
            self.told.append("assigned")

    listening = Listening(Two(), call_user)
    run(listening.lost(ONE))
    run(listening.assigned(ONE))
    assert Two.told == ["revoked", "assigned"]


def test_the_first_error_is_kept_until_it_is_asked_for() -> None:
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


def test_a_poll_that_is_given_up_gives_up_the_call() -> None:
    async def never(*_: Any) -> None:
        raise Cancelled

    listening = Listening(Revoking(), never)
    with pytest.raises(Cancelled):
        listening.revoked(ONE).send(None)
    listening.raise_error()


def test_without_a_listener_nothing_is_called() -> None:
    run(Listening(None, call_user).revoked(ONE))
