"""Detect topics listed more than once in a request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol, TypeVar

from plog.errors import InvalidRequest
from plogd.fair_queue import Slices

# One instance suffices, because it is only converted to a response: raising it would add a
# traceback each time.
REPEATED: Final = InvalidRequest("Duplicate topic name.")


class Named(Protocol):
    """A request's element for one topic."""

    name: str


T = TypeVar("T", bound=Named)


async def split_repeated(topics: Iterable[T], slices: Slices) -> tuple[list[T], list[str]]:
    """Return the topics listed exactly once, and the repeated names, both in request order."""
    named: dict[str, T | None] = {}
    async for topic in slices.over(topics):
        # All entries of a repeated topic are rejected: they can differ, and none takes precedence.
        named[topic.name] = None if topic.name in named else topic
    once: list[T] = []
    repeated: list[str] = []
    async for name, one in slices.over(named.items()):
        if one is None:
            repeated.append(name)
        else:
            once.append(one)
    return once, repeated
