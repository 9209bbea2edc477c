"""Revocation of partitions: which ones, the commit before it, and the call of the listener.

    before a join          eager: all; cooperative: those whose topics are no longer subscribed
    with the assignment    cooperative: those missing from it; an eager member has none left
    lost generation        all, as lost: other members may own them already
    leaving                all; as lost unless the member is stable

member.py calls these methods, in the application's polls. commit_before_revocation.py commits the
positions while polls continue, so a revocation may take several polls.

Source: KIP-429; Kafka 4.3 ConsumerCoordinator.onJoinPrepare, onJoinComplete, onLeavePrepare.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from plog.client.assignors import RebalanceProtocol
from plog.client.consumer.rebalance_listener import Listening
from plog.client.consumer.topic_selection import TopicSelection
from plog.client.group.commit_before_revocation import CommitBeforeRevocation
from plog.client.group.leave_group import LEAVE_TIMEOUT_S
from plog.client.group.member_state import Generation, Membership, MemberState
from plog.client.group.positions_port import PositionsPort
from plog.client.settings import ConsumerSettings
from plog.types import TopicPartition

log = logging.getLogger("plog.client.group")


class Revocation:
    """Revokes partitions of one member.

    `selection` and `listening` return those of the current subscription, which the listener may
    change or end.
    """

    def __init__(
        self,
        protocol: RebalanceProtocol,
        settings: ConsumerSettings,
        commit: CommitBeforeRevocation,
        membership: Membership,
        positions: PositionsPort,
        *,
        selection: Callable[[], TopicSelection | None],
        listening: Callable[[], Listening],
    ) -> None:
        self._protocol = protocol
        self._settings = settings
        self._commit = commit
        self._membership = membership
        self._positions = positions
        self._selection = selection
        self._listening = listening

    @property
    def is_waiting(self) -> bool:
        """Whether partitions will be revoked as soon as their positions are committed."""
        return self._commit.waits_in is not None and (
            self._commit.waits_in == self._membership.generation
        )

    def end(self) -> None:
        """Record that the revocation is complete or cancelled; no effect if none is in progress."""
        self._commit.end()

    async def before_join(self) -> None:
        """Commit and revoke the partitions that the member cannot keep during the rebalance.

        When this is complete, the membership no longer `needs_prepare`.
        """
        generation = self._membership.generation
        owned = self._positions.assigned
        # The generation is over, so other members may own the partitions already and a commit would
        # be rejected: `lost` is called instead of `revoked` (KIP-429).
        if not generation.is_member:
            if owned:
                names = ", ".join(map(str, sorted(owned)))
                log.warning("group %s: lost partitions: %s", self._settings.group_id, names)
                await self._listening().lost(owned)
                self._positions.assign(())
        else:
            is_eager = self._protocol is RebalanceProtocol.EAGER
            revoked = owned if is_eager else self._unsubscribed(owned)
            longest_s = self._rebalance_timeout_s
            if not self._commit.is_over(generation, revoked, only_these=False, longest_s=longest_s):
                return
            if (is_eager or revoked) and not await self._revoke(revoked):
                return
        self._commit.end()
        # If the generation was lost meanwhile, the remaining partitions must be reported as lost.
        if self._membership.generation == generation:
            self._membership.needs_prepare = False

    def _unsubscribed(self, owned: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        selection = self._selection()
        return frozenset(x for x in owned if selection is None or not selection.covers(x.topic))

    @property
    def _rebalance_timeout_s(self) -> float:
        """Return how long the group waits for this member, in seconds."""
        settings = self._settings
        return min(settings.max_poll_interval_ms, settings.default_api_timeout_ms) / 1000

    def may_revoke(self, generation: Generation, revoked: frozenset[TopicPartition]) -> bool:
        """Return whether the partitions to revoke are committed; start the commit if it is due."""
        return self._commit.is_over(generation, revoked, only_these=True, longest_s=LEAVE_TIMEOUT_S)

    async def with_assignment(
        self, generation: Generation, revoked: frozenset[TopicPartition]
    ) -> bool:
        """Revoke partitions missing from the assignment; return False if the generation has ended.

        Call it only after `may_revoke` has returned True.
        """
        if not await self._revoke(revoked):
            return False
        if generation != self._membership.stable_generation:
            self._commit.end()
            return False
        return True

    async def before_leaving(self) -> None:
        """Report all partitions as revoked or lost, without a commit, and drop them."""
        self._commit.end()
        owned = self._positions.assigned
        if self._selection() is None or not owned:
            return
        if self._membership.state is MemberState.STABLE:
            await self._listening().revoked(owned)
        else:
            await self._listening().lost(owned)
        self._positions.assign(())

    async def _revoke(self, revoked: frozenset[TopicPartition]) -> bool:
        """Call the listener, then drop the partitions; return False if it unsubscribed."""
        await self._listening().revoked(revoked)
        if self._selection() is None:
            return False
        self._positions.assign(self._positions.assigned - revoked)
        return True
