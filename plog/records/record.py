"""What a record is: the values that the codec makes of bytes, and takes.

codec.py gives them out as its own; they are apart because it may be compiled, which Cython 0.29
cannot do with named tuples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

Header: TypeAlias = tuple[str, bytes | None]

NO_OFFSET = -1
"""The offset of a record that follows the one before it."""


class Record(NamedTuple):
    """One record of a log. `timestamp` is in ms, -1 where the producer gave none.

    Header keys are text; bytes in them that are not UTF-8 survive as surrogates (PEP 383), so that
    what was read can be written again unchanged.
    """

    offset: int = NO_OFFSET
    timestamp: int = -1
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[Header] = ()


RecordFields: TypeAlias = tuple[int, int, bytes | None, bytes | None, Sequence[Header]]
"""A `Record`, or a plain tuple of the same fields, which costs half as much to make."""


class RecordHead(NamedTuple):
    """What `walk_records` tells of a record."""

    offset: int
    timestamp: int
    has_key: bool
