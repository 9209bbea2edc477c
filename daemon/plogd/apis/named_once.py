"""Topics that one request names: each is to be named once, or nobody knows which was meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

from plog.errors import InvalidRequest

REPEATED: Final = InvalidRequest("Duplicate topic name.")


class Named(Protocol):
    """A part of a request about one topic."""

    name: str


T = TypeVar("T", bound=Named)


def split_repeated(topics: Sequence[T]) -> tuple[list[T], list[str]]:
    """The topics that are named once, and the names of the others, in the request's order."""
    named = Counter(topic.name for topic in topics)
    once = [topic for topic in topics if named[topic.name] == 1]
    return once, [name for name, count in named.items() if count > 1]
