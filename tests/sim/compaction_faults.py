"""Faults during a compaction and soon afterwards, in addition to those of the nemesis.

While the segments of a compacted log are replaced, the disk may lose power or the process may be
killed at each file operation. Later, a sync of the directory for another reason would hide that a
name is not durable.

After a compaction, the process may be killed and the producer snapshots of compacted topics may be
lost. The remaining batches must be enough to recognize a batch that is sent again, because
compaction keeps the last batch of each producer. Some seeds have none of these faults.

A log is rarely compacted during the work. If clients write to a compacted topic, these faults and
some of its producers therefore continue for a while when all others have finished.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

from plog.types import TopicPartition
from plogd.log.file_names import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    parse_partition_dir_name,
)
from tests.helpers.sim.sim_files import Operation, SimFiles

if TYPE_CHECKING:
    from tests.sim.world import World

_COMPACTED = "compacted {topic_partition} up to offset {offset}"
"""The line that the broker logs after a compaction."""
_CRASH_SHARES = {LOG_SUFFIX + CLEANED_SUFFIX: 0.3, TIME_INDEX_SUFFIX + SWAP_SUFFIX: 0.9}
"""How often a crash follows the renames that begin a replacement and that complete it."""
_EXTRA_MS = 5_000.0
"""How long the faults continue after the work."""
_OPERATIONS_AHEAD = 6
"""About as many file operations as follow such a rename in the same job."""


class CompactionFaults:
    """Injects the faults, and notes up to which offset each log is compacted."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self._world = world
        self._chance = chance
        self._crashes_left = chance.choice((0, 8, 8))
        self._kills_left = chance.choice((0, 4, 8))
        self._loses_snapshots = chance.random() < 0.5
        self._end_offsets: dict[TopicPartition, int] = {}
        self._end_ms = 0.0

    @property
    def is_active(self) -> bool:
        """Whether the faults and the producers that need them continue."""
        return self._world.working or self._world.clock.monotonic_ms() < self._end_ms

    def work_ended(self) -> None:
        """Continue for a while if clients write to a compacted topic."""
        if any(plan.is_compacted and plan.is_written_by_clients for plan in self._world.plans):
            self._end_ms = self._world.clock.monotonic_ms() + _EXTRA_MS

    def reported(self, message: str, fields: Mapping[str, object]) -> None:
        """Handle a line that the broker logs."""
        if message == _COMPACTED:
            topic_partition, offset = fields["topic_partition"], fields["offset"]
            assert isinstance(topic_partition, TopicPartition)
            assert isinstance(offset, int)
            self._end_offsets[topic_partition] = offset

    def end_offset(self, topic_partition: TopicPartition) -> int:
        """Return the end of the compacted part of a log."""
        return self._end_offsets.get(topic_partition, 0)

    def operation_begins(self, operation: Operation) -> None:
        """Plan a crash at this operation or at one of the next if segments are being replaced."""
        if operation.name != "rename" or not (self._crashes_left and self.is_active):
            return
        share = sum(
            share for suffix, share in _CRASH_SHARES.items() if operation.path.endswith(suffix)
        )
        if share and self._chance.random() < share:
            self._crashes_left -= 1
            self._world.count("fault crash_during_swap")
            self._world.crash_is_power_loss = self._chance.random() < 0.8
            number = operation.number + self._chance.randrange(_OPERATIONS_AHEAD)
            self._world.files.crash_at(number)

    def kill_and_lose_snapshots(self) -> None:
        """Kill the process and lose its snapshots, unless that has happened often enough."""
        if self._kills_left and self._world.service.is_serving:
            self._kills_left -= 1
            self._world.count("fault kill_and_lose_snapshots")
            self._world.service.end(power_loss=False)
            self._lose_snapshots()

    def process_ended(self) -> None:
        """After a kill or a clean stop, lose all snapshots or none."""
        if self._loses_snapshots and self._chance.random() < 0.7:
            self._lose_snapshots()

    def _lose_snapshots(self) -> None:
        world, removed = self._world, 0
        for log_dir in world.config.log_dirs:
            names = world.files.listdir(log_dir) if world.files.exists(log_dir) else []
            for name in names:
                parsed = parse_partition_dir_name(name)
                if parsed and parsed.topic_partition.topic in world.history.compacted:
                    removed += _remove_snapshots(world.files, f"{log_dir}/{name}")
        world.count("lost snapshots", removed)


def _remove_snapshots(files: SimFiles, directory: str) -> int:
    names = [name for name in files.listdir(directory) if name.endswith(SNAPSHOT_SUFFIX)]
    for name in names:
        files.unlink(f"{directory}/{name}")
    return len(names)
