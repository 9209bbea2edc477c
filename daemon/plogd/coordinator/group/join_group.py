"""JoinGroup: the admission of members to a group, their ids, and the resulting rebalances.

  request from                      result
  a client without an id            gets an id and must join again with it (KIP-394, version 4)
  the same, before version 4        becomes a member
  a static client without an id     becomes a member, or replaces its former member (KIP-345)
  a client with a pending id        becomes a member
  a member, during a rebalance      takes part in the rebalance
  a member with changed protocols,  starts a rebalance
  or the leader of a stable group
  a member without changes          gets the current generation again, in case it missed it

Source: Kafka 4.0 GroupMetadataManager.classicGroupJoin; KIP-345, 389, 394, 800, 814.
"""

from __future__ import annotations

from collections.abc import Callable

from plog.errors import (
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidSessionTimeout,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from plog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from plogd.config import BrokerConfig
from plogd.coordinator.group.group import PREPARING_REBALANCE, STABLE, Group
from plogd.coordinator.group.group_memory import GroupMemory
from plogd.coordinator.group.group_records import new_group_record
from plogd.coordinator.group.join_request import JoinRequest, random_member_id
from plogd.coordinator.group.member import Member
from plogd.coordinator.group.rebalance import NEW_MEMBER_TIMEOUT_MS, Rebalances, with_response
from plogd.coordinator.group.responses import join_group_response
from plogd.coordinator.group.static_members import StaticMembers
from plogd.coordinator.runtime.coordinator_result import Result
from plogd.ports import Clock, Later, Random, failed


class GroupJoins:
    """Handles JoinGroup for the groups of one shard; adds new groups to `groups`."""

    def __init__(
        self,
        groups: dict[str, Group],
        rebalances: Rebalances,
        *,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        random: Random,
        memory: GroupMemory,
    ) -> None:
        self._groups = groups
        self._rebalances = rebalances
        self._static_members = StaticMembers(rebalances)
        self._config = config
        self._clock = clock
        self._random = random
        self._memory = memory

    def join(self, joining: JoinRequest) -> Result[JoinGroupResponse]:
        """Handle a JoinGroup, whose response usually waits for other members. Raises KafkaError."""
        request = joining.request
        self._validate(request)
        group = self._groups.get(request.group_id)
        if group is not None:
            return self._join(group, joining)
        # As in Kafka: the group was deleted, so its former members start over with new ids.
        if request.member_id:
            raise UnknownMemberId(f"group {request.group_id} does not exist; join as a new member")
        group = Group(request.group_id, state_since_ms=self._clock.now_ms())
        result = self._join(group, joining)
        # Add the group only now: if its first member is rejected, the group must not exist.
        group.count_as_unused()
        group.track_memory(self._memory)
        self._groups[group.group_id] = group
        return self._write_new(group, result)

    def _validate(self, request: JoinGroupRequest) -> None:
        if not request.group_id:
            raise InvalidGroupId("the group id is empty; a group with members must have an id")
        config = self._config()
        first = config.group_min_session_timeout_ms
        last = config.group_max_session_timeout_ms
        if not first <= request.session_timeout_ms <= last:
            raise InvalidSessionTimeout(
                f"invalid session timeout {request.session_timeout_ms} ms: must be between"
                f" group.min.session.timeout.ms ({first}) and group.max.session.timeout.ms ({last})"
            )

    def _write_new(
        self, group: Group, result: Result[JoinGroupResponse]
    ) -> Result[JoinGroupResponse]:
        """Write the new group. If that fails, discard it and fail the request."""
        assert not result.records
        response = result.response
        answer = response if isinstance(response, Later) else Later[JoinGroupResponse]()

        def on_durable(_: None) -> None:
            if not isinstance(response, Later):
                answer.succeed(response)

        def on_error(error: Exception) -> None:
            # A group that has started a generation is kept, because its next record contains the
            # complete state.
            if self._groups.get(group.group_id) is group and group.generation_id == 0:
                del self._groups[group.group_id]
                self._rebalances.discard(group, error)
            if not answer.done:
                answer.fail(error)

        appended: Later[None] = Later()
        appended.then(on_durable, on_error)
        return Result(
            records=[new_group_record(group)], response=answer, appended=appended, replay=False
        )

    def _join(self, group: Group, joining: JoinRequest) -> Result[JoinGroupResponse]:
        request = joining.request
        if not self._has_room(group, request):
            # The group must not wait for a member that it rejects.
            self._rebalances.remove(group, request.member_id)
            return with_response(
                self._rebalances.complete_if_all_joined(group),
                failed(
                    GroupMaxSizeReached(
                        f"group {group.group_id} is full: group.max.size is"
                        f" {self._config().group_max_size}"
                    )
                ),
            )
        names = [protocol.name for protocol in request.protocols]
        if not group.supports(request.protocol_type, names):
            raise InconsistentGroupProtocol(
                f"group {group.group_id} (protocol type {group.protocol_type!r}): none of the"
                f" protocols {names} (type {request.protocol_type!r}) is supported by all members"
            )
        if request.member_id:
            return self._join_known(group, joining)
        return self._join_unknown(group, joining)

    def _has_room(self, group: Group, request: JoinGroupRequest) -> bool:
        """Return whether group.max.size admits this member (KIP-389)."""
        size = self._config().group_max_size
        member = group.members.get(request.member_id)
        # A static member that returns does not enlarge the group.
        if group.is_empty or group.static_member_id(request.group_instance_id) is not None:
            return True
        # During a rebalance, only members that have joined count: if the group is too large, the
        # members that join last are rejected.
        if group.state is PREPARING_REBALANCE:
            return (member is not None and member.join is not None) or group.waiting_joins < size
        return member is not None or len(group.members) < size

    # -- members without an id ----------------------------------------------------------------

    def _join_unknown(self, group: Group, joining: JoinRequest) -> Result[JoinGroupResponse]:
        request = joining.request
        # As in Kafka's ClassicGroup.generateMemberId, so that operators recognize a static member.
        prefix = request.group_instance_id or joining.client_id or "member"
        member_id = random_member_id(prefix, self._random)
        old_member_id = group.static_member_id(request.group_instance_id)
        if old_member_id is not None:
            self._check_update(group, group.members[old_member_id], joining)
            return self._static_members.take_over(group, joining, old_member_id, member_id)
        # Static members do not need a pending id: their next JoinGroup has the same instance id.
        if request.group_instance_id is None and joining.requires_known_member_id:
            self._check_room(group, group.pending_bytes(member_id))
            group.add_pending(member_id)
            self._rebalances.set_session_timeout(
                group.group_id, member_id, request.session_timeout_ms
            )
            required = JoinGroupResponse(error_code=MemberIdRequired.code, member_id=member_id)
            return Result(response=required)
        return self._add(group, joining, member_id)

    def _add(self, group: Group, joining: JoinRequest, member_id: str) -> Result[JoinGroupResponse]:
        request = joining.request
        answer = self._rebalances.new_join_answer(group.group_id, member_id)
        member = Member(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=joining.client_id,
            client_host=joining.client_host,
            rebalance_timeout_ms=joining.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=joining.protocols,
            is_new=True,
            join=answer,
        )
        # Check before anything changes: a rejected member must not affect the group.
        self._check_room(group, member.size_bytes)
        if group.is_initial_rebalance:
            group.has_new_member = True
        group.add(member, request.protocol_type)
        self._rebalances.set_session_timeout(group.group_id, member_id, NEW_MEMBER_TIMEOUT_MS)
        result = self._rebalances.begin_or_complete(
            group, f"member {member_id} is joining: {joining.reason}"
        )
        return with_response(result, answer)

    def _check_room(self, group: Group, growth_bytes: int) -> None:
        """Raise an error if the group must not grow by `growth_bytes`; a new group also counts."""
        if group.group_id not in self._groups:
            growth_bytes += group.unused_bytes
        self._memory.check_growth(group.group_id, group.size_bytes, growth_bytes)

    def _check_update(self, group: Group, member: Member, joining: JoinRequest) -> None:
        """Raise an error if the member's protocols have grown beyond the group's bound."""
        self._check_room(group, joining.protocols_bytes - member.protocols_bytes)

    # -- members with an id -------------------------------------------------------------------

    def _join_known(self, group: Group, joining: JoinRequest) -> Result[JoinGroupResponse]:
        request = joining.request
        if request.member_id in group.pending_joins and request.group_instance_id is None:
            return self._add(group, joining, request.member_id)
        member = group.validate_member(request.member_id, request.group_instance_id)
        has_changed = member.protocols != joining.protocols
        is_leader = group.leader_id == member.member_id
        # A leader rejoins a stable group to reassign partitions, for example after partitions have
        # been added to a topic.
        needs_rebalance = has_changed or (group.state is STABLE and is_leader)
        if group.state is not PREPARING_REBALANCE and not needs_rebalance:
            return Result(response=join_group_response(group, member.member_id))
        return self._rejoin(group, member, joining)

    def _rejoin(
        self, group: Group, member: Member, joining: JoinRequest
    ) -> Result[JoinGroupResponse]:
        self._check_update(group, member, joining)
        group.update(
            member,
            protocols=joining.protocols,
            rebalance_timeout_ms=joining.rebalance_timeout_ms,
            session_timeout_ms=joining.request.session_timeout_ms,
        )
        answer = self._rebalances.new_join_answer(group.group_id, member.member_id)
        previous = group.set_join(member, answer)
        if previous is not None:  # The client has abandoned that request.
            previous.fail(RebalanceInProgress(f"member {member.member_id} repeated its request"))
        result = self._rebalances.begin_or_complete(
            group, f"member {member.member_id} is rejoining: {joining.reason}"
        )
        return with_response(result, answer)
