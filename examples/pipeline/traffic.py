"""`traffic`: clicks and log lines of a simulated web site, in the order of their times. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import merge
from random import Random
from typing import Final

CLICKS: Final = "clicks"
LINES: Final = "log-lines"
IN_EVERY_LINE: Final = "request"
"""A word that every log line contains."""
SERVERS: Final = ("web-1", "web-2", "web-3")
"""The names of the producers."""
MINUTE_MS: Final = 60_000
_PAGES: Final = ("/", "/cart", "/checkout", "/help", "/product/1", "/product/2", "/search")
_WEIGHTS: Final = (30, 12, 6, 3, 20, 15, 14)
_LEVELS: Final = ("INFO", "INFO", "INFO", "WARN", "ERROR")
_EVENTS: Final = (
    "request served",
    "session opened",
    "cache miss",
    "connection to database lost",
    "payment accepted",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A record to send: its time in ms since 1970, and the name of its producer."""

    topic: str
    producer: str
    at_ms: int
    key: bytes
    value: bytes


def traffic(
    *, clicks: int, lines: int, start_ms: int, minutes: int, seed: int
) -> Iterator[Message]:
    """Yield the messages; more of them are in the middle of the time range than at its ends.

    >>> found = traffic(clicks=2, lines=1, start_ms=0, minutes=1, seed=1)
    >>> sorted(message.topic for message in found)
    ['clicks', 'clicks', 'log-lines']
    """
    chance = Random(seed)
    click_times = _times(chance, clicks, start_ms, minutes)
    line_times = _times(chance, lines, start_ms, minutes)
    found: Iterable[Message] = merge(
        (_click(chance, at_ms) for at_ms in click_times),
        (_line(chance, at_ms) for at_ms in line_times),
        key=lambda message: message.at_ms,
    )
    yield from found


def _times(chance: Random, count: int, start_ms: int, minutes: int) -> list[int]:
    length_ms = minutes * MINUTE_MS
    return sorted(start_ms + int(chance.triangular(0, length_ms)) for _ in range(count))


def _click(chance: Random, at_ms: int) -> Message:
    user = f"user-{chance.randrange(500)}"
    [page] = chance.choices(_PAGES, _WEIGHTS)
    value = {"user": user, "page": page, "ms": chance.randrange(1, 900)}
    return Message(
        topic=CLICKS,
        producer=chance.choice(SERVERS),
        at_ms=at_ms,
        key=user.encode(),
        value=json.dumps(value).encode(),
    )


def _line(chance: Random, at_ms: int) -> Message:
    time = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    producer = chance.choice(SERVERS)
    text = f"{time} {chance.choice(_LEVELS)} {producer} {chance.choice(_EVENTS)}"
    return Message(
        topic=LINES,
        producer=producer,
        at_ms=at_ms,
        key=producer.encode(),
        value=f"{text} {IN_EVERY_LINE}={chance.randrange(1 << 32):08x}".encode(),
    )
