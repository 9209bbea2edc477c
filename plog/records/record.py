"""`Record` and related types, which the codec decodes and encodes.

codec.py re-exports these types. They have their own module because Cython 0.29, which can compile
codec.py, cannot compile named tuples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

Header: TypeAlias = tuple[str, bytes | None]

NO_OFFSET = -1
"""The offset of a record that gets the next offset when it is encoded."""


class Record(NamedTuple):
    """A log record. `timestamp` is in ms, or -1 if the producer did not set a timestamp.

    Header keys are text; bytes that are not UTF-8 become surrogates (PEP 383), so that encoding a
    decoded record restores the original bytes.
    """

    offset: int = NO_OFFSET
    timestamp: int = -1
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[Header] = ()


RecordFields: TypeAlias = tuple[int, int, bytes | None, bytes | None, Sequence[Header]]
"""A `Record`, or a plain tuple of the same fields, which is created in half the time."""


class RecordHead(NamedTuple):
    """The fields of a record that `walk_records` yields."""

    offset: int
    timestamp: int
    has_key: bool
