"""Duplicate topic names in a request; such a topic is refused, because its entries may differ."""

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
    """Return the topics that are listed once, and the repeated names, in request order."""
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
