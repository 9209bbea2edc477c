"""Which actors inside the broker's machine a seed has, their topics, and the files it loses."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from plogd.log.file_names import SNAPSHOT_SUFFIX, parse_partition_dir_name
from tests.helpers.sim.sim_files import SimFiles
from tests.sim.admins import TopicPlan
from tests.sim.follower import Follower
from tests.sim.transaction_writer import TransactionWriter

if TYPE_CHECKING:
    from tests.sim.world import World

TRANSACTIONAL, FOLLOWED = "transactional", "followed"


def make_inside_topics(chance: random.Random) -> list[TopicPlan]:
    """Return the topics of the actors; half of the seeds have each of them."""
    plans = []
    forever = {"retention.ms": "-1"}
    if chance.random() < 0.5:
        settings = {
            **forever,
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0",
            "delete.retention.ms": chance.choice(("500", "3600000")),
        }
        plans.append(TopicPlan(TRANSACTIONAL, 1, settings, is_written_by_clients=False))
    if chance.random() < 0.5:
        plans.append(
            TopicPlan(FOLLOWED, 1, forever, is_written_by_clients=False, is_read_by_clients=False)
        )
    return plans


def make_insiders(
    world: World, chance: random.Random
) -> tuple[Sequence[TransactionWriter], Sequence[Follower]]:
    """Return the actors of the topics that the world has."""
    writers = [
        TransactionWriter(world, plan, random.Random(chance.random()))
        for plan in world.plans
        if plan.name == TRANSACTIONAL
    ]
    followers = [
        Follower(world, plan, random.Random(chance.random()))
        for plan in world.plans
        if plan.name == FOLLOWED
    ]
    return writers, followers


class LostSnapshots:
    """Removes the producer snapshots of compacted topics when the process ends; in some seeds.

    The batches of a compacted topic must be enough to know its producers: compaction keeps the last
    one of each.
    """

    def __init__(self, world: World, chance: random.Random) -> None:
        self._world = world
        self._chance = chance
        self._is_enabled = chance.random() < 0.5

    def happen(self) -> None:
        """Remove all snapshots, or none."""
        if not self._is_enabled or self._chance.random() < 0.3:
            return
        files, removed = self._world.files, 0
        for log_dir in self._world.config.log_dirs:
            names = files.listdir(log_dir) if files.exists(log_dir) else []
            for name in names:
                parsed = parse_partition_dir_name(name)
                if parsed and parsed.topic_partition.topic in self._world.history.compacted:
                    removed += _remove_snapshots(files, f"{log_dir}/{name}")
        self._world.count("lost snapshots", removed)


def _remove_snapshots(files: SimFiles, directory: str) -> int:
    names = [name for name in files.listdir(directory) if name.endswith(SNAPSHOT_SUFFIX)]
    for name in names:
        files.unlink(f"{directory}/{name}")
    return len(names)


class CrashAfterCompaction:
    """Loses power or kills the process soon after a log has been compacted; in some seeds.

    The names of the new segments must be durable by then: a power loss must leave either them
    or the old ones. Later syncs of the directory would hide that they are not.
    """

    def __init__(self, world: World, chance: random.Random) -> None:
        self._world = world
        self._chance = chance
        self._left = chance.choice((0, 8))

    def reported(self, text: str) -> None:
        """Handle a line that the broker logs."""
        is_due = text.startswith("compacted ") and self._chance.random() < 0.5
        if is_due and self._left and self._world.working:
            self._left -= 1
            self._world.timers.call_later(self._chance.choice((0, 0, 1, 10)), self._crash)

    def _crash(self) -> None:
        self._world.count("fault crash_after_compaction")
        self._world.service.end(power_loss=self._chance.random() < 0.5)
