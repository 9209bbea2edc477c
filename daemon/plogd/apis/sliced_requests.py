"""Handle a request with many elements in slices, so that other clients' requests can run.

`ask_in_slices` starts an operation for each element, and `by_topic` collects a request's distinct
partitions. Both wait for the request's next turn (fair_queue.py) after each slice. `check_changes`
limits the number of changes in a request, as Kafka does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from plog.errors import KafkaError, PolicyViolation
from plogd.broker import Broker
from plogd.fair_queue import Slices
from plogd.ports import Later

IN_PROGRESS: Final = 32
"""Maximum number of operations for one request that wait concurrently. They share disk syncs, but
after a sync, all of them continue in the same turn."""
_STARTED_IN_A_TURN: Final = 16  # Fewer than IN_PROGRESS, so that each turn stays short.
MAX_CHANGES: Final = 10_000
"""Maximum number of topics, resources or ACLs that a request changes, as in QuorumController."""

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K", bound=Hashable)


def check_changes(things: Sequence[object], what: str) -> None:
    """Raise PolicyViolation if one request changes too many `things`."""
    if len(things) > MAX_CHANGES:
        raise PolicyViolation(
            f"the request changes {len(things)} {what}, but at most {MAX_CHANGES} are allowed;"
            " split the request"
        )


async def ask_in_slices(
    things: Iterable[T], ask: Callable[[T], Later[U]], broker: Broker, at_once: int = IN_PROGRESS
) -> list[U | KafkaError]:
    """Return the result of ``ask(thing)``, or its KafkaError, for each of `things` in order.

    At most `at_once` operations wait concurrently. Cancelling this call cancels them.
    """
    answers: list[U | KafkaError] = []
    waiting: deque[Later[U] | KafkaError] = deque()
    started = 0
    try:
        for thing in things:
            if len(waiting) == at_once:
                has_waited = not _is_ready(waiting[0])
                # The oldest operation first, so that `answers` keeps the order of `things`.
                answers.append(await _answer(waiting.popleft()))
                # This code runs in the turn in which a sync has completed many operations at once,
                # so the request waits for its own turn before it starts more.
                if has_waited:
                    await broker.fair_queue.turn()
                    started = 0
            if started == _STARTED_IN_A_TURN:
                await broker.fair_queue.turn()
                started = 0
            started += 1
            waiting.append(_asked(thing, ask))
        while waiting:
            answers.append(await _answer(waiting.popleft()))
    # This includes Cancelled: the client has disconnected and does not need any of the other
    # outcomes.
    except BaseException:
        for one in waiting:
            if isinstance(one, Later):
                one.cancel()
        raise
    return answers


def _asked(thing: T, ask: Callable[[T], Later[U]]) -> Later[U] | KafkaError:
    try:
        return ask(thing)
    except KafkaError as error:
        return error.bare()


def _is_ready(answer: Later[U] | KafkaError) -> bool:
    return isinstance(answer, KafkaError) or answer.done


async def _answer(answer: Later[U] | KafkaError) -> Any:
    # The type would be `U | KafkaError`, which mypy cannot solve for U.
    if isinstance(answer, KafkaError):
        return answer
    try:
        return await answer
    except KafkaError as error:
        # Without its traceback, which keeps stack frames alive: kilobytes for each error.
        return error.bare()


async def by_topic(
    topics: Iterable[T],
    topic_key: Callable[[T], K],
    partitions: Callable[[T], Sequence[U]],
    number: Callable[[U], int],
    slices: Slices,
) -> dict[K, dict[int, list[U]]]:
    """Collect the elements of a request by topic and partition.

    A list has several items if the request lists the partition more than once, in one element of
    its topic or in several.
    """
    asked: dict[K, dict[int, list[U]]] = {}
    async for topic in slices.over(topics):
        of_topic = asked.setdefault(topic_key(topic), {})
        async for partition in slices.over(partitions(topic)):
            # A list, because each API decides what a repetition means.
            of_topic.setdefault(number(partition), []).append(partition)
    return asked


async def numbers_by_topic(
    topics: Iterable[T],
    topic_key: Callable[[T], K],
    numbers: Callable[[T], Sequence[int]],
    slices: Slices,
) -> dict[K, list[int]]:
    """Collect partition numbers by topic, for requests that list partitions as plain numbers."""
    asked: dict[K, dict[int, None]] = {}
    async for topic in slices.over(topics):
        named = numbers(topic)
        # dict.fromkeys() is so fast that 16 numbers are counted as one element.
        slices.spend(len(named) // 16)
        asked.setdefault(topic_key(topic), {}).update(dict.fromkeys(named))
    return {key: list(of_topic) for key, of_topic in asked.items()}


async def grouped(
    asked: Mapping[K, Collection[object]], answers: Sequence[T], slices: Slices
) -> list[tuple[K, Sequence[T]]]:
    """Group `answers`, which are in the order of the partitions in `asked`, by topic."""
    groups: list[tuple[K, Sequence[T]]] = []
    start = 0
    async for topic, partitions in slices.over(asked.items()):
        end = start + len(partitions)
        groups.append((topic, answers[start:end]))
        start = end
    return groups
