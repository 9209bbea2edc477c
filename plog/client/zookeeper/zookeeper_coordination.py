"""Coordination by ZooKeeper: Algorithm 1 of the paper, as in the consumers of Kafka 0.7 and 0.8.

Each consumer registers itself, watches the registrations of its group and the partitions of its
topics, and computes its share of them. If the share changes, `GroupMember` revokes all partitions
in the application's next poll and calls `join`, which

1. registers the consumer, or changes its registration;
2. releases the partitions that the consumer owned;
3. reads the group and computes the share;
4. claims the share. If a partition still has another owner, the consumer releases its claims and
   begins again after a pause.

While a connection is lost, the consumer keeps reading: other consumers get its partitions only when
its session has expired. It then reports the partitions as lost, and joins again.

Source: Kafka 0.8.2 ZookeeperConsumerConnector.ZKRebalancerListener; NetDB 2011 paper, section 3.2.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection

from plog.client.assignors import Assignment, RebalanceProtocol
from plog.client.consumer.rebalance_listener import CallUser
from plog.client.errors import ClosedError, ConnectionFailed, IllegalState, InvalidZnode
from plog.client.group.group_metadata import GroupMetadata
from plog.client.group.leave_group import LEAVE_TIMEOUT_S
from plog.client.group.member_state import Generation, Membership, MemberState
from plog.client.group.offset_commits import Commits
from plog.client.group.poll_interval import PollInterval
from plog.client.group.positions_port import PositionsPort
from plog.client.network.cluster import Cluster
from plog.client.network.deadline import Deadline
from plog.client.network.ports import Network, Signal, Task
from plog.client.settings import ConsumerSettings
from plog.client.values import OffsetAndMetadata
from plog.client.zookeeper.consumer_registration import ConsumerRegistration, RegistrationLost
from plog.client.zookeeper.group_view import read_group
from plog.client.zookeeper.group_znodes import GroupZnodes, Registration
from plog.client.zookeeper.partition_owners import PartitionOwners
from plog.client.zookeeper.ports import ZooKeeperConnection
from plog.client.zookeeper.watched_znodes import WatchedZnodes
from plog.client.zookeeper.zookeeper_offsets import ZooKeeperOffsets
from plog.client.zookeeper.zookeeper_session import ZooKeeperSession, kafka_error
from plog.errors import KafkaError
from plog.types import TopicPartition
from plog.zookeeper.operations import (
    ConnectionLost,
    SessionExpired,
    SessionState,
    ZooKeeperError,
)

log = logging.getLogger("plog.client.group")

_ASSIGNOR = "range"


class ZooKeeperCoordination:
    """One member's part in its group; the interface is `Coordination`."""

    protocol = RebalanceProtocol.EAGER

    def __init__(
        self,
        cluster: Cluster,
        network: Network,
        settings: ConsumerSettings,
        membership: Membership,
        positions: PositionsPort,
        *,
        zookeeper: ZooKeeperConnection,
        call_user: CallUser,
        poll_expired: Callable[[], None],
        fail: Callable[[Exception], None],
    ) -> None:
        assert settings.group_id is not None, "a member needs a group.id"
        self._group_id = settings.group_id
        self._cluster = cluster
        self._network = network
        self._membership = membership
        self._poll_expired = poll_expired
        self._fail = fail
        self._session = ZooKeeperSession(
            zookeeper,
            network,
            connection_timeout_s=settings.zookeeper_connection_limit_ms / 1000,
            on_state=self._session_changed,
        )
        self._znodes = GroupZnodes(settings.group_id)
        self._registration = ConsumerRegistration(
            self._session, network, self._znodes, settings.group_id
        )
        self._owners = PartitionOwners(self._session, network, self._znodes, self._registration)
        self._watched = WatchedZnodes(zookeeper, self._group_changed)
        self._offsets = ZooKeeperOffsets(
            cluster, network, settings, self._session, self._znodes, self._registration
        )
        self.commits = Commits(
            cluster, network, settings, self._offsets, membership, positions, call_user
        )
        self._polls = PollInterval(network, settings.max_poll_interval_ms)
        self._changed = network.signal()
        self._task: Task | None = None
        self._topics: frozenset[str] = frozenset()
        self._is_outdated = False
        """Whether znodes have changed since the share was computed."""
        self._generations = 0
        self._left: Signal | None = None
        """Set when `_unregister` has ended; None if it has never been called."""

    # -- polls --------------------------------------------------------------------------------

    @property
    def poll_left_s(self) -> float:
        """The seconds until the next poll is due; negative if it is overdue."""
        return self._polls.left_s

    def polled(self, *, waits: bool = False) -> None:
        """Record a poll. Thread-safe."""
        self._polls.polled(waits=waits)

    # -- watching the group -------------------------------------------------------------------

    def start(self) -> None:
        """Start to watch the group."""
        if self._task is None or self._task.done:
            self._task = self._network.spawn(self._run(), "watching a group in ZooKeeper")

    def stop(self) -> None:
        """Stop watching the group."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def membership_changed(self) -> None:
        """Wake the task that watches the group."""
        self._changed.set()

    def metadata_changed(self) -> None:
        """Request newer metadata if ZooKeeper has partitions that the metadata does not contain."""
        known = self._cluster.metadata
        if any(known.partition(one) is None for one in self._owners.claimed):
            self._cluster.request_update()

    def _group_changed(self) -> None:
        self._is_outdated = True
        self._changed.set()

    def _session_changed(self, state: SessionState) -> None:
        if state is not SessionState.CONNECTED:
            self._watched.forget()
            self._offsets.forget()
        if state is SessionState.EXPIRED:
            self._registration.forget()
            self._owners.forget()
            if self._membership.state is not MemberState.UNJOINED:
                log.warning("group %s: the session with ZooKeeper has expired", self._group_id)
                reason = "the session with ZooKeeper has expired"
                self._membership.reset(reason, keeps_member_id=False)
        # All watches were lost with the last connection.
        self._group_changed()

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            if self._membership.state is not MemberState.STABLE:
                await self._changed.wait()
                continue
            now_s = self._network.now_s()
            expires_s = self._polls.expires_s(now_s)
            if now_s >= expires_s:
                # KIP-62: a member that no longer polls leaves the group, so that another member can
                # read its partitions.
                self._poll_expired()
            elif self._is_outdated and self._session.is_connected:
                await self._check_share(self._membership.generation)
            else:
                await self._changed.wait(expires_s - now_s)

    async def _check_share(self, generation: Generation) -> None:
        """Ask for a rebalance if the share of this consumer has changed."""
        self._is_outdated = False
        try:
            share = await self._share()
        except (ConnectionLost, SessionExpired):
            # The next connection repeats the check. The loss of this one is reported in this turn.
            self._is_outdated = True
            await self._network.sleep(0)
        except InvalidZnode as error:
            self._fail(error)
        except ZooKeeperError as error:
            self._fail(kafka_error(error, self._failed_join))
        else:
            is_same = share == frozenset(self._owners.claimed)
            if generation == self._membership.stable_generation and not is_same:
                self._membership.ask_to_rejoin("the members or partitions of the group changed")

    async def _share(self) -> frozenset[TopicPartition] | None:
        """Return the share of this consumer, or None if it is not registered."""
        view = await read_group(self._network, self._watched, self._znodes, self._topics)
        if self._registration.consumer_id not in view.registrations:
            return None
        return view.share(self._registration.consumer_id)

    # -- joining ------------------------------------------------------------------------------

    async def join(
        self, topics: Collection[str], owned: Collection[TopicPartition]
    ) -> Assignment | None:
        """Claim this consumer's share of the partitions, and return it.

        Returns None if the session has expired. Raises ConnectionFailed if ZooKeeper cannot be
        reached within ``zookeeper.connection.timeout.ms`` after the start, and permanent errors.
        """
        assert not owned, "an eager member has revoked its partitions"
        # The owner of a partition may take max.poll.interval.ms to release it, so the join has no
        # deadline; `leave` cancels it.
        backoff = self._cluster.backoff(self._cluster.deadline(math.inf))
        self._topics = frozenset(topics)
        self._membership.begin_join()
        while True:
            try:
                await self._session.connected()
                if self._left is not None:
                    await self._left.wait()
                share = await self._try_to_join()
            except SessionExpired:
                return None
            except ConnectionLost as error:
                log.info("group %s: joining again after an error: %s", self._group_id, error)
                share = None
            except ConnectionFailed as error:
                # As in Kafka 0.8, only the first connection has a time limit.
                if not self._session.was_connected:
                    raise
                log.warning("group %s: %s", self._group_id, error)
                continue
            except ZooKeeperError as error:
                raise kafka_error(error, self._failed_join) from error
            if share is not None:
                break
            await backoff.wait()
        self._generations += 1
        self._membership.joined(self._generations, self._registration.consumer_id, _ASSIGNOR)
        self._membership.synced()
        return Assignment(partitions=tuple(sorted(share)))

    async def _try_to_join(self) -> frozenset[TopicPartition] | None:
        """Return the claimed share, or None if another attempt is necessary."""
        try:
            if not await self._registration.ensure(Registration.of(self._topics)):
                return None  # The last session of this consumer has not expired yet.
            await self._owners.release()
            # Since then, other members may have written offsets.
            self._offsets.forget()
            self._is_outdated = False
            share = await self._share()
            if share is None:
                self._registration.forget()
                return None
            taken = await self._owners.claim(share)
            # A consumer that has joined in the meantime waits for the partitions of its own share.
            if taken is None and not self._is_outdated:
                return share
            if taken is not None:
                log.info("group %s: %s still has another owner", self._group_id, taken)
            await self._owners.release()
        except RegistrationLost:
            self._registration.forget()
        return None

    def join_cancelled(self) -> None:
        """Do nothing: `leave` removes the znodes of an incomplete join."""

    def on_assignment(self, assignment: Assignment, generation: Generation) -> None:
        """Request newer metadata if it does not contain the partitions yet."""
        self.metadata_changed()

    @property
    def _failed_join(self) -> str:
        return f"cannot join group {self._group_id}"

    # -- leaving ------------------------------------------------------------------------------

    async def leave(
        self, reason: str, deadline: Deadline | None = None, *, is_last: bool = False
    ) -> None:
        """Remove this consumer's registration and owner znodes, or end its session."""
        log.info("group %s: the consumer is leaving: %s", self._group_id, reason)
        self._membership.reset("consumer pro-actively leaving the group", keeps_member_id=False)
        deadline = deadline or Deadline(self._network, LEAVE_TIMEOUT_S)
        if is_last:
            await self._session.end(deadline)
            return
        if self._left is None or self._left.is_set:
            self._left = self._network.signal()
            self._network.spawn(self._unregister(self._left), "leaving a group in ZooKeeper")
        await self._left.wait(deadline.wait_s)

    async def _unregister(self, left: Signal) -> None:
        """Remove the znodes, even if this takes several connections."""
        backoff = self._cluster.backoff(self._cluster.deadline(math.inf))
        while self._registration.may_exist or self._owners.claimed:
            try:
                await self._session.connected()
                # Without the check of the registration: an operator may have deleted it.
                await self._owners.release(is_registered=False)
                await self._registration.remove()
            except ClosedError:
                break  # The znodes end with the session.
            except (KafkaError, ZooKeeperError) as error:
                log.info("group %s: leaving again after an error: %s", self._group_id, error)
                await backoff.wait()
        left.set()

    def close(self) -> None:
        """End the session without waiting."""
        self.stop()
        self._session.begin_end()

    # -- offsets and metrics ------------------------------------------------------------------

    async def committed(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """See `ZooKeeperOffsets.committed`."""
        return await self._offsets.committed(partitions, timeout_s=timeout_s)

    def for_transaction(self, metadata: GroupMetadata) -> GroupMetadata:
        """Raise IllegalState."""
        raise IllegalState(
            "cannot send offsets to a transaction: coordination=zookeeper stores offsets in"
            " ZooKeeper, which transactions do not include; use coordination=group"
        )

    def metrics(self) -> dict[str, float]:
        """Return an empty dict: there are no heartbeats."""
        return {}
