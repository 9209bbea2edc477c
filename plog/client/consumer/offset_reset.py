"""Where to begin when a position has to be found: what auto.offset.reset and seeks by time mean.

Pure. The numbers are those of ListOffsets. Source: KIP-79, KIP-734, KIP-405, KIP-1106.
"""

from __future__ import annotations

from typing import NamedTuple

from plog.client.settings.consumer import OffsetReset

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2


class ResetTo(NamedTuple):
    """A place in a log that its leader has to be asked for: the first record at `timestamp`.

    With `age_ms`, that time is so long ago whenever it is asked.
    """

    timestamp: int
    age_ms: int | None = None

    def timestamp_at(self, now_ms: int) -> int:
        """What to ask the leader for."""
        return self.timestamp if self.age_ms is None else max(0, now_ms - self.age_ms)

    def __str__(self) -> str:
        if self.age_ms is not None:
            return f"the first record of the last {self.age_ms} ms"
        names = {EARLIEST_TIMESTAMP: "the earliest offset", LATEST_TIMESTAMP: "the latest offset"}
        return names.get(self.timestamp, f"the first record of the time {self.timestamp} or later")


EARLIEST = ResetTo(EARLIEST_TIMESTAMP)
LATEST = ResetTo(LATEST_TIMESTAMP)


def reset_to(reset: OffsetReset) -> ResetTo | None:
    """What the setting auto.offset.reset stands for; None for ``none``."""
    if reset.kind == "by_duration":
        return ResetTo(0, age_ms=reset.duration_ms)
    return {"earliest": EARLIEST, "latest": LATEST}.get(reset.kind)
