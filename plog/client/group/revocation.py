"""Revoke partitions: select the partitions, commit their positions, call the listener.

Which partitions a member revokes depends on the event:

    before a join          eager: all; cooperative: partitions of topics no longer subscribed to
    new assignment         cooperative: partitions missing from it; eager: none are left
    lost generation        all, reported as lost: other members may already own them
    leaving                all, reported as lost unless the member is stable

member.py calls these methods in the application's polls. commit_before_revocation.py commits the
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
    """The revocation of one member's partitions.

    `selection` and `listening` are functions, because the listener may change the subscription.
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
        """Record that the revocation is complete or cancelled.

        The call has no effect if no revocation is in progress.
        """
        self._commit.end()

    async def before_join(self) -> None:
        """Commit and revoke the partitions that the member cannot keep during the rebalance.

        When the revocation is complete, the membership no longer `needs_prepare`.
        """
        generation = self._membership.generation
        owned = self._positions.assigned
        # If the generation is over, other members may already own the partitions, and a commit
        # would be rejected. Therefore, report the partitions as lost (KIP-429).
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
        # If the generation was lost in the meantime, the remaining partitions must be reported as
        # lost first.
        if self._membership.generation == generation:
            self._membership.needs_prepare = False

    def _unsubscribed(self, owned: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        selection = self._selection()
        return frozenset(x for x in owned if selection is None or not selection.covers(x.topic))

    @property
    def _rebalance_timeout_s(self) -> float:
        """Return the time limit for the commit before a rebalance, in seconds."""
        # The group waits for this member at most max.poll.interval.ms.
        settings = self._settings
        return min(settings.max_poll_interval_ms, settings.default_api_timeout_ms) / 1000

    def may_revoke(self, generation: Generation, revoked: frozenset[TopicPartition]) -> bool:
        """Return whether the partitions may be revoked now; start their commit if it is due."""
        return self._commit.is_over(generation, revoked, only_these=True, longest_s=LEAVE_TIMEOUT_S)

    async def with_assignment(
        self, generation: Generation, revoked: frozenset[TopicPartition]
    ) -> bool:
        """Revoke partitions missing from the assignment; return False if the generation has ended.

        Call this only after `may_revoke` has returned True.
        """
        if not await self._revoke(revoked):
            return False
        if generation != self._membership.stable_generation:
            self._commit.end()
            return False
        return True

    async def before_leaving(self) -> None:
        """Report all partitions as revoked or lost, without a commit, and remove them."""
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
        """Call the listener, then remove the partitions; return False if it unsubscribed."""
        await self._listening().revoked(revoked)
        if self._selection() is None:
            return False
        self._positions.assign(self._positions.assigned - revoked)
        return True
