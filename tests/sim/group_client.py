"""The requests of group members, in any version that the broker serves, and their error handling.

members.py contains the members' behavior; the clients of outsiders.py commit and read offsets
without joining.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from plog.errors import ErrorCode
from plog.types import ZERO_UUID, TopicPartition, Uuid
from plog.wire.api_keys import ApiKey
from plog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from plog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from plog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from plog.wire.schema import ApiMessage
from tests.sim.checker import Anomaly
from tests.sim.client import Client, check_code
from tests.sim.group_history import Membership, Standing
from tests.sim.network import Connection
from tests.sim.registers import Attempt, Floor

if TYPE_CHECKING:
    from tests.sim.group_plan import GroupPlan
    from tests.sim.world import World

OUT_OF_DATE = frozenset(
    {ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}
)
"""Errors for a member that was removed, or that belongs to an older generation."""

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
TROUBLES = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors that only disk faults explain. Whether anything was written is unknown."""

_TOPIC_ERRORS = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
FIRST_ID_IN_COMMIT = 10
FIRST_ID_IN_FETCH = 10
_FIRST_GROUPS_IN_FETCH = 8
_FIRST_ALL_IN_FETCH = 2
_FIRST_KEYS_IN_FIND = 4
_FIRST_INSTANCE_IN_COMMIT = 7

Commits = Mapping[TopicPartition, Attempt]
Response = TypeVar("Response", bound=ApiMessage)


class Read(NamedTuple):
    """A committed offset in an OffsetFetch response."""

    topic: str
    topic_id: Uuid
    partition: int
    offset: int
    metadata: str | None
    error_code: int


