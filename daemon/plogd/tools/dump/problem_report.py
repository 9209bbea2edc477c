"""Problems found by a dump, reported on standard error as Kafka's tool reports them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class ProblemReport:
    """The problems found in all files, by each file's absolute path."""

    on_damage: Callable[[str], None]
    """Called immediately with the description of each damaged file."""
    index_mismatches: dict[str, dict[int, int]] = field(default_factory=dict)
    timestamp_mismatches: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    timestamps_out_of_order: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    offsets_not_found: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    non_consecutive: dict[str, dict[int, int]] = field(default_factory=dict)
    is_damaged: bool = False

    def add_damage(self, path: str, problem: str) -> None:
        """Report that a file is damaged."""
        self.is_damaged = True
        self.on_damage(f"{path}: {problem}")

    def lines(self) -> Iterator[str]:
        """Yield the inconsistencies, in the format that Kafka's tool prints at its end."""
        for path, mismatches in self.index_mismatches.items():
            # The position of the colon is Kafka's.
            yield f"Mismatches in :{path}"
            # Kafka's tool puts each new mismatch at the start of a list.
            for offset in sorted(mismatches, reverse=True):
                yield f"  Index offset: {offset}, log offset: {mismatches[offset]}"
        yield from self._time_index_lines()
        for path, pairs in self.non_consecutive.items():
            yield f"Non-consecutive offsets in {path}"
            for offset in sorted(pairs):
                yield f"  {offset} is followed by {pairs[offset]}"

    def _time_index_lines(self) -> Iterator[str]:
        for path, found in self.timestamp_mismatches.items():
            yield f"Found timestamp mismatch in :{path}"
            for indexed, logged in found:
                yield f"  Index timestamp: {indexed}, log timestamp: {logged}"
        for path, found in self.timestamps_out_of_order.items():
            yield f"Found out of order timestamp in :{path}"
            for indexed, previous in found:
                yield f"  Index timestamp: {indexed}, Previously indexed timestamp: {previous}"
        # Kafka's text does not contain the path.
        for found in self.offsets_not_found.values():
            yield "The following indexed offsets are not found in the log."
            for indexed, logged in found:
                yield f"Indexed offset: {indexed}, found log offset: {logged}"


def absolute(path: str) -> str:
    """Return the absolute path as Java forms it: without resolving ``.`` and ``..``."""
    return os.path.join(os.getcwd(), path)
