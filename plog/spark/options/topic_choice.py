"""`TopicChoice`: the topics or partitions that a query reads, as its options name them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from plog.spark.options.offsets_json import parse_partitions
from plog.spark.options.option_values import OptionReader
from plog.types import TopicPartition

_NAMES = ("assign", "subscribe", "subscribePattern")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChoice:
    """All partitions of `topics` or of topics in which `pattern` is found, or only `partitions`.

    As in the connector, a pattern does not have to match the whole name. It excludes internal
    topics.
    """

    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    partitions: tuple[TopicPartition, ...] = ()


def read_topic_choice(options: OptionReader) -> TopicChoice:
    """Return the choice; problems are added to `options`."""
    given = [name for name in _NAMES if options.has(name)]
    if len(given) != 1:
        found = f"{' and '.join(given)} are set" if given else "no topic is set"
        options.problems.append(f"{found}; set exactly one of {', '.join(_NAMES)}")
        return TopicChoice()
    return TopicChoice(
        topics=options.parsed("subscribe", _topics) or (),
        pattern=options.parsed("subscribePattern", _pattern),
        partitions=options.parsed("assign", _partitions) or (),
    )


def _topics(text: str) -> tuple[str, ...]:
    # A topic that is named twice must not be read twice.
    names = {name for part in text.split(",") if (name := part.strip())}
    if not names:
        raise ValueError("does not contain any topics; separate the names with commas")
    return tuple(sorted(names))


def _pattern(text: str) -> re.Pattern[str]:
    # An empty pattern is found in every name, so the query would read all topics.
    if not text.strip():
        raise ValueError("is empty; set a regular expression")
    try:
        return re.compile(text)
    except re.error as error:
        # The connector uses Java's syntax; the differences are rare.
        raise ValueError(f"not a regular expression of Python: {error}") from None


def _partitions(text: str) -> tuple[TopicPartition, ...]:
    partitions = parse_partitions(text)
    if not partitions:
        raise ValueError('does not contain any partitions; use the format {"page-views":[0,1]}')
    return tuple(partitions)
