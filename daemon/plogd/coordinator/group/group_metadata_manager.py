"""The groups in one shard, and the operations for group requests.

Each method is one runtime operation: it returns a `Result`, or raises a KafkaError without changing
anything. `replay_group` restores groups from the log during loading, and later applies tombstones.
The records of a loaded group are not replayed, because they were written from its current state.

join_group.py implements JoinGroup, rebalance.py runs rebalances, and offset_metadata_manager.py
manages committed offsets. Source: Kafka 4.0 GroupMetadataManager, GroupCoordinatorService.
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
from plogd.coordinator.group.responses import sync_group_response
from plogd.coordinator.runtime.coordinator_result import CoordinatorRecord, Result
from plogd.coordinator.runtime.shard_timers import ShardTimers
from plogd.ports import Ports

GROUP_TYPE: Final = "classic"
"""The type of all groups, as in ListGroups."""
_MEMBER_AND_ASSIGNMENT: Final = attrgetter("member_id", "assignment")


class GroupMetadataManager:
    """The groups in one shard. Called on the reactor thread, inside runtime operations."""

    def __init__(
        self,
        ports: Ports,
        *,
        config: Callable[[], BrokerConfig],
        shard_timers: ShardTimers,
        memory: GroupMemory,
    ) -> None:
        self._config = config
        self._memory = memory
        self._clock = ports.clock
        self._groups: dict[str, Group] = {}
        self._rebalances = Rebalances(
            find_group=self._groups.get,
            config=config,
            timers=shard_timers,
            clock=ports.clock,
            report=ports.report,
        )
        self._joins = GroupJoins(
            self._groups,
            self._rebalances,
            config=config,
            clock=ports.clock,
            random=ports.random,
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
        """Join a group, or take part in its next generation; see join_group.py.

        Raises InvalidGroupId, InvalidSessionTimeout, UnknownMemberId, FencedInstanceId,
        InconsistentGroupProtocol, GroupMaxSizeReached; the response may also fail with these
        errors.
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
        """Store the leader's assignment; respond with the member's part once it is durable.

        Raises InvalidGroupId, UnknownMemberId, FencedInstanceId, IllegalGeneration,
        InconsistentGroupProtocol, RebalanceInProgress.
        """
        group = self._group_of_member(request.group_id)
        member = group.validate_member(request.member_id, request.group_instance_id)
        group.validate_generation(request.generation_id)
        _validate_protocol("type", request.protocol_type, group.protocol_type)
        _validate_protocol("name", request.protocol_name, group.protocol_name)
        if group.state is PREPARING_REBALANCE:
            raise RebalanceInProgress(f"group {group.group_id} is rebalancing; join again")
        assignments: dict[str, bytes] = {}
        # In a STABLE group, a leader that repeats its request receives the stored assignment.
        if group.state is not STABLE and group.leader_id == member.member_id:
            # `map` avoids interpreted steps for each of up to 50,000 elements, all of which can be
            # for unknown members.
            assignments = dict(map(_MEMBER_AND_ASSIGNMENT, request.assignments))
            self._check_assignments(group, assignments)
        # All checks precede this first change: an operation that raises must not change anything.
        self._rebalances.on_sync(group, member)
        if group.state is STABLE:
            return Result(response=sync_group_response(group, member))
        answer = self._rebalances.new_sync_answer(group.group_id, member.member_id)
        previous, member.sync = member.sync, answer
        if previous is not None:  # The client has abandoned that request.
            previous.fail(RebalanceInProgress(f"member {member.member_id} repeated its request"))
        if group.leader_id != member.member_id:
            return Result(response=answer)
        return self._rebalances.write_assignment(group, assignments, answer)

    def _check_assignments(self, group: Group, assignments: Mapping[str, bytes]) -> None:
        """Raise an error, before anything changes, if the assignments exceed the group's bound."""
        growth_bytes = sum(
            len(assignments.get(each.member_id, b"")) - len(each.assignment)
            for each in group.members.values()
        )
        self._memory.check_growth(group.group_id, group.size_bytes, growth_bytes)

    def heartbeat(self, request: HeartbeatRequest) -> Result[HeartbeatResponse]:
        """Restart the member's session.

        Raises InvalidGroupId, UnknownMemberId, FencedInstanceId, IllegalGeneration, and
        RebalanceInProgress, after which the member joins again.
        """
        group = self._group_of_member(request.group_id)
        member = group.validate_member(request.member_id, request.group_instance_id)
        group.validate_generation(request.generation_id)
        # The session is also restarted during a rebalance: the heartbeat shows that the member is
        # alive.
        self._rebalances.restart_session(group, member)
        if group.state is PREPARING_REBALANCE:
            raise RebalanceInProgress(f"group {group.group_id} is rebalancing; join again")
        return Result(response=HeartbeatResponse())

    def leave(self, group_id: str, members: Iterable[MemberIdentity]) -> Result[LeaveGroupResponse]:
        """Remove members, each with its own result. Raises InvalidGroupId."""
        if not group_id:
            raise InvalidGroupId("the group id is empty; a group with members must have an id")
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
            result = self._rebalances.begin_or_complete(
                group, f"members {', '.join(left)} have left"
            )
        elif group is not None:  # A pending id may have delayed the other members.
            result = self._rebalances.complete_if_all_joined(group)
        return with_response(result, LeaveGroupResponse(members=responses))

    def _leave(self, group: Group | None, identity: MemberIdentity) -> list[str]:
        """Remove a member or pending id; return the ids of removed members."""
        if group is None:
            raise UnknownMemberId("the group does not exist")
        member_id = identity.member_id
        if not member_id:  # An admin client identifies static members by instance id.
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
        """Check that the client may commit offsets for an existing group.

        Restarts a member's session. Raises the same errors as `Group.validate_offset_commit`.
        """
        group = self._groups[group_id]
        group.validate_offset_commit(member_id, group_instance_id, generation_id)
        member = group.members.get(member_id)
        # A commit shows that the member is alive, like a heartbeat.
        if member is not None and group.state in (STABLE, PREPARING_REBALANCE):
            self._rebalances.restart_session(group, member)

    def _group_of_member(self, group_id: str) -> Group:
        if not group_id:
            raise InvalidGroupId("the group id is empty; a group with members must have an id")
        group = self._groups.get(group_id)
        if group is None:
            raise UnknownMemberId(f"group {group_id} does not exist; join as a new member")
        return group

    # -- groups as a whole --------------------------------------------------------------------

    def group(self, group_id: str) -> Group | None:
        """Return the group, or None."""
        return self._groups.get(group_id)

    def group_ids(self) -> list[str]:
        """Return the ids of all groups, including those that never had members."""
        return [*self._groups]

    def get_or_create_simple(self, group_id: str) -> Group:
        """Return the group, or create one without members, for which only offsets are written."""
        group = self._groups.get(group_id)
        if group is None:
            # The group is not counted as unused, because it lasts as long as its committed offsets.
            group = Group(group_id, state_since_ms=self._clock.now_ms())
            group.track_memory(self._memory)
            self._groups[group_id] = group
        return group

    def describe(self, group_id: str) -> DescribedGroup:
        """Describe the group and its members. Raises GroupIdNotFound."""
        group = self._find(group_id)
        # As in Kafka, only a STABLE group reports its protocol and the metadata of its members.
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
        """Delete a group. Raises GroupIdNotFound, and NonEmptyGroup if it has members."""
        self._find(group_id).validate_delete()
        # The group is removed when the tombstone is replayed, so a failed append keeps it.
        return Result(records=[group_tombstone(group_id)], response=None)

    def tombstones_if_unused(self, group_id: str) -> list[CoordinatorRecord]:
        """Return a tombstone for a group without offsets unless it has members or pending ids."""
        group = self._groups.get(group_id)
        # A client with a pending id is about to join.
        if group is None or not group.is_empty or group.pending_joins:
            return []
        return [group_tombstone(group_id)]

    def _find(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            # The text is Kafka's, because its tools print it and scripts parse their output.
            raise GroupIdNotFound(f"Group {group_id} not found.")
        return group

    # -- loading and replay -------------------------------------------------------------------

    def replay_group(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        """Apply a group's record: it replaces the group; a tombstone removes it."""
        if value is not None:
            # Before compaction, the log contains a record for each generation of the group.
            previous = self._groups.get(key.group)
            if previous is not None:
                previous.untrack_memory()
            group = self._groups[key.group] = group_from_record(key.group, value)
            group.track_memory(self._memory)
            return
        removed = self._groups.pop(key.group, None)
        if removed is not None:
            self._rebalances.discard(
                removed, CoordinatorNotAvailable(f"group {key.group} was deleted")
            )

    def on_loaded(self) -> None:
        """Start the sessions of all members, now that the log has been replayed."""
        for group in self._groups.values():
            for member in group.members.values():
                self._rebalances.restart_session(group, member)
            # group.max.size may have been lowered: a rebalance admits only that many members
            # (KIP-389).
            size = self._config().group_max_size
            if len(group.members) > size:
                result = self._rebalances.begin(group, f"it exceeds group.max.size ({size})")
                assert not result.records  # No member has joined yet.

    def on_unloaded(self, error: Exception) -> None:
        """Fail pending requests with `error` and discard all groups."""
        # Clear the dict before the loop, because a client may respond to the error with a new
        # request. `Rebalances` and `GroupJoins` share this dict, so it is not replaced.
        groups = list(self._groups.values())
        self._groups.clear()
        for group in groups:
            self._rebalances.discard(group, error)


def _validate_protocol(field: str, actual: str | None, expected: str | None) -> None:
    # KIP-559: a member that expects another protocol would misread its assignment.
    if actual is not None and expected is not None and actual != expected:
        raise InconsistentGroupProtocol(
            f"the group's protocol {field} is {expected!r}, not {actual!r}"
        )
