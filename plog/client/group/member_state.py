"""What a member of a group knows of its own place in it: pure state, and the rules of its changes.

    UNJOINED              in no generation; perhaps with a member id, to join again under
    PREPARING_REBALANCE   has asked to join and waits until all others have
    COMPLETING_REBALANCE  in a new generation, waits for the leader's assignment
    STABLE                has its assignment

Heartbeats, commits and the rebalance itself all hear from the coordinator that the generation is
over or the member unknown. Each of them tells it here, with the generation it had asked in; what
comes late and is about an older one changes nothing.

Source: Kafka 4.3 AbstractCoordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

NO_GENERATION = -1
_REASON_MAX_CHARACTERS = 255


class Generation(NamedTuple):
    """Who a member is, and which assignment it goes by; -1 before it has one.

    `protocol` is the name of the assignor the coordinator has chosen.
    """

    member_id: str = ""
    generation_id: int = NO_GENERATION
    group_instance_id: str | None = None
    protocol: str | None = None

    @property
    def is_member(self) -> bool:
        """Whether offsets can be committed with it."""
        return self.generation_id != NO_GENERATION and bool(self.member_id)


class MemberState(Enum):
    """See the module's text."""

    UNJOINED = "unjoined"
    PREPARING_REBALANCE = "preparing rebalance"
    COMPLETING_REBALANCE = "completing rebalance"
    STABLE = "stable"


class Membership:
    """See the module's text. `on_change` is called after every change."""

    def __init__(self, group_instance_id: str | None, on_change: Callable[[], None]) -> None:
        self.state = MemberState.UNJOINED
        self.generation = Generation(group_instance_id=group_instance_id)
        self.rejoin_reason: str | None = ""
        """Why it has to join again; None if it has not."""
        self.needs_prepare = True
        """Whether something of the last generation has to be given up before."""
        self._on_change = on_change

    @property
    def has_to_join(self) -> bool:
        """Whether somebody asked for it since the last generation began."""
        return self.rejoin_reason is not None

    @property
    def is_rebalancing(self) -> bool:
        """Whether it waits for the others or for its assignment."""
        return self.state in (MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE)

    @property
    def stable_generation(self) -> Generation | None:
        """The generation to commit in; None while there is none to rely on."""
        return self.generation if self.state is MemberState.STABLE else None

    def ask_to_rejoin(self, reason: str) -> None:
        """Join again as soon as the application polls; the coordinator is told the first reason."""
        if not self.rejoin_reason:
            self.rejoin_reason = reason[:_REASON_MAX_CHARACTERS]
        self._on_change()

    def begin_join(self) -> None:
        """JoinGroup leaves now."""
        self.state = MemberState.PREPARING_REBALANCE
        self._on_change()

    def given_member_id(self, member_id: str) -> None:
        """The coordinator wants to see it with this id again (KIP-394)."""
        self.generation = self._without_generation(member_id)

    def joined(self, generation_id: int, member_id: str, protocol: str | None) -> None:
        """All have joined; reasons to join that come from now on ask for the next generation."""
        self.state = MemberState.COMPLETING_REBALANCE
        self.generation = self.generation._replace(
            generation_id=generation_id, member_id=member_id, protocol=protocol
        )
        self.rejoin_reason = None
        self._on_change()

    def join_failed(self) -> None:
        """No generation has come of it; what is owned may still be."""
        self.state = MemberState.UNJOINED
        self.ask_to_rejoin("rebalance failed")

    def synced(self) -> None:
        """The assignment is here."""
        self.state = MemberState.STABLE
        self._on_change()

    def reset(self, reason: str, *, keeps_member_id: bool) -> None:
        """The generation counts no more: what is owned is lost, and it has to join again."""
        self.state = MemberState.UNJOINED
        self.needs_prepare = True
        self.generation = self._without_generation(
            self.generation.member_id if keeps_member_id else ""
        )
        self.ask_to_rejoin(reason)

    def _without_generation(self, member_id: str) -> Generation:
        return Generation(member_id=member_id, group_instance_id=self.generation.group_instance_id)
