"""The values that loads send; their contents determine how well they compress."""

from __future__ import annotations

import random
from itertools import islice

from tests.helpers.access_log import access_lines

KINDS = ("log", "letters", "random", "zero")


def payloads(kind: str, size: int, count: int = 1000) -> list[bytes]:
    """Return different values of `size` bytes, the same in every run."""
    chance = random.Random(2011)
    if kind == "zero":
        return [bytes(size)]
    if kind == "random":
        return [chance.randbytes(size) for _ in range(count)]
    if kind == "letters":  # Like those of Kafka's ProducerPerformance.
        return [bytes(chance.choices(range(65, 91), k=size)) for _ in range(count)]
    lines = access_lines()
    # Complete lines, truncated at the end: the shortest line has more than 90 bytes.
    return [b"".join(islice(lines, size // 90 + 1))[:size] for _ in range(count)]
