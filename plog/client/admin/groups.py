"""List, describe and delete groups, and remove members; group_offsets.py manages offsets.

Every broker lists the groups that it coordinates. A group's coordinator serves all other requests.
group_descriptions.py decodes the descriptions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from plog.client.admin.base import AdminBase
from plog.client.admin.group_descriptions import described_consumer_groups, described_groups
from plog.client.admin.results import Results, outcome, raise_if_error
from plog.client.admin.routing import Answers, ask_coordinator, by_broker, by_coordinator
from plog.client.admin.values import (
    GroupDescription,
    GroupListing,
    GroupState,
    MemberToRemove,
)
from plog.errors import GroupIdNotFound, KafkaError, UnsupportedVersion
from plog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from plog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from plog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from plog.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from plog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

_REASON = "removed by an administrator"


class GroupAdmin(AdminBase):
    """The operations on groups."""

    async def list_groups(
        self,
        *,
        states: Collection[GroupState | str] = (),
        types: Collection[str] = (),
        protocol_types: Collection[str] = (),
    ) -> dict[str, GroupListing]:
        """Return the groups of all brokers by name, optionally filtered by state or type.

        Types are "classic", "consumer", "share" and "streams". The protocol type is "consumer" for
        groups of consumers and "" for groups that only store offsets. If a broker fails, the
        operation raises its error. It raises UnsupportedVersion if a broker does not support a
        filter.
        """
        request = ListGroupsRequest(
            states_filter=[str(GroupState(state)) for state in states], types_filter=list(types)
        )

        async def ask(node_id: int) -> list[GroupListing]:
            response = await self._cluster.ask_node(node_id, request, ListGroupsResponse)
            raise_if_error(response.error_code, None, f"the groups of broker {node_id}")
            return listed_groups(response)

        # Raise any broker's error: a list that lacks one broker's groups would look complete.
        listed = (await by_broker(self._cluster, None, ask)).raise_first()
        groups = sorted(
            (group for some in listed.values() for group in some), key=lambda group: group.group_id
        )
        return {
            group.group_id: group
            for group in groups
            # ListGroups has no filter for protocol types.
            if not protocol_types or group.protocol_type in protocol_types
        }

    async def describe_groups(
        self, groups: Iterable[str], *, include_authorized_operations: bool = False
    ) -> Results[str, GroupDescription]:
        """Return groups with their members. Errors: GroupIdNotFound, GroupAuthorizationFailed, ...

        Brokers before Kafka 4.0 return an unknown group in the state Dead instead of an error.
        """

        async def ask(node_id: int, groups: Sequence[str]) -> Answers[str, GroupDescription]:
            request = DescribeGroupsRequest(
                groups=list(groups), include_authorized_operations=include_authorized_operations
            )
            response = await self._cluster.ask_node(node_id, request, DescribeGroupsResponse)
            described = described_groups(response, await self._broker(node_id))
            # DescribeGroups reports a group that uses KIP-848's protocol as unknown.
            others = [group for group in groups if _may_be_newer(described.get(group))]
            if others and (await self._cluster.connection(node_id)).speaks(
                ConsumerGroupDescribeRequest
            ):
                described |= await self._describe_newer(
                    node_id, others, include_authorized_operations
                )
            return described

        return await by_coordinator(self._cluster, groups, ask)

    async def _describe_newer(
        self, node_id: int, groups: Sequence[str], include_operations: bool
    ) -> dict[str, GroupDescription | KafkaError]:
        """Describe the groups that use KIP-848's protocol; the result omits all others."""
        request = ConsumerGroupDescribeRequest(
            group_ids=list(groups), include_authorized_operations=include_operations
        )
        response = await self._cluster.ask_node(node_id, request, ConsumerGroupDescribeResponse)
        described = described_consumer_groups(response, await self._broker(node_id))
        return {
            group: found
            for group, found in described.items()
            # A broker with KIP-848 disabled, the default in Kafka 3.7 to 3.9, returns an error for
            # each group. In that case, keep the classic result.
            if not isinstance(found, GroupIdNotFound | UnsupportedVersion)
        }

    async def describe_group(
        self, group: str, *, include_authorized_operations: bool = False
    ) -> GroupDescription:
        """Return one group with its members. Raises the error that `describe_groups` returns."""
        described = await self.describe_groups(
            [group], include_authorized_operations=include_authorized_operations
        )
        return described.get(group)

    async def delete_groups(self, groups: Iterable[str]) -> Results[str, None]:
        """Delete groups without members, together with their offsets.

        Errors: NonEmptyGroup, GroupIdNotFound, GroupAuthorizationFailed, ...
        """

        async def ask(node_id: int, groups: Sequence[str]) -> Answers[str, None]:
            request = DeleteGroupsRequest(groups_names=list(groups))
            response = await self._cluster.ask_node(node_id, request, DeleteGroupsResponse)
            return {
                result.group_id: outcome(result.error_code, None, f"group {result.group_id}", None)
                for result in response.results
            }

        return await by_coordinator(self._cluster, groups, ask)

    async def delete_group(self, group: str) -> None:
        """Delete one group. Raises the error that `delete_groups` returns."""
        (await self.delete_groups([group])).get(group)

    async def remove_members(
        self,
        group: str,
        members: Iterable[MemberToRemove | str] | None = None,
        *,
        reason: str = _REASON,
    ) -> Results[MemberToRemove, None]:
        """Remove members from a group, by default all; a string is a static member's instance id.

        A dynamic member that is still running joins the group again. Errors, per member:
        UnknownMemberId. Raises UnsupportedVersion before Kafka 2.4.
        """
        if members is None:
            leaving = [
                MemberToRemove(member.member_id, member.group_instance_id)
                # A static member is identified by both its member id and its instance id.
                for member in (await self.describe_group(group)).members
            ]
        else:
            leaving = [
                MemberToRemove(group_instance_id=member) if isinstance(member, str) else member
                for member in members
            ]
        if not leaving:
            return Results({})

        async def ask(node_id: int) -> Mapping[MemberToRemove, KafkaError | None]:
            request = leave_group_request(group, leaving, reason)
            response = await self._cluster.ask_node(node_id, request, LeaveGroupResponse)
            raise_if_error(response.error_code, None, f"group {group}")
            return removed_members(leaving, response)

        return Results(await ask_coordinator(self._cluster, group, ask))


