"""Requests that name many things: a few are asked at once, and others have the thread in between.

A request of a megabyte can name a hundred thousand groups or topics. Used by the handlers of such
requests; what changes something is bounded besides, as in Kafka, by `check_changes`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from plog.errors import KafkaError, PolicyViolation
from plogd.controller.waiting import next_turn
from plogd.ports import Later

if TYPE_CHECKING:
    from plogd.broker import Broker

AT_ONCE: Final = 32
WRITES_AT_ONCE: Final = 256
"""For what waits for the disk: those that are asked together share its syncs."""
MAX_CHANGES: Final = 10_000
"""Topics, resources, ACLs that one request may change; Kafka's QuorumController has it, too."""

T = TypeVar("T")
U = TypeVar("U")


def check_changes(things: Sequence[object], what: str) -> None:
    """Raise PolicyViolation if one request is to change too many `things`."""
    if len(things) > MAX_CHANGES:
        raise PolicyViolation(
            f"The request is about {len(things)} {what}; {MAX_CHANGES} at once are allowed:"
            " send several requests."
        )


async def ask_in_slices(
    things: Sequence[T], ask: Callable[[T], Later[U]], broker: Broker, at_once: int = AT_ONCE
) -> list[U | KafkaError]:
    """What `ask` gives for each of `things`, in their order, or why it gives nothing."""
    answers: list[U | KafkaError] = []
    for start in range(0, len(things), at_once):
        if start:
            await next_turn(broker.timers)
        asked = [_asked(thing, ask) for thing in things[start : start + at_once]]
        for answer in asked:
            try:
                answers.append(answer if isinstance(answer, KafkaError) else await answer)
            except KafkaError as error:
                # Its traceback holds every frame it went through: kilobytes for each error.
                answers.append(error.with_traceback(None))
    return answers


def _asked(thing: T, ask: Callable[[T], Later[U]]) -> Later[U] | KafkaError:
    try:
        return ask(thing)
    except KafkaError as error:
        return error.with_traceback(None)
