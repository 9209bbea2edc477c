"""The state of a group member and the rules for its transitions. Pure.

    UNJOINED              in no generation; may have a member id, under which it joins again
    PREPARING_REBALANCE   has sent JoinGroup and waits until all other members have joined
    COMPLETING_REBALANCE  in a new generation, waits for the leader's assignment
    STABLE                has its assignment

Heartbeats, commits and the rebalance may each learn from the coordinator that the generation is
over or that the member is unknown. They report this here, with the generation in which they sent
the request; a late report about an older generation changes nothing.

Source: Kafka 4.3 AbstractCoordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

NO_GENERATION = -1
# KIP-800 limits the reason to this length.
_REASON_MAX_CHARACTERS = 255


class Generation(NamedTuple):
    """A member's identity and its generation, which is -1 before the first one.

    `protocol` is the name of the assignor that the coordinator has selected.
    """

    member_id: str = ""
    generation_id: int = NO_GENERATION
    group_instance_id: str | None = None
    protocol: str | None = None

    @property
    def is_member(self) -> bool:
        """Whether offsets can be committed in this generation."""
        return self.generation_id != NO_GENERATION and bool(self.member_id)


class MemberState(Enum):
    """The state of a member in a rebalance, with Kafka's names."""

    UNJOINED = "unjoined"
    PREPARING_REBALANCE = "preparing rebalance"
    COMPLETING_REBALANCE = "completing rebalance"
    STABLE = "stable"


class Membership:
    """The membership of one consumer: state, generation and reason to rejoin.

    `on_change` is called after every change.
    """

    def __init__(self, group_instance_id: str | None, on_change: Callable[[], None]) -> None:
        self.state = MemberState.UNJOINED
        self.generation = Generation(group_instance_id=group_instance_id)
        self.rejoin_reason: str | None = ""
        """Why the member must rejoin; None if it need not."""
        self.needs_prepare = True
        """Whether partitions of the last generation must be revoked before joining."""
        self._on_change = on_change

    @property
    def has_to_join(self) -> bool:
        """Whether a rejoin was requested since the last generation started."""
        return self.rejoin_reason is not None

    @property
    def is_rebalancing(self) -> bool:
        """Whether the member waits for other members or for its assignment."""
        return self.state in (MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE)

    @property
    def stable_generation(self) -> Generation | None:
        """The generation to commit in; None unless the member is stable."""
        return self.generation if self.state is MemberState.STABLE else None

    def ask_to_rejoin(self, reason: str) -> None:
        """Rejoin in the application's next poll; the coordinator receives the first reason."""
        # The first reason is the cause; later ones are its consequences.
        if not self.rejoin_reason:
            self.rejoin_reason = reason[:_REASON_MAX_CHARACTERS]
        self._on_change()

    def begin_join(self) -> None:
        """Record that JoinGroup is being sent."""
        self.state = MemberState.PREPARING_REBALANCE
        self._on_change()

    def given_member_id(self, member_id: str) -> None:
        """Store the id with which the coordinator requires a second JoinGroup (KIP-394)."""
        self.generation = self._without_generation(member_id)

    def joined(self, generation_id: int, member_id: str, protocol: str | None) -> None:
        """Enter the generation."""
        self.state = MemberState.COMPLETING_REBALANCE
        self.generation = self.generation._replace(
            generation_id=generation_id, member_id=member_id, protocol=protocol
        )
        # Reasons to rejoin that arrive from now on request the next generation.
        self.rejoin_reason = None
        self._on_change()

    def join_failed(self) -> None:
        """Record that the join failed."""
        # The generation is kept: owned partitions may still be valid.
        self.state = MemberState.UNJOINED
        self.ask_to_rejoin("rebalance failed")

    def synced(self) -> None:
        """Record that the assignment has arrived."""
        self.state = MemberState.STABLE
        self._on_change()

    def reset(self, reason: str, *, keeps_member_id: bool) -> None:
        """Leave the generation: the member must rejoin."""
        self.state = MemberState.UNJOINED
        # The next join first reports the partitions of the lost generation as lost.
        self.needs_prepare = True
        self.generation = self._without_generation(
            self.generation.member_id if keeps_member_id else ""
        )
        self.ask_to_rejoin(reason)

    def _without_generation(self, member_id: str) -> Generation:
        return Generation(member_id=member_id, group_instance_id=self.generation.group_instance_id)