def _may_be_newer(described: GroupDescription | KafkaError | None) -> bool:
    """Return whether a group that is unknown in the classic protocol may use KIP-848's."""
    if isinstance(described, GroupDescription):
        # Kafka before 4.0 describes an unknown group as Dead.
        return described.state is GroupState.DEAD
    return isinstance(described, GroupIdNotFound)


# -- requests ---------------------------------------------------------------------------------


def leave_group_request(
    group: str, members: Iterable[MemberToRemove], reason: str
) -> LeaveGroupRequest:
    """Return the request to remove members."""
    return LeaveGroupRequest(
        group_id=group,
        members=[
            MemberIdentity(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                reason=reason,
            )
            for member in members
        ],
    )


# -- responses --------------------------------------------------------------------------------


def listed_groups(response: ListGroupsResponse) -> list[GroupListing]:
    """Return the groups in one broker's response."""
    return [
        GroupListing(
            group_id=group.group_id,
            protocol_type=group.protocol_type,
            # Only brokers from Kafka 2.6 on return the state (KIP-518), and only from 3.8 on the
            # type (KIP-848).
            state=GroupState(group.group_state) if group.group_state else None,
            type=group.group_type or None,
        )
        for group in response.groups
    ]


def removed_members(
    leaving: Sequence[MemberToRemove], response: LeaveGroupResponse
) -> dict[MemberToRemove, KafkaError | None]:
    """Return the outcome for each member."""
    codes = {(x.member_id, x.group_instance_id): x.error_code for x in response.members}
    by_instance = {
        x.group_instance_id: x.error_code for x in response.members if x.group_instance_id
    }
    removed: dict[MemberToRemove, KafkaError | None] = {}
    for member in leaving:
        # A MemberToRemove equals the tuple of its fields. The response contains the member id even
        # if the request identified a static member only by its instance id, so the pair may not
        # match.
        code = codes.get(member, by_instance.get(member.group_instance_id or ""))
        about = f"member {member.group_instance_id or member.member_id}"
        if code is None:
            removed[member] = KafkaError(f"the response has no result for {about}")
        else:
            removed[member] = outcome(code, None, about, None)
    return removed
