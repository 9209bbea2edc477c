"""A consumer's membership in a group: it turns a subscription into assigned partitions.

This module controls the order of events. A `Coordination` enters generations and keeps the member
in them, `Revocation` decides which partitions to revoke, and `Commits` commits offsets. They share
the state in `Membership`.

As in Kafka's own consumer, a rebalance makes progress in the application's polls, because a poll
means that the application has processed all earlier records:

1. In a poll, `attend` commits the positions if automatic commits are enabled, revokes partitions
   and calls the listener. An eager member revokes all partitions; a cooperative member revokes only
   partitions of topics to which it is no longer subscribed. Then the join starts as a concurrent
   task.
2. The join continues between polls. Meanwhile, a cooperative member keeps reading.
3. In a later poll, `attend` applies the assignment. A cooperative member revokes partitions that
   are missing from the assignment and joins again, so that other members can get them.

Therefore, the caller must run `attend` during one of the application's polls, call `polled` first,
and not return any records until `attend` has returned.

Source: Kafka 4.3 ConsumerCoordinator; KIP-62, KIP-345, KIP-429.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from plog.client.assignors import Assignment, Assignor, RebalanceProtocol
from plog.client.consumer.rebalance_listener import CallUser, ConsumerRebalanceListener
from plog.client.consumer.subscription import ConsumerSubscription
from plog.client.consumer.topic_selection import TopicSelection, refusal
from plog.client.errors import ConfigError, MaxPollIntervalExceeded
from plog.client.group.broker_coordination import BrokerCoordination
from plog.client.group.commit_before_revocation import CommitBeforeRevocation
from plog.client.group.coordination import Coordination
from plog.client.group.group_metadata import GroupMetadata
from plog.client.group.leave_group import LEAVE_RESERVE_S
from plog.client.group.member_state import Generation, Membership, MemberState
from plog.client.group.offset_commits import CommitCallback
from plog.client.group.positions_port import PositionsPort
from plog.client.group.revocation import Revocation
from plog.client.network.cluster import Cluster
from plog.client.network.deadline import Deadline
from plog.client.network.metadata import ClusterMetadata
from plog.client.network.ports import Cancelled, Network, Task
from plog.client.settings import ConsumerSettings
from plog.client.task_completion import TaskCompletion
from plog.client.values import OffsetAndMetadata
from plog.client.zookeeper.ports import ZooKeeperConnection
from plog.client.zookeeper.zookeeper_coordination import ZooKeeperCoordination
from plog.errors import FencedInstanceId, KafkaError
from plog.types import TopicPartition

log = logging.getLogger("plog.client.group")


class GroupMember(ConsumerSubscription):
    """A member of a consumer group. Use only in the network's thread, except for `polled`."""

    def __init__(
        self,
        cluster: Cluster,
        network: Network,
        settings: ConsumerSettings,
        positions: PositionsPort,
        *,
        assignors: Sequence[str | Assignor | type[Assignor]] | None = None,
        zookeeper: ZooKeeperConnection | None = None,
        call_user: CallUser,
    ) -> None:
        """Create a member; `assignors` override ``partition.assignment.strategy``.

        With `zookeeper`, ZooKeeper coordinates the group; otherwise, a broker does.
        """
        assert settings.group_id is not None, "a member needs a group.id"
        super().__init__(cluster, settings, call_user)
        self.group_id = settings.group_id
        self._network = network
        self._positions = positions
        self._membership = Membership(settings.group_instance_id, self._changed)
        self._coordination = self._make_coordination(assignors, zookeeper)
        self._commits = self._coordination.commits
        self._revocation = Revocation(
            self._coordination.protocol,
            settings,
            CommitBeforeRevocation(cluster, network, self._commits, positions, self._changed),
            self._membership,
            positions,
            selection=lambda: self._selection,
            listening=lambda: self._listening,
        )
        self._metadata = GroupMetadata(self.group_id)
        self._joined_topics: frozenset[str] | None = None
        self._assignment: tuple[Generation, Assignment] | None = None
        # If a poll is cancelled, the listener may not have been called for these new partitions.
        self._unannounced: frozenset[TopicPartition] = frozenset()
        # The partitions that this member has reported as owned since its last assignment.
        self._claimed: frozenset[TopicPartition] = frozenset()
        self._is_joining = False
        self._join_task: Task | None = None
        self._attending = False
        self._is_waking = False
        self._failure: Exception | None = None
        cluster.on_update.append(self._metadata_changed)

    def _make_coordination(
        self,
        assignors: Sequence[str | Assignor | type[Assignor]] | None,
        zookeeper: ZooKeeperConnection | None,
    ) -> Coordination:
        parts = (
            self._cluster,
            self._network,
            self._settings,
            self._membership,
            self._positions,
        )
        if zookeeper is not None:
            if assignors:
                raise ConfigError(
                    ["assignors: not supported with coordination=zookeeper, which uses ranges"]
                )
            return ZooKeeperCoordination(
                *parts,
                zookeeper=zookeeper,
                call_user=self._call_user,
                poll_expired=self._poll_expired,
                fail=self._fail,
            )
        return BrokerCoordination(
            *parts,
            assignors=assignors,
            call_user=self._call_user,
            poll_expired=self._poll_expired,
            fail=self._fail,
        )

    # -- subscription and state ---------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] | None = None,
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        super().subscribe(topics, pattern, listener)
        self._commits.is_managed = True
        self._coordination.polled()
        self._check_subscription()
        self._changed()

    @property
    def generation(self) -> Generation:
        """The current member id and generation."""
        return self._membership.generation

    @property
    def metadata(self) -> GroupMetadata:
        """The member id and generation under which the application's records were read."""
        # Manually assigned partitions have no generation.
        if self._selection is None and self._positions.assigned:
            return self._coordination.for_transaction(GroupMetadata(self.group_id))
        # Return even a lost generation, so that the coordinator rejects the offsets.
        return self._coordination.for_transaction(self._metadata)

    @property
    def state(self) -> MemberState:
        """The state of this member in the current rebalance."""
        return self._membership.state

    @property
    def needs_attention(self) -> bool:
        """Whether `attend` has work to do."""
        if self._selection is None:
            return False
        if self._failure is not None:
            return True
        if self.is_revoking:
            return False
        has_to_join = not self._is_joining and self._membership.has_to_join
        return has_to_join or self._assignment is not None

    @property
    def is_revoking(self) -> bool:
        """Whether partitions will be revoked as soon as their positions are committed."""
        return self._revocation.is_waiting

    def polled(self, *, waits: bool = False) -> None:
        """Record a poll: the application has processed all earlier records. Thread-safe.

        With `waits`, the poll lasts until the next call to this method.
        """
        self._coordination.polled(waits=waits)
        self._commits.polled()

    def commit_when_due(self) -> None:
        """Start automatic commits if they are enabled, even for manually assigned partitions."""
        self._commits.send_automatic()

    # -- rebalance ----------------------------------------------------------------------------

    async def attend(self) -> None:
        """Perform the pending work of a poll, without waiting for other members.

        Raises permanent errors from the coordinator (`GroupAuthorizationFailed`,
        `InconsistentGroupProtocol`, `GroupMaxSizeReached`, `FencedInstanceId` …),
        `MaxPollIntervalExceeded` once after it occurs, and exceptions from the listener.
        """
        if self._attending:
            return
        self._attending = True
        try:
            # `polled` may run in another thread, so it only records the commit that is due.
            self._commits.send_automatic()
            while self.needs_attention:
                await self._attend_once()
        finally:
            self._attending = False

    async def _attend_once(self) -> None:
        """Perform the next step, and then raise the listener's exception, if there was one."""
        membership = self._membership
        is_idle = not self._is_joining and self._assignment is None
        needs_prepare = is_idle and membership.has_to_join and membership.needs_prepare
        if needs_prepare and not self.is_revoking:
            await self._revocation.before_join()
        elif self._failure is not None:
            self._raise_failure()
        elif self._assignment is not None:
            try:
                if await self._apply_assignment(*self._assignment):
                    self._assignment = None
            except Cancelled:
                raise  # The next poll retries.
            except Exception:
                self._assignment = None
                raise
        elif self._selection is not None:
            self._begin_join(self._selection)
        self._listening.raise_error()

    def _begin_join(self, selection: TopicSelection) -> None:
        self._coordination.start()
        owned: Collection[TopicPartition] = ()
        # KIP-429: a cooperative member keeps its partitions while it joins. It reports them, so
        # that the leader does not assign them to other members too early.
        if self._coordination.protocol is RebalanceProtocol.COOPERATIVE:
            owned = self._positions.assigned
            self._claimed |= frozenset(owned)
        self._is_joining = True
        self._join_task = self._network.spawn(
            self._join(selection, owned), f"joining group {self.group_id}"
        )

    async def _join(self, selection: TopicSelection, owned: Collection[TopicPartition]) -> None:
        try:
            # Matching a pattern requires the names of all topics.
            if selection.pattern is not None and self._joined_topics is None:
                await self._know_all_topics()
            self._joined_topics = topics = selection.wanted(self._cluster.metadata)
            assignment = await self._coordination.join(topics, owned)
            if assignment is not None:
                self._assignment = (self._membership.generation, assignment)
        except Cancelled:
            pass  # `leave` cancels the join.
        except FencedInstanceId as error:
            self._membership.reset("fenced", keeps_member_id=False)
            self._fail(error)
        except Exception as error:
            self._membership.join_failed()
            self._fail(error)
        self._is_joining = False
        self._changed()

    async def _know_all_topics(self) -> None:
        """Wait for the metadata of all topics, which matching a pattern requires."""
        backoff = self._cluster.backoff(self._cluster.deadline(math.inf))
        while True:
            try:
                await self._cluster.refresh(all_topics=True)
                return
            except KafkaError as error:
                if not error.retriable:
                    raise
                log.warning("group %s: cannot fetch metadata: %s", self.group_id, error)
                await backoff.wait()

    async def _apply_assignment(self, generation: Generation, assignment: Assignment) -> bool:
        """Apply a new generation's assignment; return False while a commit must finish first."""
        self._membership.needs_prepare = True
        selection = self._selection
        assigned = frozenset(assignment.partitions)
        if selection is None or generation != self._membership.stable_generation:
            self._revocation.end()
            return True
        # The application may have changed its subscription during the join.
        if not all(selection.covers(one.topic) for one in assigned):
            self._revocation.end()
            self._membership.ask_to_rejoin("received assignment doesn't match the subscription")
            return True
        owned = self._positions.assigned
        revoked = owned - assigned
        if revoked:
            if not self._revocation.may_revoke(generation, revoked):
                return False
            if not await self._revocation.with_assignment(generation, revoked):
                return True
        # A static member may return to its generation. It must then give up partitions that it has
        # claimed but lost in the meantime. Other members enter a new generation instead.
        is_static = generation.group_instance_id is not None
        # KIP-429: other members get the revoked partitions only in the next generation.
        if revoked or (is_static and self._claimed - assigned):
            self._membership.ask_to_rejoin("need to revoke partitions and re-join")
        self._claimed = frozenset()
        if selection.pattern is not None and self._joined_topics is not None:
            self._joined_topics |= {one.topic for one in assigned}
        try:
            self._coordination.on_assignment(assignment, generation)
        except Exception as error:
            # The partitions are assigned regardless of this error, so continue with the step.
            self._fail(error)
        log.info("group %s: %s was assigned %s", self.group_id, generation, _text(assigned))
        self._commits.restart_interval()
        self._positions.assign(sorted(assigned))
        self._metadata = GroupMetadata.of(self.group_id, generation)
        self._unannounced = (assigned - owned) | (self._unannounced & assigned)
        self._revocation.end()
        await self._listening.assigned(self._unannounced)
        self._unannounced = frozenset()
        self._check_subscription()
        return True

    # -- leaving ------------------------------------------------------------------------------

    async def leave(
        self, reason: str, deadline: Deadline | None = None, *, is_last: bool = False
    ) -> None:
        """Leave the group and remove the subscription; `subscribe` joins again.

        The listener receives all partitions as revoked or lost. A static member only stops sending
        heartbeats, so it keeps its place in the group. After a call with `is_last`, only `close`
        may follow.
        """
        if self._is_joining and self._join_task is not None:
            self._join_task.cancel()
            self._coordination.join_cancelled()
        self._coordination.stop()
        await self._revocation.before_leaving()
        await self._coordination.leave(reason, deadline, is_last=is_last)
        self._unsubscribe()
        self._joined_topics = self._assignment = self._failure = None
        self._commits.is_managed = False
        self._listening.raise_error()

    async def close(self, timeout_s: float) -> None:
        """Send the last automatic commit, if enabled, wait for pending commits, and leave."""
        deadline = self._cluster.deadline(timeout_s)
        with TaskCompletion(self._close_rest):
            # Reserve time for LeaveGroup: without that request, the other members would have to
            # wait for the session timeout.
            await self._commits.close(timeout_s - min(LEAVE_RESERVE_S, timeout_s / 4))
            await self.leave("the consumer is being closed", deadline, is_last=True)

    def _close_rest(self) -> None:
        if self._metadata_changed in self._cluster.on_update:
            self._cluster.on_update.remove(self._metadata_changed)
        self._revocation.end()
        self._coordination.close()

    async def abandon(self) -> None:
        """Leave at process exit, without a commit and without calling the listener."""
        self._coordination.stop()
        await self._coordination.leave("the process ends", is_last=True)

    def _poll_expired(self) -> None:
        interval_ms = self._settings.max_poll_interval_ms
        error = MaxPollIntervalExceeded(
            f"group {self.group_id}: no poll for max.poll.interval.ms={interval_ms}, so this"
            " member has left, and its partitions are assigned to other members; process fewer"
            " records per poll (max.poll.records) or raise max.poll.interval.ms"
        )
        log.warning("%s", error)
        self._fail(error)
        leaving = self._coordination.leave("consumer poll timeout has expired")
        self._network.spawn(leaving, "leaving the group")

    # -- events -------------------------------------------------------------------------------

    def _metadata_changed(self, metadata: ClusterMetadata) -> None:
        if self._selection is not None:
            error = refusal(self._selection.topics, metadata)
            if error is not None:
                self._fail(error)
        self._check_subscription()

    def _check_subscription(self) -> None:
        """Rejoin if the subscription or the matching topics have changed since the last join."""
        if self._selection is None or self._joined_topics is None:
            return
        if not self._is_joining:
            self._coordination.metadata_changed()
        wanted = self._selection.wanted(self._cluster.metadata)
        if wanted != self._joined_topics and not self._membership.has_to_join:
            self._membership.ask_to_rejoin("subscription has changed")

    def _fail(self, error: Exception) -> None:
        """Raise `error` in the application's next poll."""
        # A fenced member cannot recover, so keep that error.
        if not isinstance(self._failure, FencedInstanceId):
            self._failure = error
        self._changed()

    def _raise_failure(self) -> None:
        failure = self._failure
        if failure is None:
            return
        # A fenced member stays fenced: each poll must raise the error again.
        if not isinstance(failure, FencedInstanceId):
            self._failure = None
        raise failure

    def _changed(self) -> None:
        """Wake all waiters once the current change is complete."""
        if not self._is_waking:
            self._is_waking = True
            self._network.spawn(self._wake(), "waking a group member")

    async def _wake(self) -> None:
        # Wait for one turn of the event loop, so that the current change is complete.
        await self._network.sleep(0)
        self._is_waking = False
        self._coordination.membership_changed()
        if self.needs_attention:
            self.on_attention()

    # -- commits ------------------------------------------------------------------------------

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        timeout_s: float | None = None,
    ) -> None:
        """See `Commits.commit`."""
        # While a listener runs, the group waits for this member at most max.poll.interval.ms.
        if timeout_s is None and self._listening.is_calling:
            limit_s = self._settings.default_api_timeout_ms / 1000
            timeout_s = max(0.0, min(limit_s, self._coordination.poll_left_s))
        await self._commits.commit(offsets, timeout_s=timeout_s)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        callback: CommitCallback | None = None,
    ) -> None:
        """See `Commits.commit_async`."""
        self._commits.commit_async(offsets, callback)

    async def committed(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """See `Coordination.committed`."""
        return await self._coordination.committed(partitions, timeout_s=timeout_s)

    def metrics(self) -> dict[str, float]:
        """Return metrics, named as in Kafka's consumer-coordinator-metrics."""
        return {
            "assigned-partitions": float(len(self._positions.assigned)),
            **self._coordination.metrics(),
            **self._commits.metrics(),
        }


def _text(partitions: Collection[TopicPartition]) -> str:
    return ", ".join(str(one) for one in sorted(partitions)) or "no partitions"