class GroupClient(Client):
    """A client of one group."""

    def __init__(self, world: World, name: str, plan: GroupPlan) -> None:
        super().__init__(world, name)
        self.plan = plan
        self.view = world.groups.view(plan.name)
        self._topic_ids: dict[str, Uuid] = {}
        self._coordinator_id = -1
        """The group's coordinator in a cluster, as far as it is known."""

    async def connected(self) -> Connection:
        if self.world.has_several_brokers:
            if self._coordinator_id < 0 or self.needs_metadata:
                await self._find_coordinator(await self.connected_for_metadata())
            self.wanted = None if self._coordinator_id < 0 else self._coordinator_id
        return await super().connected()

    def life(self, connection: Connection) -> int | None:
        """Return the life of the coordinator at the other end; None if it is another broker."""
        return self.world.coordinator_term(self.plan.name, connection)

    def standing(
        self,
        membership: Membership,
        generation: int,
        connection: Connection,
        *,
        if_loaded: bool = False,
    ) -> Standing:
        """Return what is known of a request that is about to be sent over `connection`."""
        life = self.life(connection)
        return self.view.standing(membership, generation, life, if_loaded=if_loaded)

    async def ask_coordinator(
        self,
        request: ApiMessage,
        version: int,
        answer_type: type[Response],
        connection: Connection,
        patience_ms: float = 0,
    ) -> tuple[Response, int | None]:
        """Like `ask`; also return the life of the coordinator in which it responded.

        It is None if the coordinator is moving, so that the response may be out of date.
        """
        life = self.life(connection)
        answer = await self.ask(request, version, answer_type, connection, patience_ms)
        return answer, life if life == self.life(connection) else None

    def check_group_code(
        self,
        code: int,
        what: str,
        allowed: Sequence[ErrorCode] | frozenset[ErrorCode] = (),
        *,
        life: int | None = None,
    ) -> None:
        """Raise Anomaly for an error code that the situation does not explain."""
        if code in TROUBLES and not self.world.service.has_met_faults:
            raise Anomaly(
                "unexpected-error", f"{what}: {ErrorCode(code).name}, and the disk is well"
            )
        check_code(code, f"{self.name}: {what}", (*TROUBLES, LOADING, *allowed))
        if code in TROUBLES:
            self._coordinator_id = -1
        if code in OUT_OF_DATE:
            self.view.loaded(life)

    async def find_coordinator(self) -> None:
        """Look up the group's coordinator: the broker in use, or not available yet."""
        await self._find_coordinator(await self.connected())

    async def _find_coordinator(self, connection: Connection) -> None:
        version = self.version(ApiKey.FIND_COORDINATOR)
        request = FindCoordinatorRequest(key=self.plan.name, key_type=0)
        if version >= _FIRST_KEYS_IN_FIND:
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.plan.name])
        answer = await self.ask(request, version, FindCoordinatorResponse, connection)
        code, port, node_id = answer.error_code, answer.port, answer.node_id
        if version >= _FIRST_KEYS_IN_FIND:
            [one] = answer.coordinators
            code, port, node_id = one.error_code, one.port, one.node_id
        self.check_group_code(code, "FindCoordinator")
        if not code and port <= 0:
            raise Anomaly("bad-answer", f"the coordinator of {self.plan.name} is at port {port}")
        self._coordinator_id = -1 if code else node_id
        self.needs_metadata = False

    async def _learn_topic_ids(self) -> None:
        if not self._topic_ids:
            sights = await self.topics()
            if all(topic in sights for topic in self.plan.topics):
                self._topic_ids = {name: sights[name].topic_id for name in self.plan.topics}

    # -- commit -------------------------------------------------------------------------------

    def begin_commits(
        self, partitions: Sequence[TopicPartition], connection: Connection
    ) -> dict[TopicPartition, Attempt]:
        """Return new values for some partitions, about to be sent over `connection`."""
        commits = {}
        for partition in partitions:
            register = self.view.register(partition)
            commits[partition] = register.sending(register.next_value(), lambda: connection.over_ms)
        return commits

    async def commit(
        self, commits: Commits, standing: Standing, connection: Connection
    ) -> tuple[ErrorCode, int | None]:
        """Send a commit as `standing` (generation -1 without membership).

        Return its error code, and the life of the coordinator that responded.
        """
        membership, is_static = standing.membership, standing.membership.instance is not None
        version = self.version(
            ApiKey.OFFSET_COMMIT,
            _FIRST_INSTANCE_IN_COMMIT if is_static and self.chance.random() < 0.8 else 2,
            FIRST_ID_IN_COMMIT if self._topic_ids else FIRST_ID_IN_COMMIT - 1,
        )
        tells_instance = version >= _FIRST_INSTANCE_IN_COMMIT
        request = OffsetCommitRequest(
            group_id=self.plan.name,
            generation_id_or_member_epoch=standing.generation,
            member_id=membership.member_id,
            group_instance_id=membership.instance if tells_instance else None,
            topics=[self._topic_to_commit(topic, commits) for topic in self._names(commits)],
        )
        answer, life = await self.ask_coordinator(
            request, version, OffsetCommitResponse, connection
        )
        by_id = version >= FIRST_ID_IN_COMMIT
        names = {self._topic_ids.get(name, ZERO_UUID): name for name in self.plan.topics}
        codes = {
            TopicPartition(names[topic.topic_id] if by_id else topic.name, one.partition_index): (
                ErrorCode(one.error_code)
            )
            for topic in answer.topics
            for one in topic.partitions
        }
        if set(codes) != set(commits):
            raise Anomaly("bad-answer", f"a commit of {set(commits)} is answered for {set(codes)}")
        return self._handle_commit_code(commits, codes, standing, life), life

    def _names(self, commits: Commits) -> list[str]:
        return sorted({partition.topic for partition in commits})

    def _topic_to_commit(self, name: str, commits: Commits) -> OffsetCommitRequestTopic:
        return OffsetCommitRequestTopic(
            name=name,
            topic_id=self._topic_ids.get(name, ZERO_UUID),
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=partition.partition,
                    committed_offset=attempt.value,
                    committed_metadata=metadata_of(attempt.value),
                )
                for partition, attempt in commits.items()
                if partition.topic == name
            ],
        )

    def _handle_commit_code(
        self,
        commits: Commits,
        codes: Mapping[TopicPartition, ErrorCode],
        standing: Standing,
        life: int | None,
    ) -> ErrorCode:
        said = ErrorCode.NONE
        for partition, attempt in commits.items():
            code, register = codes[partition], self.view.register(partition)
            if code == ErrorCode.NONE:
                self.view.accepted(standing, "commit", life)
                self.view.loaded(life)
                register.acknowledged(attempt)
                continue
            register.refused(attempt, for_certain=code not in TROUBLES)
            if code in _TOPIC_ERRORS:
                continue  # The topic has not been created yet.
            said = code
            allowed = OUT_OF_DATE
            if not standing.binds(life) and standing.generation >= 0:
                allowed |= {ErrorCode.REBALANCE_IN_PROGRESS}
            self.check_group_code(code, f"OffsetCommit {standing}", allowed, life=life)
        return said

    # -- fetch --------------------------------------------------------------------------------

    async def read_offsets(self, partitions: Sequence[TopicPartition] | None) -> bool:
        """Read and check committed offsets (None: all); return whether there was a response."""
        connection = await self.connected()
        await self._learn_topic_ids()
        at_least = _FIRST_ALL_IN_FETCH if partitions is None else 1
        at_most = FIRST_ID_IN_FETCH if self._topic_ids else FIRST_ID_IN_FETCH - 1
        version = self.version(ApiKey.OFFSET_FETCH, at_least, at_most)
        floors = {key: one.floor for key, one in self.view.registers.items()}
        request = self._fetch_request(partitions, version)
        answer, life = await self.ask_coordinator(request, version, OffsetFetchResponse, connection)
        if life is None:
            floors = {}  # A deposed coordinator may not know newer commits.
        code, reads = reads_of(answer, version)
        if code:
            self.check_group_code(code, "OffsetFetch")
            return False
        found: dict[TopicPartition, Read] = {}
        by_id = version >= FIRST_ID_IN_FETCH
        names = {self._topic_ids.get(name, ZERO_UUID): name for name in self.plan.topics}
        for one in reads:
            if one.error_code in _TOPIC_ERRORS:
                return False
            if one.error_code:
                self.check_group_code(one.error_code, "OffsetFetch")
                return False
            name = names[one.topic_id] if by_id else one.topic
            found[TopicPartition(name, one.partition)] = one
        self._compare(found, partitions, floors)
        return True

    def _fetch_request(
        self, partitions: Sequence[TopicPartition] | None, version: int
    ) -> OffsetFetchRequest:
        by_name: dict[str, list[int]] | None = None
        if partitions is not None:
            by_name = {}
            for topic, number in partitions:
                by_name.setdefault(topic, []).append(number)
        if version < _FIRST_GROUPS_IN_FETCH:
            old = None
            if by_name is not None:
                old = [
                    OffsetFetchRequestTopic(name=name, partition_indexes=numbers)
                    for name, numbers in by_name.items()
                ]
            return OffsetFetchRequest(group_id=self.plan.name, topics=old)
        topics = None
        if by_name is not None:
            topics = [
                OffsetFetchRequestTopics(
                    name=name,
                    topic_id=self._topic_ids.get(name, ZERO_UUID),
                    partition_indexes=numbers,
                )
                for name, numbers in by_name.items()
            ]
        return OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=self.plan.name, topics=topics)]
        )

    def _compare(
        self,
        found: Mapping[TopicPartition, Read],
        asked: Sequence[TopicPartition] | None,
        floors: Mapping[TopicPartition, Floor | None],
    ) -> None:
        if asked is not None and set(found) != set(asked):
            raise Anomaly("bad-answer", f"requested {asked}, answered {sorted(found)}")
        for partition, one in found.items():
            has_metadata = self.plan.commits_metadata or partition == self.plan.outside
            expected = metadata_of(one.offset) if has_metadata else ""
            if one.offset >= 0 and one.metadata != expected:
                raise Anomaly("bad-answer", f"{partition} {one.offset} with {one.metadata!r}")
            self.view.register(partition).shown(one.offset, floors.get(partition))
        if asked is None:
            for partition, floor in floors.items():
                if partition not in found and floor is not None:
                    self.view.register(partition).shown(-1, floor)


def metadata_of(value: int) -> str:
    """Return the metadata committed with an offset."""
    return f"at {value}"


def reads_of(answer: OffsetFetchResponse, version: int) -> tuple[int, list[Read]]:
    """Return the error of the whole response, and the result of each partition."""
    if version < _FIRST_GROUPS_IN_FETCH:
        return answer.error_code, [
            Read(
                topic.name,
                ZERO_UUID,
                one.partition_index,
                one.committed_offset,
                one.metadata,
                one.error_code,
            )
            for topic in answer.topics
            for one in topic.partitions
        ]
    [group] = answer.groups
    return group.error_code, [
        Read(
            topic.name,
            topic.topic_id,
            one.partition_index,
            one.committed_offset,
            one.metadata,
            one.error_code,
        )
        for topic in group.topics
        for one in topic.partitions
    ]
