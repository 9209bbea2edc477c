"""Coordination by the group's coordinator, a broker: Kafka's classic group protocol.

It combines the requests of a member: `GroupJoin`, `Heartbeats`, `leave_group`, commits and
committed offsets. They share a connection to the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from plog.client.assignors import Assignment, Assignor, assignors_from, common_protocol
from plog.client.consumer.rebalance_listener import CallUser
from plog.client.group.committed_offsets import CommittedOffsets
from plog.client.group.coordinator_connection import CoordinatorConnection
from plog.client.group.coordinator_offsets import CoordinatorOffsets
from plog.client.group.group_metadata import GroupMetadata
from plog.client.group.heartbeats import Heartbeats
from plog.client.group.join_group import GroupJoin
from plog.client.group.leave_group import leave_group
from plog.client.group.member_state import Generation, Membership
from plog.client.group.offset_commits import Commits
from plog.client.group.positions_port import PositionsPort
from plog.client.network.cluster import Cluster
from plog.client.network.deadline import Deadline
from plog.client.network.ports import Network
from plog.client.settings import ConsumerSettings
from plog.client.values import OffsetAndMetadata
from plog.types import TopicPartition


class BrokerCoordination:
    """One member's requests to its coordinator; the interface is `Coordination`."""

    def __init__(
        self,
        cluster: Cluster,
        network: Network,
        settings: ConsumerSettings,
        membership: Membership,
        positions: PositionsPort,
        *,
        assignors: Sequence[str | Assignor | type[Assignor]] | None = None,
        call_user: CallUser,
        poll_expired: Callable[[], None],
        fail: Callable[[Exception], None],
    ) -> None:
        """Create it; `assignors` override ``partition.assignment.strategy``."""
        assert settings.group_id is not None, "a member needs a group.id"
        known = assignors_from(assignors or settings.partition_assignment_strategy)
        self.protocol = common_protocol(known)
        self._assignors = {assignor.name: assignor for assignor in known}
        self._network = network
        self._membership = membership
        self.link = CoordinatorConnection(cluster, settings.group_id)
        self.heartbeats = Heartbeats(
            network, self.link, membership, settings, poll_expired=poll_expired, fail=fail
        )
        self._joining = GroupJoin(
            cluster, self.link, membership, settings, known, heartbeats=self.heartbeats
        )
        offsets = CoordinatorOffsets(settings, self.link, membership, fail=fail)
        self.commits = Commits(
            cluster, network, settings, offsets, membership, positions, call_user
        )
        self._committed = CommittedOffsets(cluster, network, settings, self.link)

    @property
    def poll_left_s(self) -> float:
        """The seconds until the next poll is due; negative if it is overdue."""
        return self.heartbeats.poll_left_s

    def polled(self, *, waits: bool = False) -> None:
        """Record a poll. Thread-safe."""
        self.heartbeats.polled(waits=waits)

    def start(self) -> None:
        """Start to send heartbeats."""
        self.heartbeats.start()

    def stop(self) -> None:
        """Stop sending heartbeats."""
        self.heartbeats.stop()

    def membership_changed(self) -> None:
        """Recompute the next heartbeat."""
        self.heartbeats.look()

    def metadata_changed(self) -> None:
        """Rejoin if this member leads the group and the topics have other partitions now."""
        watched = self._joining.watched
        if watched is not None and self._joining.counts(watched) != watched:
            self._joining.watched = None
            self._membership.ask_to_rejoin("cached metadata has changed")

    async def join(
        self, topics: Collection[str], owned: Collection[TopicPartition]
    ) -> Assignment | None:
        """See `GroupJoin.join`."""
        return await self._joining.join(topics, owned)

    def join_cancelled(self) -> None:
        """Close the connection."""
        # On this connection, the broker would answer LeaveGroup only after the JoinGroup.
        self.link.disconnect()

    def on_assignment(self, assignment: Assignment, generation: Generation) -> None:
        """Pass the assignment to the assignor that the coordinator has selected."""
        assignor = self._assignors[generation.protocol or ""]
        assignor.on_assignment(assignment, generation.generation_id)

    async def leave(
        self, reason: str, deadline: Deadline | None = None, *, is_last: bool = False
    ) -> None:
        """Send LeaveGroup, unless the member is static."""
        await leave_group(self._network, self.link, self._membership, reason, deadline)

    def close(self) -> None:
        """Close the connection to the coordinator."""
        self.heartbeats.stop()
        self.link.close()

    async def committed(
        self, partitions: Collection[TopicPartition], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """See `CommittedOffsets.committed`."""
        return await self._committed.committed(partitions, timeout_s=timeout_s)

    def for_transaction(self, metadata: GroupMetadata) -> GroupMetadata:
        """Return `metadata`."""
        return metadata

    def metrics(self) -> dict[str, float]:
        """Return the time since the last heartbeat."""
        last_s = self.heartbeats.last_answer_s
        # As in Kafka's consumer, -1 means that the coordinator has not answered a heartbeat yet.
        ago_s = -1.0 if last_s is None else self._network.now_s() - last_s
        return {"last-heartbeat-seconds-ago": ago_s}
