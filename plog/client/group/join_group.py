"""JoinGroup and SyncGroup as one step: from wanting to be a member to having an assignment.

One `join` is the way into one generation. It sends what the member supports, does the leader's work
if the coordinator makes it the leader, and ends with an assignment, or with the error that decides
how to go on. Again and again within it: what tells nothing of the member itself, such as a
coordinator that moves or loads, or the member id it is given first (KIP-394).

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

# A JoinGroup waits for others as long as they may take, and a little for the way.
_JOIN_MARGIN_MS = 5_000
_FIRST_STATIC_VERSION = 5

TopicCounts = Mapping[str, int]
"""How many partitions each topic has, 0 for one that does not exist."""


class GroupJoin:
    """See the module's text.

    `watched` is what the last generation's leader divided, None in members that did not lead: if
    it changes, the group has to meet again.
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
        """This member's assignment, None if the generation ended before it came.

        `Membership` tells then what has to happen. Raises what trying again does not cure.
        """
        backoff = self._cluster.backoff(self._cluster.deadline(math.inf))
        while True:
            self.watched = None
            self._membership.begin_join()
            try:
                answer = await self._ask_to_join(topics, owned)
                if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                    self._membership.given_member_id(answer.member_id)
                    continue
                self._raise_for(answer.error_code)
                self._check_protocol(answer.protocol_type)
                if answer.protocol_name not in self._assignors:
                    raise self._inconsistent(f"its coordinator chose {answer.protocol_name}")
                if self._membership.state is not MemberState.PREPARING_REBALANCE:
                    return None  # A commit has heard meanwhile that this member is out.
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
                        continue  # The next generation has begun; its JoinGroup will wait.
                elif not error.retriable:
                    raise
                log.info("group %s: joining again after %s", self._link.group_id, error)
                self._link.moved(error)
            await backoff.wait()

    async def know_all_topics(self) -> None:
        """What a pattern matches has to be known once, however long that takes."""
        backoff = self._cluster.backoff(self._cluster.deadline(math.inf))
        while True:
            try:
                await self._cluster.refresh(all_topics=True)
                return
            except KafkaError as error:
                if not error.retriable:
                    raise
                log.warning("group %s: topics are not known: %s", self._link.group_id, error)
                await backoff.wait()

    def _ends(self, error: KafkaError) -> bool:
        """Whether the member has to begin anew, having lost what it had."""
        if error.code not in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            return False
        log.info("group %s: %s; joining anew", self._link.group_id, error)
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
            reason=self._membership.rejoin_reason or "",
        )
        timeout_ms = max(
            settings.request_timeout_ms, settings.max_poll_interval_ms + _JOIN_MARGIN_MS
        )

        def checked(connection: Connection) -> JoinGroupRequest:
            version = connection.version_of(JoinGroupRequest)
            if version < _FIRST_STATIC_VERSION and request.group_instance_id is not None:
                raise UnsupportedVersion(
                    f"group {self._link.group_id}: the broker at {connection.address} knows no"
                    " static members (Kafka 2.3): leave group.instance.id out"
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
            generation_id=self._membership.generation.generation_id,
            rack_id=self._settings.client_rack or None,
        )

    # -- SyncGroup ----------------------------------------------------------------------------

    async def _sync(self, joined: JoinGroupResponse) -> Assignment | None:
        generation = self._membership.generation
        assignments: Mapping[str, Assignment] = {}
        if joined.leader == joined.member_id:
            assignments = await self._lead(joined)
        request = SyncGroupRequest(
            group_id=self._link.group_id,
            generation_id=generation.generation_id,
            member_id=generation.member_id,
            group_instance_id=generation.group_instance_id,
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
            return None  # A heartbeat has heard meanwhile that it is over.
        if answer.protocol_name not in (None, generation.protocol):
            raise self._inconsistent(f"its coordinator speaks of {answer.protocol_name}")
        self._membership.synced()
        if not answer.assignment:
            return Assignment()
        return Assignment.decode(answer.assignment)

    async def _lead(self, joined: JoinGroupResponse) -> Mapping[str, Assignment]:
        """What each member gets; nothing if the coordinator wants it left as it is (KIP-814)."""
        subscriptions = {member.member_id: self._told_by(member) for member in joined.members}
        topics = {topic for one in subscriptions.values() for topic in one.topics}
        # The leader watches all topics of the group from now on, not only its own.
        counts = await self._learn_counts(topics)
        self.watched = counts
        if joined.skip_assignment:
            return {}
        assignor = self._assignors[joined.protocol_name or ""]
        existing = {topic: count for topic, count in counts.items() if count}
        assignments = assignor.assign(existing, subscriptions)
        if self._protocol is RebalanceProtocol.COOPERATIVE:
            _check_nothing_moves_at_once(assignor, subscriptions, assignments)
        for member in subscriptions.keys() - assignments.keys():
            raise ValueError(f"assignor {assignor.name} has given {member} no assignment")
        log.info(
            "group %s: assigned for generation %s by %s: %s",
            self._link.group_id,
            joined.generation_id,
            assignor.name,
            {member: [str(x) for x in one.partitions] for member, one in assignments.items()},
        )
        return assignments

    def _told_by(self, member: JoinGroupResponseMember) -> Subscription:
        try:
            return Subscription.decode(member.metadata, member.group_instance_id)
        except WireError as error:
            raise WireError(
                f"group {self._link.group_id}: the subscription of its member {member.member_id}"
                f" cannot be read: {error}"
            ) from error

    async def _learn_counts(self, topics: Collection[str]) -> TopicCounts:
        self._cluster.want_topics(list(filter(may_be_topic, topics)))  # Others' may be anything.
        await self._cluster.refresh()
        return self.counts(topics)

    def counts(self, topics: Collection[str]) -> TopicCounts:
        """How many partitions these topics have, as far as is known."""
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
                raise self._inconsistent("there are members that support none of them")
            case ErrorCode.GROUP_MAX_SIZE_REACHED:
                text = "it has as many members as the broker's group.max.size lets it have"
            case ErrorCode.INVALID_SESSION_TIMEOUT:
                text = (
                    f"session.timeout.ms={settings.session_timeout_ms} is out of the broker's"
                    " bounds, group.min.session.timeout.ms and group.max.session.timeout.ms"
                )
            case ErrorCode.GROUP_AUTHORIZATION_FAILED:
                text = "this user may not read in it: an ACL has to allow READ on the group"
            case ErrorCode.INVALID_GROUP_ID:
                text = "the broker does not take it for a group.id"
            case _:
                text = f"member {generation.member_id or '(new)'}"
        raise error_from_code(code, f"group {group_id}: {text}")

    def _check_protocol(self, protocol_type: str | None) -> None:
        if protocol_type not in (None, "", CONSUMER_PROTOCOL_TYPE):
            raise self._inconsistent(f"it is not of consumers but of type {protocol_type}")

    def _inconsistent(self, why: str) -> InconsistentGroupProtocol:
        names = ", ".join(self._assignors)
        return InconsistentGroupProtocol(
            f"group {self._link.group_id}: this member supports {names}, but {why}; set"
            " partition.assignment.strategy so that all members have one in common, or take another"
            " group.id"
        )


def _check_nothing_moves_at_once(
    assignor: Assignor,
    subscriptions: Mapping[str, Subscription],
    assignments: Mapping[str, Assignment],
) -> None:
    """Refuse what would give a partition to a second owner while the first still has it.

    Not asked of Kafka's own assignor, which goes by generations: a member that claims what it has
    lost long ago is not believed there.
    """
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
            f"assignor {assignor.name} gives {moved} to a new owner at once; a cooperative one"
            " leaves out what another member owns until the next rebalance"
        )
