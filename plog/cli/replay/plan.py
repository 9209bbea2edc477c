"""Plan for ``plog replay``: a range of offsets for each partition, and the progress within it.

The plan is created only once, so that a replay ends even if producers keep writing. The ``--state``
file stores the plan, and the next run with the same file continues it.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from plog.cli.options import UsageError

if TYPE_CHECKING:
    from plog.client.faces.blocking import Consumer


@dataclass(slots=True)
class PartitionRange:
    """The offsets of a partition that remain to be copied."""

    partition: int
    next_offset: int
    end_offset: int

    @property
    def remaining(self) -> int:
        """Return the number of remaining offsets, including gaps and control records."""
        return max(0, self.end_offset - self.next_offset)


def make_plan(
    consumer: Consumer, arguments: argparse.Namespace, partitions: Sequence[int]
) -> list[PartitionRange]:
    """Return the ranges that the options select, limited to the existing offsets."""
    from plog.types import TopicPartition

    topic_partitions = [TopicPartition(arguments.topic, partition) for partition in partitions]
    begin = consumer.beginning_offsets(topic_partitions)
    end = consumer.end_offsets(topic_partitions)

    def bound(of_offset: int | None, of_time: int | None) -> dict[TopicPartition, int] | None:
        if of_offset is not None:
            return dict.fromkeys(topic_partitions, of_offset)
        if of_time is None:
            return None
        found = consumer.offsets_for_times(dict.fromkeys(topic_partitions, of_time))
        # If all records are older than the time, the bound is the end of the log.
        return {x: end[x] if (at := found.get(x)) is None else at.offset for x in topic_partitions}

    first = bound(arguments.from_offset, arguments.from_time) or begin
    last = bound(arguments.until_offset, arguments.until_time) or end
    return [
        PartitionRange(x.partition, *_within(first[x], last[x], begin[x], end[x]))
        for x in topic_partitions
    ]


def _within(first: int, last: int, begin: int, end: int) -> tuple[int, int]:
    """Return a range limited to the existing offsets.

    >>> _within(3, 20, 5, 10), _within(30, 20, 5, 10)
    ((5, 10), (10, 10))
    """
    first = min(max(first, begin), end)
    return first, max(first, min(last, end))


class State:
    """A file with the plan, which is rewritten as the replay progresses."""

    def __init__(self, path: Path, source: str, target: str) -> None:
        """Store the arguments; `source` and `target` are topics, including their cluster ids."""
        self._path = path
        self._topics = {"source": source, "target": target}

    def load(self) -> list[PartitionRange] | None:
        """Return the plan of an earlier run, or None if the file is missing. Raises UsageError."""
        try:
            text = self._path.read_text()
        except FileNotFoundError:
            return None
        try:
            saved = json.loads(text)
            topics = {name: saved[name] for name in self._topics}
            ranges = [
                PartitionRange(int(number), int(each["next"]), int(each["end"]))
                for number, each in saved["partitions"].items()
            ]
        # For example, an AttributeError means that the partitions are a list.
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UsageError(
                f"cannot read {self._path}: it does not contain the state of a replay; use another"
                " file"
            ) from None
        # Continuing another replay would copy the wrong offsets.
        if topics != self._topics:
            raise UsageError(
                f"{self._path} belongs to a replay from {topics['source']} to {topics['target']};"
                " use another file"
            )
        return ranges

    def save(self, ranges: Sequence[PartitionRange]) -> None:
        """Replace the file atomically."""
        state = {
            **self._topics,
            "partitions": {
                str(x.partition): {"next": x.next_offset, "end": x.end_offset} for x in ranges
            },
        }
        temporary = self._path.with_name(self._path.name + ".tmp")
        # Written and synced before it is renamed, so that a crash leaves either the old or the new
        # state, never an empty file.
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(json.dumps(state, indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        # The folder is not synced: if a power failure undoes the change, the previous state is
        # valid, too, and some records are copied again.
        temporary.replace(self._path)
