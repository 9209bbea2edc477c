"""Static members that come back after a restart, without the id they had (KIP-345).

Their place in the group is theirs: assignment, leadership, what others are waiting for. In a stable
group nobody else notices, provided that the group's protocol stays; the new id has to be written
before the member is told, for who has the old one is fenced from then on.

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
from plogd.coordinator.group.responses import generation_answer
from plogd.coordinator.runtime.coordinator_result import Result
from plogd.ports import Later


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """What a member was before another took its place over."""

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
    """Static members of the groups of one shard."""

    def __init__(self, rebalances: Rebalances) -> None:
        self._rebalances = rebalances

    def take_over(
        self, group: Group, joining: JoinRequest, old_id: str, new_id: str
    ) -> Result[JoinGroupResponse]:
        """Give the place of `old_id` to who has come with its instance id; fence the old one."""
        place = _Place.of(group, group.members[old_id])
        self._rebalances.fence(group, old_id)
        member = group.rename_static_member(old_id, new_id)
        member.client_id, member.client_host = joining.client_id, joining.client_host
        group.update(
            member,
            protocols=joining.protocols,
            rebalance_timeout_ms=joining.rebalance_timeout_ms,
            session_timeout_ms=joining.request.session_timeout_ms,
        )
        answer = self._rebalances.join_answer(group.group_id, new_id)
        group.set_join(member, answer)
        self._rebalances.touch(group, member)
        if group.state is STABLE and group.select_protocol() == group.protocol_name:
            return self._write(group, joining, member, answer, place)
        # The leader may know the old id only: without a rebalance the new one would get nothing.
        reason = f"static member {new_id} has come back: {joining.reason}"
        return with_response(self._rebalances.begin_or_go_on(group, reason), answer)

    def _write(
        self, group: Group, joining: JoinRequest, member: Member, answer: JoinAnswer, place: _Place
    ) -> Result[JoinGroupResponse]:
        """Write the new id. If that fails, the member has its old one again."""

        def still_waits() -> bool:
            # A rebalance may have begun, and taken the member along.
            return group.state is STABLE and member.join is answer

        def on_durable(_: None) -> None:
            if not still_waits():
                return
            group.find_subscribed_topics()
            group.set_join(member, None)
            self._rebalances.touch(group, member)
            answer.succeed(_taken_over(group, joining, member.member_id, place))

        def on_error(error: Exception) -> None:
            if not still_waits():
                return
            group.set_join(member, None)
            self._give_back(group, member, place)
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

    def _give_back(self, group: Group, member: Member, place: _Place) -> None:
        self._rebalances.fence(group, member.member_id)
        group.rename_static_member(member.member_id, place.member_id)
        member.client_id, member.client_host = place.client_id, place.client_host
        group.update(
            member,
            protocols=place.protocols,
            rebalance_timeout_ms=place.rebalance_timeout_ms,
            session_timeout_ms=place.session_timeout_ms,
        )
        self._rebalances.touch(group, member)


def _taken_over(
    group: Group, joining: JoinRequest, member_id: str, place: _Place
) -> JoinGroupResponse:
    """The generation as it was. Its leader must not assign anew, for nobody else would hear.

    From version 9 it is told so (KIP-814). Before, it is told that another leads: its old self.
    """
    leads = group.leader_id == member_id
    answer = generation_answer(
        group, member_id, skip_assignment=leads and joining.can_skip_assignment
    )
    if leads and not joining.can_skip_assignment:
        answer.leader = place.leader_id or ""
        answer.members = []
    return answer
