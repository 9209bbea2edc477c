"""The tables that a query names, as Spark reports them, and the topics that they mean. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from plog.settings import ConfigError, nearest_name

_PART: Final = re.compile(r"`((?:[^`]|``)*)`(?:\.|$)")

_LITERAL: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")


def name_parts(relation: str) -> list[str]:
    """Return the parts of a name in an error message of Spark.

    >>> name_parts("`my`.`topic`"), name_parts("`my.topic`"), name_parts("`a``b`")
    (['my', 'topic'], ['my.topic'], ['a`b'])
    """
    return [part.replace("``", "`") for part in _PART.findall(relation)]


def topic_of(relation: str, topics: Collection[str]) -> str:
    """Return the topic that a table in a query refers to. Raises ConfigError if it is missing."""
    parts = name_parts(relation)
    name = ".".join(parts)
    # Several parts would be a table in a schema or in a catalog.
    if len(parts) == 1 and name in topics:
        return name
    problem = f"cannot find the table {name}"
    if name in topics:
        raise ConfigError([f"{problem}: write `{name}` in backticks, because it contains a dot"])
    near = nearest_name(name, topics)
    hint = f"; did you mean {near}?" if near else "; plog topics --list shows all topics"
    raise ConfigError([f"{problem}: there is no such topic{hint}"])


def check_case(topic: str, query: str, topics: Collection[str]) -> None:
    """Check that the query does not name another topic that differs only in case.

    Raises ConfigError.
    """
    # Spark would read the same topic for both.
    for other in topics:
        if other != topic and other.lower() == topic.lower() and _names(query, other):
            raise ConfigError(
                [
                    f"cannot read {topic} and {other} in one query: Spark's names ignore the case;"
                    " run two queries"
                ]
            )


def _names(query: str, table: str) -> bool:
    """Return whether a query contains a name outside of its string literals.

    >>> _names("from clicks where page = 'Clicks'", "Clicks"), _names("from Clicks", "Clicks")
    (False, True)
    """
    return re.search(rf"\b{re.escape(table)}\b", _LITERAL.sub("", query)) is not None
