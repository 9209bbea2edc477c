"""The state of a group member, and the rules for its transitions.

    UNJOINED              not in a generation; may still have a member id, with which it rejoins
    PREPARING_REBALANCE   has sent JoinGroup and waits until all other members have joined
    COMPLETING_REBALANCE  in a new generation; waits for the leader's assignment
    STABLE                has its assignment

A response to a heartbeat, a commit or a join may show that the generation is over or that the
coordinator does not know the member. The components report this to `Membership`; before that, they
check that the request was not sent in an older generation.

Source: Kafka 4.3 AbstractCoordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

NO_GENERATION = -1
# The maximum length of a reason (KIP-800).
_REASON_MAX_CHARACTERS = 255


class Generation(NamedTuple):
    """A member's identity and generation; the generation is -1 before the first join.

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
    """A member's state in a rebalance, with Kafka's names."""

    UNJOINED = "unjoined"
    PREPARING_REBALANCE = "preparing rebalance"
    COMPLETING_REBALANCE = "completing rebalance"
    STABLE = "stable"


class Membership:
    """One consumer's membership: state, generation and reason to rejoin.

    It calls `on_change` after every change.
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
        """Whether the member is waiting for other members or for its assignment."""
        return self.state in (MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE)

    @property
    def stable_generation(self) -> Generation | None:
        """The generation for commits, or None unless the member is stable."""
        return self.generation if self.state is MemberState.STABLE else None

    def ask_to_rejoin(self, reason: str) -> None:
        """Rejoin in the application's next poll; the coordinator receives the first reason."""
        # Keep the first reason: later reasons are usually its consequences.
        if not self.rejoin_reason:
            self.rejoin_reason = reason[:_REASON_MAX_CHARACTERS]
        self._on_change()

    def begin_join(self) -> None:
        """Record that JoinGroup is being sent."""
        self.state = MemberState.PREPARING_REBALANCE
        self._on_change()

    def given_member_id(self, member_id: str) -> None:
        """Store the member id that the second JoinGroup must contain (KIP-394)."""
        self.generation = self._without_generation(member_id)

    def joined(self, generation_id: int, member_id: str, protocol: str | None) -> None:
        """Enter the generation."""
        self.state = MemberState.COMPLETING_REBALANCE
        self.generation = self.generation._replace(
            generation_id=generation_id, member_id=member_id, protocol=protocol
        )
        # The reason for this generation is done; later reasons apply to the next generation.
        self.rejoin_reason = None
        self._on_change()

    def join_failed(self) -> None:
        """Record that the join failed."""
        # Keep the generation, because the owned partitions may still be valid.
        self.state = MemberState.UNJOINED
        self.ask_to_rejoin("rebalance failed")

    def synced(self) -> None:
        """Record that the assignment has arrived."""
        self.state = MemberState.STABLE
        self._on_change()

    def reset(self, reason: str, *, keeps_member_id: bool) -> None:
        """Discard the generation; the member must rejoin."""
        self.state = MemberState.UNJOINED
        # Before the next join, the partitions of this generation must be reported as lost.
        self.needs_prepare = True
        self.generation = self._without_generation(
            self.generation.member_id if keeps_member_id else ""
        )
        self.ask_to_rejoin(reason)

    def _without_generation(self, member_id: str) -> Generation:
        return Generation(member_id=member_id, group_instance_id=self.generation.group_instance_id)
