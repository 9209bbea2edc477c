"""All groups of one shard, and every request about them.

Each method is one operation for the runtime: it gives a `Result`, or raises a KafkaError and has
changed nothing. What is durable comes back through `replay_group`, at the start from the log, later
for tombstones; a live group's own records are not replayed, for it goes on from what they were
written from.

JoinGroup is in join_group.py, what a rebalance does in rebalance.py, committed offsets in
offset_metadata_manager.py.
Source: Kafka 4.0 GroupMetadataManager, GroupCoordinatorService.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Final

from plog.errors import (
    CoordinatorNotAvailable,
    GroupIdNotFound,
    InconsistentGroupProtocol,
    InvalidGroupId,
    KafkaError,
    RebalanceInProgress,
    UnknownMemberId,
)
from plog.wire.internal.group_records import GroupMetadataKey, GroupMetadataValue
from plog.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from plog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from plog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from plog.wire.messages.leave_group import (
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from plog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from plogd.config import BrokerConfig
from plogd.coordinator.group.group import (
    PREPARING_REBALANCE,
    STABLE,
    Group,
)
from plogd.coordinator.group.group_memory import GroupMemory
from plogd.coordinator.group.group_records import group_from_record, group_tombstone
from plogd.coordinator.group.join_group import GroupJoins
from plogd.coordinator.group.join_request import JoinRequest
from plogd.coordinator.group.rebalance import NOTHING, Rebalances, with_response
from plogd.coordinator.group.responses import assignment_answer
from plogd.coordinator.runtime.coordinator_result import CoordinatorRecord, Result
from plogd.coordinator.runtime.shard_timers import ShardTimers
from plogd.ports import Clock, Random, Report

GROUP_TYPE: Final = "classic"
"""The type of all groups, as in ListGroups."""
_MEMBER_AND_ASSIGNMENT: Final = attrgetter("member_id", "assignment")


class GroupMetadataManager:
    """See the module's text."""

    def __init__(
        self,
        *,
        config: Callable[[], BrokerConfig],
        timers: ShardTimers,
        random: Random,
        clock: Clock,
        report: Report,
        memory: GroupMemory,
    ) -> None:
        self._config = config
        self._memory = memory
        self._clock = clock
        self._groups: dict[str, Group] = {}
        self._rebalances = Rebalances(
            find_group=self._groups.get, config=config, timers=timers, clock=clock, report=report
        )
        self._joins = GroupJoins(
            self._groups,
            self._rebalances,
            config=config,
            clock=clock,
            random=random,
            memory=memory,
        )

    # -- members' requests --------------------------------------------------------------------

    def join(
        self,
        request: JoinGroupRequest,
        client_id: str,
        client_host: str,
        *,
        requires_known_member_id: bool,
        can_skip_assignment: bool,
    ) -> Result[JoinGroupResponse]:
        """Become a member, or take part in the next generation; see join_group.py.

        Raises InvalidGroupId, InvalidSessionTimeout, UnknownMemberId, FencedInstanceId,
        InconsistentGroupProtocol, GroupMaxSizeReached; the answer may fail with some of them, too.
        """
        return self._joins.join(
            JoinRequest(
                request=request,
                client_id=client_id,
                client_host=client_host,
                requires_known_member_id=requires_known_member_id,
                can_skip_assignment=can_skip_assignment,
            )
        )

    def sync(self, request: SyncGroupRequest) -> Result[SyncGroupResponse]:
        """What the member was assigned, as soon as the leader has told; from the leader, that.

        Raises InvalidGroupId, UnknownMemberId, FencedInstanceId, IllegalGeneration,
        InconsistentGroupProtocol, RebalanceInProgress.
        """
        group = self._group_of_member(request.group_id)
        member = group.validate_member(request.member_id, request.group_instance_id)
        group.validate_generation(request.generation_id)
        _validate_protocol("type", request.protocol_type, group.protocol_type)
        _validate_protocol("name", request.protocol_name, group.protocol_name)
        if group.state is PREPARING_REBALANCE:
            raise RebalanceInProgress(f"group {group.group_id} rebalances: join again")
        assignments: dict[str, bytes] = {}
        if group.state is not STABLE and group.leader_id == member.member_id:
            # Not element by element: a request may have 50,000 for members there are not.
            assignments = dict(map(_MEMBER_AND_ASSIGNMENT, request.assignments))
            self._check_assignments(group, assignments)
        self._rebalances.synced(group, member)
        if group.state is STABLE:
            return Result(response=assignment_answer(group, member))
        answer = self._rebalances.sync_answer(group.group_id, member.member_id)
        before, member.sync = member.sync, answer
        if before is not None:  # Its client has given that one up, and asks again.
            before.fail(RebalanceInProgress(f"member {member.member_id} has asked again"))
        if group.leader_id != member.member_id:
            return Result(response=answer)
        return self._rebalances.write_assignment(group, assignments, answer)

    def _check_assignments(self, group: Group, assignments: Mapping[str, bytes]) -> None:
        """Raise if the group's memory has no room for them; before anything has changed."""
        growth_bytes = sum(
            len(assignments.get(each.member_id, b"")) - len(each.assignment)
            for each in group.members.values()
        )
        self._memory.check_growth(group.group_id, group.size_bytes, growth_bytes)

    def heartbeat(self, request: HeartbeatRequest) -> Result[HeartbeatResponse]:
        """The member is alive.

        Raises InvalidGroupId, UnknownMemberId, FencedInstanceId, IllegalGeneration; and
        RebalanceInProgress, which asks a member that is alive to join again.
        """
        group = self._group_of_member(request.group_id)
        member = group.validate_member(request.member_id, request.group_instance_id)
        group.validate_generation(request.generation_id)
        self._rebalances.touch(group, member)
        if group.state is PREPARING_REBALANCE:
            raise RebalanceInProgress(f"group {group.group_id} rebalances: join again")
        return Result(response=HeartbeatResponse())

    def leave(self, group_id: str, members: Iterable[MemberIdentity]) -> Result[LeaveGroupResponse]:
        """Take members out, each with its own outcome. Raises InvalidGroupId."""
        if not group_id:
            raise InvalidGroupId("a group that has members needs a name")
        group = self._groups.get(group_id)
        left: list[str] = []
        responses = []
        for identity in members:
            error_code = 0
            try:
                left += self._leave(group, identity)
            except KafkaError as error:
                error_code = error.code
            responses.append(
                MemberResponse(
                    member_id=identity.member_id,
                    group_instance_id=identity.group_instance_id,
                    error_code=error_code,
                )
            )
        result = NOTHING
        if group is not None and left:
            result = self._rebalances.begin_or_go_on(group, f"members {', '.join(left)} have left")
        elif group is not None:  # Perhaps one that all the others were waiting for.
            result = self._rebalances.complete_if_all_joined(group)
        return with_response(result, LeaveGroupResponse(members=responses))

    def _leave(self, group: Group | None, identity: MemberIdentity) -> list[str]:
        """Take one out; its id if it was a member, nothing if its id was pending."""
        if group is None:
            raise UnknownMemberId("there is no such group")
        member_id = identity.member_id
        if not member_id:  # An administrator names instances, whatever their member ids are.
            member_id = group.static_member_id(identity.group_instance_id) or ""
        if member_id in group.pending_joins:
            self._rebalances.remove(group, member_id)
            return []
        group.validate_member(member_id, identity.group_instance_id)
        self._rebalances.remove(group, member_id)
        return [member_id]

    def validate_offset_commit(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> None:
        """Whether the member, or nobody, may commit offsets of a group there is.

        A member that does is alive. Raises what `Group.validate_offset_commit` does.
        """
        group = self._groups[group_id]
        group.validate_offset_commit(member_id, group_instance_id, generation_id)
        member = group.members.get(member_id)
        if member is not None and group.state in (STABLE, PREPARING_REBALANCE):
            self._rebalances.touch(group, member)

    def _group_of_member(self, group_id: str) -> Group:
        if not group_id:
            raise InvalidGroupId("a group that has members needs a name")
        group = self._groups.get(group_id)
        if group is None:
            raise UnknownMemberId(f"there is no group {group_id} yet: join as a new member")
        return group

    # -- groups as a whole --------------------------------------------------------------------

    def group(self, group_id: str) -> Group | None:
        """The group, if it is known."""
        return self._groups.get(group_id)

    def group_ids(self) -> list[str]:
        """Every group, simple ones too."""
        return [*self._groups]

    def get_or_create_simple(self, group_id: str) -> Group:
        """The group; a new one has no members, and only its offsets are written."""
        group = self._groups.get(group_id)
        if group is None:
            group = Group(group_id, state_since_ms=self._clock.now_ms())
            group.count_in(self._memory)
            self._groups[group_id] = group
        return group

    def describe(self, group_id: str) -> DescribedGroup:
        """The group and its members. Raises GroupIdNotFound."""
        group = self._find(group_id)
        protocol = group.protocol_name if group.state is STABLE else None
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=protocol or "",
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=b"" if protocol is None else member.metadata(protocol),
                    member_assignment=member.assignment,
                )
                for member in group.members.values()
            ],
        )

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def delete(self, group_id: str) -> Result[None]:
        """Forget a group. Raises GroupIdNotFound, and NonEmptyGroup if it has members."""
        self._find(group_id).validate_delete()
        return Result(records=[group_tombstone(group_id)], response=None)

    def tombstones_if_unused(self, group_id: str) -> list[CoordinatorRecord]:
        """What makes a group go that has no members, and, as the caller knows, no offsets."""
        group = self._groups.get(group_id)
        if group is None or not group.is_empty or group.pending_joins:
            return []
        return [group_tombstone(group_id)]

    def _find(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            raise GroupIdNotFound(f"Group {group_id} not found.")
        return group

    # -- what is durable ----------------------------------------------------------------------

    def replay_group(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        """Take in a group's record: a later one replaces an earlier, None forgets the group."""
        if value is not None:
            before = self._groups.get(key.group)
            if before is not None:
                before.count_out()
            group = self._groups[key.group] = group_from_record(key.group, value)
            group.count_in(self._memory)
            return
        forgotten = self._groups.pop(key.group, None)
        if forgotten is not None:
            self._rebalances.forget(
                forgotten, CoordinatorNotAvailable(f"group {key.group} was deleted")
            )

    def on_loaded(self) -> None:
        """All records are in: members have their session timeout to be heard of."""
        for group in self._groups.values():
            for member in group.members.values():
                self._rebalances.touch(group, member)
            size = self._config().group_max_size
            if len(group.members) > size:
                result = self._rebalances.begin(group, f"it is larger than group.max.size ({size})")
                assert not result.records  # Nobody has joined yet.

    def on_unloaded(self, error: Exception) -> None:
        """Another broker has the groups now, or nobody: who waits is told `error`."""
        groups = list(self._groups.values())
        self._groups.clear()
        for group in groups:
            self._rebalances.forget(group, error)


def _validate_protocol(what: str, told: str | None, agreed: str | None) -> None:
    """KIP-559: a member that is mistaken about the protocol would misread its assignment."""
    if told is not None and agreed is not None and told != agreed:
        raise InconsistentGroupProtocol(f"the group's protocol {what} is {agreed!r}, not {told!r}")
