"""Which groups a seed has, and when one is founded and settled."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plog.types import TopicPartition
from plog.wire.internal.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from tests.sim.admins import TopicPlan

if TYPE_CHECKING:
    from tests.sim.group_history import GroupView
    from tests.sim.members import Member

WORK_TOPIC = "work"
_OUTSIDE_TOPIC = "kept"
_PARTITIONS = (1, 4, 7)
_CROWD = 50
"""From so many members on a group's timeouts are longer, or it would never get anything done."""


@dataclass(slots=True)
class GroupPlan:
    """A group, and the clients that take part in it."""

    name: str
    kind: str
    """"eager", "cooperative", or another protocol type altogether."""
    instances: Sequence[str | None]
    """One for each client; a static one's may be another's, too."""
    partitions: Sequence[TopicPartition]
    outside: TopicPartition
    session_timeout_ms: int
    rebalance_timeout_ms: int
    away_ms: int
    quits: float
    """How likely a member goes, between two things it does."""
    is_well_behaved: bool = False
    """Whether its members never pause, break off or act in the past."""
    view: GroupView | None = None
    present: list[Member] = field(default_factory=list)
    _was_settled: bool = False

    @property
    def topics(self) -> list[str]:
        """What is committed."""
        return sorted({self.outside.topic, *(one.topic for one in self.partitions)})

    @property
    def is_cooperative(self) -> bool:
        """Whether members keep what they own during a rebalance."""
        return self.kind == "cooperative"

    @property
    def is_eager(self) -> bool:
        """Whether they give it up."""
        return not self.is_cooperative

    @property
    def protocol_type(self) -> str:
        """As JoinGroup tells it."""
        return "connect" if self.kind == "connect" else CONSUMER_PROTOCOL_TYPE

    @property
    def pace_ms(self) -> float:
        """How long a member waits at most between two things it does."""
        crowd = len(self.instances) // _CROWD
        return min(80.0 * (1 + crowd), self.session_timeout_ms / 4)

    @property
    def patience_ms(self) -> float:
        """How much longer than others JoinGroup and SyncGroup may take."""
        return 10.0 * self.rebalance_timeout_ms

    def is_founded(self) -> bool:
        """Whether the first offset is committed."""
        assert self.view is not None
        return self.view.register(self.outside).floor is not None

    def is_settled(self) -> bool:
        """Whether all that are there were once in one generation, with every partition given out.

        Asked when no faults and no newcomers come any more; from then on members go.
        """
        self._was_settled = self._was_settled or self._looks_settled()
        return self._was_settled

    def _looks_settled(self) -> bool:
        if not all(member.has_seen_end for member in self.present):
            return False
        generations = {member.assigned_generation for member in self.present}
        if len(generations) > 1 or any(member.needs_join for member in self.present):
            return False
        owned = [partition for member in self.present for partition in member.owned]
        return not self.present or sorted(owned) == sorted(self.partitions)

    def __str__(self) -> str:
        members = [
            (member.name, member.assigned_generation, member.needs_join, sorted(member.owned))
            for member in self.present
        ]
        return f"{self.name} ({self.kind}): {members}"


def make_groups(chance: random.Random, members: int | None) -> tuple[list[GroupPlan], TopicPlan]:
    """The groups of a seed, with `members` in all if that is told, and the topic they consume."""
    if members is None:
        members = chance.choice((0, 3, 5, 8, 12))
    count = min(members // 2, chance.randint(1, 3 if members < _CROWD else 5))
    number = chance.choice(_PARTITIONS) * (1 if members < _CROWD else 8)
    topic = TopicPlan(WORK_TOPIC, number, {"retention.ms": "-1"})
    return [_make_group(chance, n, members // count, number) for n in range(count)], topic


def _make_group(chance: random.Random, number: int, members: int, partitions: int) -> GroupPlan:
    scale = 1 if members < _CROWD else 5
    static_share = chance.choice((0.0, 0.3, 1.0))
    instances: list[str | None] = []
    for index in range(members):
        instance = f"s{index}" if chance.random() < static_share else None
        if instance is not None and instances and chance.random() < 0.15:
            instance = instances[-1]  # Somebody has copied a configuration file.
        instances.append(instance)
    return GroupPlan(
        name=f"group-{number}",
        kind=chance.choice(("eager", "eager", "cooperative", "cooperative", "connect")),
        instances=instances,
        partitions=[TopicPartition(WORK_TOPIC, one) for one in range(partitions)],
        outside=TopicPartition(_OUTSIDE_TOPIC, 0),
        session_timeout_ms=chance.choice((100, 300, 1000)) * scale,
        rebalance_timeout_ms=chance.choice((100, 300, 2000)) * scale,
        away_ms=chance.choice((50, 200, 800)),
        quits=chance.choice((0.01, 0.05, 0.15)),
    )
