"""What became of many things at once: each has an outcome of its own.

Every admin method about many things gives `Results`; trouble of the whole is raised instead.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar, cast

from plog.client.errors import error_about
from plog.errors import KafkaError, error_from_code

log = logging.getLogger("plog.client")

K = TypeVar("K")
V = TypeVar("V")


class Results(Mapping[K, V | KafkaError]):
    """A mapping from what was asked about to its value, or to the error it has instead of one.

    In the order asked. Looking one up, `results[key]`, gives either; `get` raises the error.

    >>> results = Results({"a": 1, "b": KafkaError("b is gone")})
    >>> results.get("a"), results["b"], results.values_by_key
    (1, KafkaError('b is gone'), {'a': 1})
    >>> results.raise_first()
    Traceback (most recent call last):
        ...
    plog.error_base.KafkaError: b is gone
    """

    __slots__ = ("_outcomes",)

    def __init__(self, outcomes: Mapping[K, V | KafkaError]) -> None:
        self._outcomes = dict(outcomes)

    def __getitem__(self, key: K) -> V | KafkaError:
        return self._outcomes[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._outcomes)

    def __len__(self) -> int:
        return len(self._outcomes)

    def __repr__(self) -> str:
        return f"Results({self._outcomes!r})"

    def get(self, key: K) -> V:  # type: ignore[override]  # a default would hide what went wrong
        """The value of `key`. Raises its error, or KeyError if it was not asked about."""
        outcome = self._outcomes[key]
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome

    def raise_first(self) -> dict[K, V]:
        """All values, by key, if there is no error; else raises the first."""
        for outcome in self._outcomes.values():
            if isinstance(outcome, KafkaError):
                raise outcome
        return cast("dict[K, V]", dict(self._outcomes))

    @property
    def values_by_key(self) -> dict[K, V]:
        """What has a value."""
        return {key: x for key, x in self._outcomes.items() if not isinstance(x, KafkaError)}

    @property
    def errors(self) -> dict[K, KafkaError]:
        """What has none, and why."""
        return {key: x for key, x in self._outcomes.items() if isinstance(x, KafkaError)}


def several(items: Iterable[K]) -> list[K]:
    """Each of `items` once. Raises TypeError for one name, which is made of letters.

    >>> several("page-views")
    Traceback (most recent call last):
        ...
    TypeError: several are asked for: ['page-views'] instead of 'page-views'
    """
    if isinstance(items, str | bytes):
        raise TypeError(f"several are asked for: [{items!r}] instead of {items!r}")
    return list(dict.fromkeys(items))


def outcome(code: int, message: str | None, about: str, value: V) -> V | KafkaError:
    """`value`, or the error `code` stands for; it is `about` this if the broker says no more.

    >>> outcome(0, None, "topic a", 3)
    3
    >>> outcome(3, "", "topic a", 3)
    UnknownTopicOrPartition('topic a: This broker hosts no such topic or partition.')
    """
    if code == 0:
        return value
    if message:
        return error_from_code(code, message)
    return error_about(code, about)


def log_notes(about: str, outcomes: Iterable[tuple[int, str | None]]) -> None:
    """Log what a broker says of things that have no error, each text once.

    plog says so of rules that are stored, not enforced; Apache Kafka says nothing.
    """
    notes = dict.fromkeys(message for code, message in outcomes if code == 0 and message)
    for note in notes:
        log.warning("%s: %s", about, note)


def raise_if_error(code: int, message: str | None, about: str) -> None:
    """Raise the error `code` stands for, unless it is none."""
    error = outcome(code, message, about, None)
    if error is not None:
        raise error
