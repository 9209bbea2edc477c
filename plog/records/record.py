"""`Record` and related types, which the codec decodes from bytes and encodes to bytes.

codec.py re-exports them. They have their own module because codec.py may be compiled, and Cython
0.29 cannot compile named tuples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

Header: TypeAlias = tuple[str, bytes | None]

NO_OFFSET = -1
"""The offset of a record that is to get the offset after its predecessor's."""


class Record(NamedTuple):
    """A record of a log. `timestamp` is in ms, or -1 if the producer did not set one.

    Header keys are text; bytes that are not UTF-8 become surrogates (PEP 383), so that encoding a
    decoded record restores its bytes.
    """

    offset: int = NO_OFFSET
    timestamp: int = -1
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[Header] = ()


RecordFields: TypeAlias = tuple[int, int, bytes | None, bytes | None, Sequence[Header]]
"""A `Record`, or a plain tuple of the same fields, which costs half as much to create."""


class RecordHead(NamedTuple):
    """The fields of a record that `walk_records` yields."""

    offset: int
    timestamp: int
    has_key: bool
