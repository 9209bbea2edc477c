"""Which actors inside the broker's machine a seed has, and their topics."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

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
