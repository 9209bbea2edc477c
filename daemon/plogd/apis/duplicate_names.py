"""Detect topics listed more than once in a request; they are rejected, as entries can differ."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol, TypeVar

from plog.errors import InvalidRequest
from plogd.fair_queue import Slices

REPEATED: Final = InvalidRequest("Duplicate topic name.")


class Named(Protocol):
    """A request's element for one topic."""

    name: str


T = TypeVar("T", bound=Named)


async def split_repeated(topics: Iterable[T], slices: Slices) -> tuple[list[T], list[str]]:
    """Return the topics listed exactly once, and the repeated names, both in request order."""
    named: dict[str, T | None] = {}
    async for topic in slices.over(topics):
        named[topic.name] = None if topic.name in named else topic
    once: list[T] = []
    repeated: list[str] = []
    async for name, one in slices.over(named.items()):
        if one is None:
            repeated.append(name)
        else:
            once.append(one)
    return once, repeated
