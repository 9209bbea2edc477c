"""Compare the requests of a library consumer with the history of its group.

The requests and the responses are those on the wire, so every retry of the library is an attempt of
its own. The rules are those for scripted members: see group_history.py and registers.py. Members
exchange their assignments in Kafka's format, which has no room for the decision of a leader. So two
assignments in one generation are noticed if they give one partition to two members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from plog.errors import ErrorCode
from plog.types import TopicPartition
from plog.wire.internal.consumer_protocol import decode_assignment
from plog.wire.messages.heartbeat import HeartbeatRequest
from plog.wire.messages.join_group import JoinGroupRequest
from plog.wire.messages.leave_group import LeaveGroupRequest
from plog.wire.messages.offset_commit import OffsetCommitRequest
from plog.wire.messages.offset_fetch import OffsetFetchRequest
from plog.wire.messages.sync_group import SyncGroupRequest
from plog.wire.schema import ApiMessage
from tests.sim.assigning import Assignment
from tests.sim.checker import Anomaly
from tests.sim.cluster.library.library_network import OnResponse
from tests.sim.group_client import FIRST_ID_IN_COMMIT, FIRST_ID_IN_FETCH, TROUBLES, reads_of
from tests.sim.group_history import GroupView, Membership, Standing
from tests.sim.network import Connection
from tests.sim.registers import Attempt

if TYPE_CHECKING:
    from tests.sim.cluster.cluster_world import ClusterWorld
    from tests.sim.group_plan import GroupPlan

_ONE_DECISION = 0


class GroupWatcher:
    """Watches the requests of one consumer to its group's coordinator.

    `position_of` returns the offset up to which the application has received records, or None.
    """

    def __init__(
        self,
        cluster: ClusterWorld,
        plan: GroupPlan,
        position_of: Callable[[TopicPartition], int | None],
    ) -> None:
        assert plan.view is not None
        self.view: GroupView = plan.view
        self.committed: dict[TopicPartition, int] = {}
        """The committed offset of each partition that was last read; -1 for none."""
        self._cluster = cluster
        self._plan = plan
        self._position_of = position_of
        self._joined_in: dict[str, int | None] = {}
        """The life in which each member id last received a JoinGroup response."""

    def sending(
        self, request: ApiMessage, version: int, connection: Connection
    ) -> OnResponse | None:
        """Note a request that is about to be sent; return a function for its response."""
        match request:
            case JoinGroupRequest():
                return self._joining(request, connection)
            case SyncGroupRequest():
                return self._syncing(request, connection)
            case HeartbeatRequest():
                return self._beating(request, connection)
            case OffsetCommitRequest():
                return self._committing(request, version, connection)
            case OffsetFetchRequest():
                return self._fetching(version, connection)
            case LeaveGroupRequest():
                return self._leaving(request, connection)
        return None

    def _life(self, connection: Connection) -> int | None:
        return self._cluster.coordinator_term(self._plan.name, connection)

    def _life_of_response(self, connection: Connection, life: int | None) -> int | None:
        """Return the life of a response to a request that was sent in `life`; None if it moves."""
        return life if life == self._life(connection) else None

    def _standing(
        self,
        request: SyncGroupRequest | HeartbeatRequest,
        connection: Connection,
        *,
        if_loaded: bool = False,
    ) -> Standing:
        membership = Membership(request.member_id, request.group_instance_id)
        life = self._life(connection)
        return self.view.standing(membership, request.generation_id, life, if_loaded=if_loaded)

    # -- membership ---------------------------------------------------------------------------

    def _joining(self, request: JoinGroupRequest, connection: Connection) -> OnResponse:
        known, sent_in = self.view.assigned_generation, self._life(connection)

        def joined(response: Any) -> None:
            if response.error_code:
                return
            life = self._life_of_response(connection, sent_in)
            self._joined_in[response.member_id] = life
            membership = Membership(response.member_id, request.group_instance_id)
            leads = bool(response.members)
            generation = response.generation_id
            self.view.joined(membership, generation, life=life, known=known, leads=leads, held=())

        return joined

    def _syncing(self, request: SyncGroupRequest, connection: Connection) -> OnResponse:
        standing = self._standing(request, connection)
        generation = request.generation_id
        if request.assignments:
            members = [one.member_id for one in request.assignments]
            self.view.decides(self._joined_in.get(request.member_id), generation, members)

        def synced(response: Any) -> None:
            if response.error_code:
                return
            life = self._life_of_response(connection, standing.life)
            self.view.accepted(standing, "sync", life)
            assignment = None
            if response.assignment:
                assignment = Assignment(
                    group=self._plan.name,
                    generation=generation,
                    decision=_ONE_DECISION,
                    member_id=request.member_id,
                    partitions=tuple(_partitions_of(response.assignment)),
                )
            self.view.assigned(standing.membership, generation, assignment, life)

        return synced

    def _beating(self, request: HeartbeatRequest, connection: Connection) -> OnResponse:
        standing = self._standing(request, connection, if_loaded=True)

        def beaten(response: Any) -> None:
            if response.error_code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
                life = self._life_of_response(connection, standing.life)
                self.view.accepted(standing, "heartbeat", life)

        return beaten

    def _leaving(self, request: LeaveGroupRequest, connection: Connection) -> OnResponse:
        sent_in = self._life(connection)

        def left(response: Any) -> None:
            life = self._life_of_response(connection, sent_in)
            ids = [one.member_id for one in request.members] or [request.member_id]
            refused = {one.member_id for one in response.members if one.error_code}
            for member_id in ids:
                if not response.error_code and member_id not in refused:
                    self.view.left(Membership(member_id, None), life)

        return left

    # -- offsets ------------------------------------------------------------------------------

    def _name(self, topic: Any, by_id: bool) -> str:
        if not by_id:
            return str(topic.name)
        return self._cluster.topics.by_id[topic.topic_id].name

    def _committing(
        self, request: OffsetCommitRequest, version: int, connection: Connection
    ) -> OnResponse:
        by_id = version >= FIRST_ID_IN_COMMIT
        membership = Membership(request.member_id, request.group_instance_id)
        generation = request.generation_id_or_member_epoch
        standing = self.view.standing(membership, generation, self._life(connection))
        attempts: dict[TopicPartition, Attempt] = {}
        for topic in request.topics:
            for one in topic.partitions:
                partition = TopicPartition(self._name(topic, by_id), one.partition_index)
                self._check_received(partition, one.committed_offset)
                attempts[partition] = self.view.register(partition).sending(
                    one.committed_offset, lambda: connection.over_ms
                )

        def committed(response: Any) -> None:
            life = self._life_of_response(connection, standing.life)
            for topic in response.topics:
                for one in topic.partitions:
                    partition = TopicPartition(self._name(topic, by_id), one.partition_index)
                    register, attempt = self.view.register(partition), attempts[partition]
                    if one.error_code:
                        for_certain = one.error_code not in TROUBLES
                        register.refused(attempt, for_certain=for_certain)
                    else:
                        self.view.accepted(standing, "commit", life)
                        self.view.loaded(life)
                        register.acknowledged(attempt)

        return committed

    def _check_received(self, partition: TopicPartition, offset: int) -> None:
        """Check that the library commits nothing that the application has not received."""
        position = self._position_of(partition)
        if position is not None and offset > position:
            raise Anomaly(
                "phantom-commit",
                f"{self._plan.name} {partition}: the library commits {offset}, but the application"
                f" has received records up to {position}",
            )

    def _fetching(self, version: int, connection: Connection) -> OnResponse:
        by_id = version >= FIRST_ID_IN_FETCH
        floors = {key: one.floor for key, one in self.view.registers.items()}
        sent_in = self._life(connection)

        def fetched(response: Any) -> None:
            code, reads = reads_of(response, version)
            is_current = self._life_of_response(connection, sent_in) is not None
            for one in () if code else reads:
                if one.error_code:
                    continue
                partition = TopicPartition(self._name_of_read(one, by_id), one.partition)
                # A deposed coordinator may not know newer commits.
                floor = floors.get(partition) if is_current else None
                self.view.register(partition).shown(one.offset, floor)
                self.committed[partition] = one.offset

        return fetched

    def _name_of_read(self, read: Any, by_id: bool) -> str:
        return self._cluster.topics.by_id[read.topic_id].name if by_id else read.topic


def _partitions_of(assignment: bytes) -> Iterator[TopicPartition]:
    for topic in decode_assignment(assignment).assigned_partitions:
        for number in topic.partitions:
            yield TopicPartition(topic.topic, number)
