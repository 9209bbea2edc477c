"""Static members that rejoin after a restart without their former member id (KIP-345).

A returning static member keeps its place in the group: its assignment and its leadership. In a
stable group, no rebalance is needed, provided that the group's protocol remains the same. The new
member id must be durable before the member receives it, because the old id is fenced from then on.

Source: Kafka 4.0 GroupMetadataManager.updateStaticMemberThenRebalanceOrCompleteJoin; KIP-814.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from plog.wire.messages.join_group import JoinGroupResponse
from plogd.coordinator.group.group import STABLE, Group
from plogd.coordinator.group.group_records import group_record
from plogd.coordinator.group.join_request import JoinRequest
from plogd.coordinator.group.member import JoinAnswer, Member, MemberProtocol
from plogd.coordinator.group.rebalance import Rebalances, with_response
from plogd.coordinator.group.responses import join_group_response
from plogd.coordinator.runtime.coordinator_result import Result
from plogd.ports import Later


@dataclass(frozen=True, slots=True, kw_only=True)
class _FormerMember:
    """The data of a replaced member before its replacement."""

    member_id: str
    leader_id: str | None
    client_id: str
    client_host: str
    protocols: tuple[MemberProtocol, ...]
    rebalance_timeout_ms: int
    session_timeout_ms: int

    @classmethod
    def of(cls, group: Group, member: Member) -> Self:
        return cls(
            member_id=member.member_id,
            leader_id=group.leader_id,
            client_id=member.client_id,
            client_host=member.client_host,
            protocols=member.protocols,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            session_timeout_ms=member.session_timeout_ms,
        )


class StaticMembers:
    """Replaces returning static members in the groups of one shard."""

    def __init__(self, rebalances: Rebalances) -> None:
        self._rebalances = rebalances

    def take_over(
        self, group: Group, joining: JoinRequest, old_id: str, new_id: str
    ) -> Result[JoinGroupResponse]:
        """Replace member `old_id` with the client that uses its instance id, and fence `old_id`."""
        # Save the former data before it changes, because writing the new id may fail.
        former = _FormerMember.of(group, group.members[old_id])
        self._rebalances.fence(group, old_id)
        member = group.rename_static_member(old_id, new_id)
        group.update(
            member,
            protocols=joining.protocols,
            rebalance_timeout_ms=joining.rebalance_timeout_ms,
            session_timeout_ms=joining.request.session_timeout_ms,
            client=(joining.client_id, joining.client_host),
        )
        answer = self._rebalances.new_join_answer(group.group_id, new_id)
        group.set_join(member, answer)
        self._rebalances.restart_session(group, member)
        if group.state is STABLE and group.select_protocol() == group.protocol_name:
            return self._write(group, joining, member, answer, former)
        # The leader may be assigning partitions to the old id. Without a rebalance, the new id
        # would not get any.
        reason = f"static member {new_id} rejoined: {joining.reason}"
        return with_response(self._rebalances.begin_or_complete(group, reason), answer)

    def _write(
        self,
        group: Group,
        joining: JoinRequest,
        member: Member,
        answer: JoinAnswer,
        former: _FormerMember,
    ) -> Result[JoinGroupResponse]:
        """Write the new id; if that fails, restore the old id."""

        def is_pending() -> bool:
            # If a rebalance has started in the meantime, it completes the join.
            return group.state is STABLE and member.join is answer

        def on_durable(_: None) -> None:
            if not is_pending():
                return
            group.find_subscribed_topics()
            group.set_join(member, None)
            self._rebalances.restart_session(group, member)
            answer.succeed(_replacement_response(group, joining, member.member_id, former))

        def on_error(error: Exception) -> None:
            if not is_pending():
                return
            group.set_join(member, None)
            self._restore(group, member, former)
            answer.fail(error)

        appended: Later[None] = Later()
        appended.then(on_durable, on_error)
        assignments = {each.member_id: each.assignment for each in group.members.values()}
        return Result(
            records=[group_record(group, assignments)],
            response=answer,
            appended=appended,
            replay=False,
        )

    def _restore(self, group: Group, member: Member, former: _FormerMember) -> None:
        # Ends the session of the new id, which its client has never received.
        self._rebalances.fence(group, member.member_id)
        group.rename_static_member(member.member_id, former.member_id)
        group.update(
            member,
            protocols=former.protocols,
            rebalance_timeout_ms=former.rebalance_timeout_ms,
            session_timeout_ms=former.session_timeout_ms,
            client=(former.client_id, former.client_host),
        )
        self._rebalances.restart_session(group, member)


def _replacement_response(
    group: Group, joining: JoinRequest, member_id: str, former: _FormerMember
) -> JoinGroupResponse:
    """Return the current generation, without causing a leader to assign partitions."""
    # The other members do not rejoin, so they would not receive a new assignment.
    is_leader = group.leader_id == member_id
    answer = join_group_response(
        group, member_id, skip_assignment=is_leader and joining.can_skip_assignment
    )
    # Before version 9, a response cannot instruct the leader to skip the assignment (KIP-814). If
    # the response names the former id as the leader, the client acts as an ordinary member.
    if is_leader and not joining.can_skip_assignment:
        answer.leader = former.leader_id or ""
        answer.members = []
    return answer
