"""Targets of position resets, from auto.offset.reset or a seek by time.

offset_reset.py decides when a position is reset. The special timestamps are defined by ListOffsets.
Source: KIP-79, KIP-734, KIP-405, KIP-1106.
"""

from __future__ import annotations

from typing import NamedTuple

from plog.client.settings.consumer import OffsetReset

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2


class ResetTo(NamedTuple):
    """A position that the leader must look up: the first record at or after `timestamp`.

    With `age_ms`, the timestamp is the time of the request minus `age_ms`.
    """

    timestamp: int
    age_ms: int | None = None

    def timestamp_at(self, now_ms: int) -> int:
        """Return the timestamp to send to the leader."""
        return self.timestamp if self.age_ms is None else max(0, now_ms - self.age_ms)

    def __str__(self) -> str:
        if self.age_ms is not None:
            return f"the first record from the last {self.age_ms} ms"
        names = {EARLIEST_TIMESTAMP: "the earliest offset", LATEST_TIMESTAMP: "the latest offset"}
        return names.get(self.timestamp, f"the first record at or after {self.timestamp} ms")


EARLIEST = ResetTo(EARLIEST_TIMESTAMP)
LATEST = ResetTo(LATEST_TIMESTAMP)


def reset_to(reset: OffsetReset) -> ResetTo | None:
    """Return the target for a value of auto.offset.reset, or None for ``none``."""
    if reset.kind == "by_duration":
        return ResetTo(0, age_ms=reset.duration_ms)
    return {"earliest": EARLIEST, "latest": LATEST}.get(reset.kind)
