"""The result of an admin operation on many items, with an outcome for each item.

Every such operation returns `Results`; it raises only errors that apply to the whole request.
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
    """A mapping from each requested item to its value or its error, in request order.

    `results[key]` returns the value or the error; `get` raises the error.

    >>> results = Results({"a": 1, "b": KafkaError("b is missing")})
    >>> results.get("a"), results["b"], results.values_by_key
    (1, KafkaError('b is missing'), {'a': 1})
    >>> results.raise_first()
    Traceback (most recent call last):
        ...
    plog.error_base.KafkaError: b is missing
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

    def get(self, key: K) -> V:  # type: ignore[override]  # a default would hide the error
        """Return the value for `key`, or raise its error. Raises KeyError for an unknown key."""
        outcome = self._outcomes[key]
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome

    def raise_first(self) -> dict[K, V]:
        """Return all values by key, or raise the first error."""
        for outcome in self._outcomes.values():
            if isinstance(outcome, KafkaError):
                raise outcome
        # mypy cannot see that the loop has excluded all errors.
        return cast("dict[K, V]", dict(self._outcomes))

    @property
    def values_by_key(self) -> dict[K, V]:
        """The values of all items that succeeded."""
        return {key: x for key, x in self._outcomes.items() if not isinstance(x, KafkaError)}

    @property
    def errors(self) -> dict[K, KafkaError]:
        """The errors of all items that failed."""
        return {key: x for key, x in self._outcomes.items() if isinstance(x, KafkaError)}


def several(items: Iterable[K]) -> list[K]:
    """Return `items` without duplicates, in order. Raises TypeError for a single string.

    >>> several("page-views")
    Traceback (most recent call last):
        ...
    TypeError: expected a list: pass ['page-views'] instead of 'page-views'
    """
    if isinstance(items, str | bytes):
        raise TypeError(f"expected a list: pass [{items!r}] instead of {items!r}")
    return list(dict.fromkeys(items))


def outcome(code: int, message: str | None, about: str, value: V) -> V | KafkaError:
    """Return `value` if `code` is 0, otherwise the code's error.

    The error's text is the broker's message or, without one, `about` and the code's meaning.

    >>> outcome(0, None, "topic a", 3)
    3
    >>> outcome(3, "", "topic a", 3)
    UnknownTopicOrPartition('topic a: This broker does not host the topic or partition.')
    """
    if code == 0:
        return value
    # The broker's message is more precise than the error code's general meaning.
    if message:
        return error_from_code(code, message)
    return error_about(code, about)


def log_notes(about: str, outcomes: Iterable[tuple[int, str | None]]) -> None:
    """Log each message that a broker sends with successful outcomes, once.

    For example, plog brokers store ACLs without enforcing them, and say so. Apache Kafka brokers do
    not send such messages.
    """
    # A broker repeats the same message for each item.
    notes = dict.fromkeys(message for code, message in outcomes if code == 0 and message)
    for note in notes:
        log.warning("%s: %s", about, note)


def raise_if_error(code: int, message: str | None, about: str) -> None:
    """Raise the error for `code`, unless `code` is 0."""
    error = outcome(code, message, about, None)
    if error is not None:
        raise error
