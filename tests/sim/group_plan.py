"""The groups of a seed, and the conditions for founding and settling a group."""

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
"""From this size, a group has longer timeouts; otherwise it would make no progress."""


@dataclass(slots=True)
class GroupPlan:
    """A group, and the clients that participate in it."""

    name: str
    kind: str
    """"eager", "cooperative", or the name of another protocol type."""
    instances: Sequence[str | None]
    """One for each client; two clients may share a static one."""
    partitions: Sequence[TopicPartition]
    outside: TopicPartition
    session_timeout_ms: int
    rebalance_timeout_ms: int
    away_ms: int
    quits: float
    """The probability that a member leaves between two actions."""
    is_well_behaved: bool = False
    """Whether members never pause, disconnect or send requests of older generations."""
    pause_ms: float = 80.0
    """The longest wait of a member between two actions, unless the session timeout is short."""
    commits_metadata: bool = True
    """Whether members commit metadata with their offsets."""
    view: GroupView | None = None
    present: list[Member] = field(default_factory=list)
    _was_settled: bool = False

    @property
    def topics(self) -> list[str]:
        """The topics whose offsets are committed."""
        return sorted({self.outside.topic, *(one.topic for one in self.partitions)})

    @property
    def is_cooperative(self) -> bool:
        """Whether members keep their partitions during a rebalance."""
        return self.kind == "cooperative"

    @property
    def is_eager(self) -> bool:
        """Whether members revoke their partitions before a rebalance."""
        return not self.is_cooperative

    @property
    def protocol_type(self) -> str:
        """The protocol type in JoinGroup."""
        return "connect" if self.kind == "connect" else CONSUMER_PROTOCOL_TYPE

    @property
    def pace_ms(self) -> float:
        """The longest wait of a member between two actions, in milliseconds."""
        crowd = len(self.instances) // _CROWD
        return min(self.pause_ms * (1 + crowd), self.session_timeout_ms / 4)

    @property
    def patience_ms(self) -> float:
        """The additional time that JoinGroup and SyncGroup may take."""
        return 10.0 * self.rebalance_timeout_ms

    def is_founded(self) -> bool:
        """Whether the first offset is committed."""
        assert self.view is not None
        return self.view.register(self.outside).floor is not None

    def is_settled(self) -> bool:
        """Whether all present members were once in one generation with every partition assigned.

        Queried only after faults have ended and no members join; from then on, members only leave.
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
    """Return the groups of a seed (with `members` in all, if given) and their topic."""
    if members is None:
        members = chance.choice((0, 3, 5, 8, 12))
    count = min(members // 2, chance.randint(1, 3 if members < _CROWD else 5))
    number = chance.choice(_PARTITIONS) * (1 if members < _CROWD else 8)
    topic = TopicPlan(WORK_TOPIC, number, {"retention.ms": "-1"})
    return [_make_group(chance, n, members // count, number) for n in range(count)], topic


def choose_instances(chance: random.Random, members: int) -> list[str | None]:
    """Return the ``group.instance.id`` of each member, None for dynamic ones."""
    static_share = chance.choice((0.0, 0.3, 1.0))
    instances: list[str | None] = []
    for index in range(members):
        instance = f"s{index}" if chance.random() < static_share else None
        if instance is not None and instances and chance.random() < 0.15:
            instance = instances[-1]  # Two clients share a configuration file.
        instances.append(instance)
    return instances


def _make_group(chance: random.Random, number: int, members: int, partitions: int) -> GroupPlan:
    scale = 1 if members < _CROWD else 5
    instances = choose_instances(chance, members)
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
