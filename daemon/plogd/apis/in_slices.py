"""Requests that name many things: a few are asked at once, and others have the thread in between.

A request of a megabyte can name a hundred thousand groups. Used by the handlers of such requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from plog.errors import KafkaError
from plogd.ports import Later

if TYPE_CHECKING:
    from plogd.broker import Broker

AT_ONCE: Final = 32

T = TypeVar("T")
U = TypeVar("U")


async def ask_in_slices(
    things: Sequence[T], ask: Callable[[T], Later[U]], broker: Broker
) -> list[U | KafkaError]:
    """What `ask` gives for each of `things`, in their order, or why it gives nothing."""
    answers: list[U | KafkaError] = []
    for start in range(0, len(things), AT_ONCE):
        if start:
            await _next_turn(broker)
        for answer in [ask(thing) for thing in things[start : start + AT_ONCE]]:
            try:
                answers.append(await answer)
            except KafkaError as error:
                answers.append(error)
    return answers


def _next_turn(broker: Broker) -> Later[None]:
    turn: Later[None] = Later()
    broker.timers.call_later(0, lambda: turn.succeed(None))
    return turn
