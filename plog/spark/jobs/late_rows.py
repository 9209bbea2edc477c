"""`LateRows`: how many rows a query has ignored because their window was complete. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class LateRows:
    """Counts the late rows in the progress of a query.

    Spark counts rows after a partial aggregation: records of one task with the same name and
    window, or with the same name and time for sessions, are one row.
    """

    last: str = ""
    """The start of the newest trigger that was counted; Spark's text sorts by time."""

    def count(self, progress: Iterable[Mapping[str, Any]]) -> int:
        """Return the late rows of triggers that were not counted before, the oldest first."""
        found = 0
        for one in progress:
            # Spark keeps the progress of the last 100 triggers, most of which were counted before.
            if one["timestamp"] <= self.last:
                continue
            self.last = one["timestamp"]
            found += sum(each["numRowsDroppedByWatermark"] for each in one["stateOperators"])
        return found
