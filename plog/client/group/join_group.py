"""Join a generation of a group: from JoinGroup and SyncGroup to the assignment.

One call to `join` enters one generation. It sends the names of the assignors that the member
supports. If the coordinator selects this member as the leader, it assigns all partitions. `join`
returns this member's assignment or raises a permanent error. After transient errors, for example
while the coordinator is moving or loading, it retries.

Source: Kafka 4.3 AbstractCoordinator, ConsumerCoordinator; KIP-345, KIP-559, KIP-800, KIP-814.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping, Sequence

from plog.client.assignors import (
    Assignment,
    Assignor,
    RebalanceProtocol,
    Subscription,
    common_protocol,
)
from plog.client.group.coordinator_connection import CoordinatorConnection
from plog.client.group.heartbeats import Heartbeats, fenced
from plog.client.group.member_state import Membership, MemberState
from plog.client.network.cluster import Cluster
from plog.client.network.connection import Connection
from plog.client.network.metadata import may_be_topic
from plog.client.settings import ConsumerSettings
from plog.errors import (
    ErrorCode,
    InconsistentGroupProtocol,
    KafkaError,
    UnsupportedVersion,
    error_from_code,
)
from plog.types import TopicPartition
from plog.wire.internal.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from plog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from plog.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from plog.wire.primitives import WireError

log = logging.getLogger("plog.client.group")

# The coordinator answers a JoinGroup before the rebalance timeout expires or when it expires.
# Kafka's AbstractCoordinator has the same margin for the network (JOIN_GROUP_TIMEOUT_LAPSE).
_JOIN_MARGIN_MS = 5_000
_FIRST_STATIC_VERSION = 5

TopicCounts = Mapping[str, int]
"""The number of partitions of each topic; 0 for a missing topic."""


class GroupJoin:
    """The requests with which a member joins generations of its group.

    `watched` contains the partition counts that this member used as the leader of the last
    generation, or None if it was not the leader. If the counts change, the group must rebalance.
    """

    def __init__(
        self,
        cluster: Cluster,
        link: CoordinatorConnection,
        membership: Membership,
        settings: ConsumerSettings,
        assignors: Sequence[Assignor],
        *,
        heartbeats: Heartbeats,
    ) -> None:
        self.watched: TopicCounts | None = None
        self._cluster = cluster
        self._link = link
        self._membership = membership
        self._settings = settings
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._protocol = common_protocol(assignors)
        self._heartbeats = heartbeats

    async def join(
        self, topics: Collection[str], owned: Collection[TopicPartition]
    ) -> Assignment | None:
        """Return this member's assignment, or None if the generation ended before it arrived.

        In the latter case, `Membership` already has the next state. Raises permanent errors.
        """
        # A rebalance may take any amount of time, so the join has no deadline; `leave` cancels it.
        backoff = self._cluster.backoff(self._cluster.deadline(math.inf))
        while True:
            self.watched = None
            self._membership.begin_join()
            try:
                answer = await self._ask_to_join(topics, owned)
                # KIP-394: the coordinator first returns a member id, and adds the member only after
                # a second request with that id. Otherwise, a client whose responses are lost would
                # leave phantom members in the group.
                if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                    self._membership.given_member_id(answer.member_id)
                    continue
                self._raise_for(answer.error_code)
                self._check_protocol(answer.protocol_type)
                if answer.protocol_name not in self._assignors:
                    raise self._inconsistent(f"the coordinator chose {answer.protocol_name}")
                if self._membership.state is not MemberState.PREPARING_REBALANCE:
                    return None  # A commit has shown that the member was removed.
                self._heartbeats.begin_generation()
                self._membership.joined(
                    answer.generation_id, answer.member_id, answer.protocol_name
                )
                return await self._sync(answer)
            except KafkaError as error:
                if self._ends(error):
                    return None
                if error.code == ErrorCode.REBALANCE_IN_PROGRESS:
                    if self._membership.state is MemberState.COMPLETING_REBALANCE:
                        continue  # The next generation has started; join it.
                elif not error.retriable:
                    raise
                log.info("group %s: rejoining after an error: %s", self._link.group_id, error)
                self._link.moved(error)
            await backoff.wait()

    def _ends(self, error: KafkaError) -> bool:
        """Return whether `error` means that the membership is lost; if so, reset it."""
        if error.code not in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            return False
        log.info("group %s: %s; joining as a new member", self._link.group_id, error)
        self._membership.reset(
            f"joining: {error.code.name}",
            keeps_member_id=error.code == ErrorCode.ILLEGAL_GENERATION,
        )
        return True

    # -- JoinGroup ----------------------------------------------------------------------------

    async def _ask_to_join(
        self, topics: Collection[str], owned: Collection[TopicPartition]
    ) -> JoinGroupResponse:
        settings = self._settings
        generation = self._membership.generation
        request = JoinGroupRequest(
            group_id=self._link.group_id,
            session_timeout_ms=settings.session_timeout_ms,
            # KIP-62: a member rejoins in its next poll, so in a rebalance, the coordinator waits
            # for it at most this long.
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            member_id=generation.member_id,
            group_instance_id=generation.group_instance_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(
                    name=assignor.name,
                    metadata=self._subscription(assignor, topics, owned).encode(),
                )
                for assignor in self._assignors.values()
            ],
            # KIP-800: the coordinator logs the reason.
            reason=self._membership.rejoin_reason or "",
        )
        # The response arrives when all members have joined, which can take as long as the rebalance
        # timeout.
        timeout_ms = max(
            settings.request_timeout_ms, settings.max_poll_interval_ms + _JOIN_MARGIN_MS
        )

        def checked(connection: Connection) -> JoinGroupRequest:
            version = connection.version_of(JoinGroupRequest)
            # KIP-345: without the instance id, the member would silently become a dynamic member.
            if version < _FIRST_STATIC_VERSION and request.group_instance_id is not None:
                raise UnsupportedVersion(
                    f"group {self._link.group_id}: the broker at {connection.address} does not"
                    " support static members (Kafka 2.3); remove group.instance.id"
                )
            return request

        return await self._link.ask(checked, JoinGroupResponse, timeout_s=timeout_ms / 1000)

    def _subscription(
        self, assignor: Assignor, topics: Collection[str], owned: Collection[TopicPartition]
    ) -> Subscription:
        return Subscription(
            topics=tuple(sorted(topics)),
            user_data=assignor.user_data(topics),
            owned_partitions=tuple(owned),
            # KIP-792: with the generation, the leader can ignore outdated claims to partitions.
            generation_id=self._membership.generation.generation_id,
            # KIP-881: the leader can prefer replicas in the member's rack.
            rack_id=self._settings.client_rack or None,
        )

    # -- SyncGroup ----------------------------------------------------------------------------

    async def _sync(self, joined: JoinGroupResponse) -> Assignment | None:
        generation = self._membership.generation
        assignments: Mapping[str, Assignment] = {}
        # Only the leader sends assignments; the coordinator forwards them to the other members.
        if joined.leader == joined.member_id:
            assignments = await self._lead(joined)
        request = SyncGroupRequest(
            group_id=self._link.group_id,
            generation_id=generation.generation_id,
            member_id=generation.member_id,
            group_instance_id=generation.group_instance_id,
            # KIP-559: with these fields, the coordinator can reject a mismatch with JoinGroup.
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=generation.protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=assignment.encode())
                for member, assignment in assignments.items()
            ],
        )
        self._heartbeats.syncing(True)
        try:
            answer = await self._link.ask(request, SyncGroupResponse)
        finally:
            self._heartbeats.syncing(False)
        self._raise_for(answer.error_code)
        self._check_protocol(answer.protocol_type)
        if self._membership.generation != generation:
            return None  # A heartbeat has shown that the generation is over.
        if answer.protocol_name not in (None, generation.protocol):
            raise self._inconsistent(f"the coordinator answered with {answer.protocol_name}")
        self._membership.synced()
        # For a member without partitions, the response may not contain any bytes.
        if not answer.assignment:
            return Assignment()
        return Assignment.decode(answer.assignment)

    async def _lead(self, joined: JoinGroupResponse) -> Mapping[str, Assignment]:
        """Return each member's assignment, or nothing if the coordinator skips the assignment."""
        subscriptions = {
            member.member_id: self._subscription_of(member) for member in joined.members
        }
        topics = {topic for one in subscriptions.values() for topic in one.topics}
        # From now on, the leader watches all topics of the group, not only its own topics.
        counts = await self._learn_counts(topics)
        self.watched = counts
        # KIP-814: when a static leader returns, the existing assignment stays valid.
        if joined.skip_assignment:
            return {}
        assignor = self._assignors[joined.protocol_name or ""]
        existing = {topic: count for topic, count in counts.items() if count}
        assignments = assignor.assign(existing, subscriptions)
        if self._protocol is RebalanceProtocol.COOPERATIVE:
            _check_revoked_before_moved(assignor, subscriptions, assignments)
        for member in subscriptions.keys() - assignments.keys():
            raise ValueError(f"assignor {assignor.name} did not return an assignment for {member}")
        log.info(
            "group %s: assignment for generation %s by %s: %s",
            self._link.group_id,
            joined.generation_id,
            assignor.name,
            {member: [str(x) for x in one.partitions] for member, one in assignments.items()},
        )
        return assignments

    def _subscription_of(self, member: JoinGroupResponseMember) -> Subscription:
        try:
            return Subscription.decode(member.metadata, member.group_instance_id)
        except WireError as error:
            raise WireError(
                f"group {self._link.group_id}: invalid subscription of member"
                f" {member.member_id}: {error}"
            ) from error

    async def _learn_counts(self, topics: Collection[str]) -> TopicCounts:
        # The names come from other members and may be invalid.
        self._cluster.want_topics(list(filter(may_be_topic, topics)))
        await self._cluster.refresh()
        return self.counts(topics)

    def counts(self, topics: Collection[str]) -> TopicCounts:
        """Return the known partition counts of these topics."""
        metadata = self._cluster.metadata
        return {topic: metadata.partition_count(topic) or 0 for topic in topics}

    # -- errors -------------------------------------------------------------------------------

    def _raise_for(self, code: int) -> None:
        if not code:
            return
        group_id, settings = self._link.group_id, self._settings
        generation = self._membership.generation
        match code:
            case ErrorCode.FENCED_INSTANCE_ID:
                raise fenced(generation, group_id)
            case ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
                raise self._inconsistent("the other members do not support any of them")
            case ErrorCode.GROUP_MAX_SIZE_REACHED:
                text = "the group is full: the broker's group.max.size limits the number of members"
            case ErrorCode.INVALID_SESSION_TIMEOUT:
                text = (
                    f"session.timeout.ms={settings.session_timeout_ms} is not between the broker's"
                    " group.min.session.timeout.ms and group.max.session.timeout.ms"
                )
            case ErrorCode.GROUP_AUTHORIZATION_FAILED:
                text = "not authorized; add an ACL that allows READ on the group"
            case ErrorCode.INVALID_GROUP_ID:
                text = "the broker rejected the group.id"
            case _:
                text = f"member {generation.member_id or '(new)'}"
        raise error_from_code(code, f"group {group_id}: {text}")

    def _check_protocol(self, protocol_type: str | None) -> None:
        # Coordinators before KIP-559 do not return a type.
        if protocol_type not in (None, "", CONSUMER_PROTOCOL_TYPE):
            raise self._inconsistent(f"the group type is {protocol_type}, not consumer")

    def _inconsistent(self, why: str) -> InconsistentGroupProtocol:
        names = ", ".join(self._assignors)
        return InconsistentGroupProtocol(
            f"cannot join group {self._link.group_id}: this member supports {names}, but {why}; set"
            " partition.assignment.strategy so that all members share an assignor, or use another"
            " group.id"
        )


def _check_revoked_before_moved(
    assignor: Assignor,
    subscriptions: Mapping[str, Subscription],
    assignments: Mapping[str, Assignment],
) -> None:
    """Raise ValueError if a partition moves before its old owner has revoked it."""
    # As in Kafka, this assignor is exempt: it compares generations, so it ignores outdated claims.
    if assignor.name == "cooperative-sticky":
        return
    added: set[TopicPartition] = set()
    revoked: set[TopicPartition] = set()
    for member, subscription in subscriptions.items():
        owned = set(subscription.owned_partitions)
        got = set(assignments[member].partitions) if member in assignments else set()
        added |= got - owned
        revoked |= owned - got
    if added & revoked:
        moved = ", ".join(str(x) for x in sorted(added & revoked))
        raise ValueError(
            f"assignor {assignor.name} assigns {moved} to a new owner immediately; a cooperative"
            " assignor must omit partitions that another member owns until the next rebalance"
        )
