"""`BackfillPlan`: the offsets of the range, its slices, and where the stream starts.

A slice is a batch with a number. The stream's batches have the numbers after those of the slices,
so that the writer of a table sees one sequence of batches.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

from plog.spark.jobs.table_files import TableFiles, damaged
from plog.spark.options.offsets_json import nest_offsets, read_offsets
from plog.spark.reader.log_lookup import LogLookup
from plog.types import TopicPartition

Offsets = Mapping[TopicPartition, int]
EARLIEST: Final = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillPlan:
    """The offsets from `start` to `end`, which are read in slices of `slice_size` records.

    `id` distinguishes this backfill from others that write the same table.
    """

    id: str
    start: Offsets
    end: Offsets
    slice_size: int

    @property
    def slice_count(self) -> int:
        """Return the number of slices."""
        longest = max((self.end[one] - start for one, start in self.start.items()), default=0)
        return -(-longest // self._step) if longest > 0 else 0

    def slice(self, number: int) -> tuple[Offsets, Offsets]:
        """Return the first and the end offset of each partition in a slice."""
        step = self._step
        starts, ends = {}, {}
        for partition, start in self.start.items():
            end = max(start, self.end[partition])
            starts[partition] = min(end, start + number * step)
            ends[partition] = min(end, start + (number + 1) * step)
        return starts, ends

    @property
    def _step(self) -> int:
        """Return the number of offsets of each partition in a slice."""
        # A slice advances in each partition, also if there are more partitions than records in a
        # slice.
        return max(1, self.slice_size // max(1, len(self.start)))

    def stream_start(
        self, partitions: Mapping[TopicPartition, object]
    ) -> dict[TopicPartition, int]:
        """Return where the stream starts; new `partitions` start with their first record."""
        # The source requires an offset for each partition that exists when the stream starts.
        return {partition: self.end.get(partition, EARLIEST) for partition in partitions}


def resolve_plan(
    lookup: LogLookup,
    partitions: Mapping[TopicPartition, object],
    *,
    from_ms: int | None,
    to_ms: int | None,
    slice_size: int,
) -> BackfillPlan:
    """Look up the offsets of a time range; without a time, the range is that of the log.

    The range ends before the first record at or after `to_ms`. A record that is appended during
    the lookup belongs to the stream.
    """
    bounds = lookup.bounds(list(partitions))
    start = {partition: log.start_offset for partition, log in bounds.items()}
    end = {partition: log.end_offset for partition, log in bounds.items()}
    for offsets, time_ms in ((start, from_ms), (end, to_ms)):
        if time_ms is None:
            continue
        # The time may be found at a record that was appended after the bounds were looked up.
        for partition, offset in lookup.at_times(dict.fromkeys(bounds, time_ms)).items():
            log = bounds[partition]
            # Without such a record, all records are older.
            found = log.end_offset if offset is None else offset
            offsets[partition] = min(max(found, log.start_offset), log.end_offset)
    # If timestamps do not increase, the range may be empty.
    end = {partition: max(end[partition], start[partition]) for partition in end}
    return BackfillPlan(id=uuid4().hex, start=start, end=end, slice_size=slice_size)


def read_plan(files: TableFiles, path: Path) -> BackfillPlan | None:
    """Return the plan in a file, or None if it does not exist. Raises ConfigError if damaged."""
    text = files.read(path)
    if text is None:
        return None
    try:
        found = json.loads(text)
        return BackfillPlan(
            id=str(found["id"]),
            start=read_offsets(found["start"]),
            end=read_offsets(found["end"]),
            slice_size=int(found["slice_size"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        damaged(path, error)


def write_plan(files: TableFiles, path: Path, plan: BackfillPlan) -> None:
    """Store a plan durably."""
    files.make_folder(path.parent)
    text = {
        "id": plan.id,
        "start": nest_offsets(plan.start),
        "end": nest_offsets(plan.end),
        # The numbers of slices depend on it, so a restart uses the stored size, whatever its option
        # is.
        "slice_size": plan.slice_size,
    }
    files.write(path, json.dumps(text))
