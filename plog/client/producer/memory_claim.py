"""The claim of a record on the memory of its producer, which buffer.memory limits."""

from enum import IntEnum


class Claim(IntEnum):
    """How much of buffer.memory a record may reserve."""

    NEW = 0
    """Free memory, unless other records are waiting for it."""
    FIRST = 1
    """Free memory: the record is the first in the queue for it."""
    GRANTED = 2
    """Any amount of memory: the caller has just checked that there is room."""
