"""Groups: list and describe them, take members out, delete them. Their offsets: group_offsets.py.

Every broker lists the groups it coordinates; all else is asked of a group's coordinator. Groups of
the classic protocol are described; Kafka's of the newer types (KIP-848) are listed only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from plog.client.admin.base import AdminBase
from plog.client.admin.results import Results, outcome, raise_if_error
from plog.client.admin.routing import Answers, ask_coordinator, by_broker, by_coordinator
from plog.client.admin.values import (
    BrokerDescription,
    GroupDescription,
    GroupListing,
    GroupState,
    MemberDescription,
    MemberToRemove,
    operations_of,
)
from plog.errors import KafkaError
from plog.types import TopicPartition
from plog.wire.internal.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    decode_assignment,
    subscribed_topics,
)
from plog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from plog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from plog.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from plog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from plog.wire.schema import WireError

_REASON = "removed by an administrator"


class GroupAdmin(AdminBase):
    """See the module's text."""

    async def list_groups(
        self,
        *,
        states: Collection[GroupState | str] = (),
        types: Collection[str] = (),
        protocol_types: Collection[str] = (),
    ) -> dict[str, GroupListing]:
        """The groups of all brokers, by name: those in some states or of some types, or all.

        Types are "classic", "consumer", "share", "streams"; protocol types "consumer" for who
        consumes topics, "" for groups that only keep offsets. Raises what any broker failed with,
        and UnsupportedVersion where one is too old for a filter.
        """
        request = ListGroupsRequest(
            states_filter=[str(GroupState(state)) for state in states], types_filter=list(types)
        )

        async def ask(node_id: int) -> list[GroupListing]:
            response = await self.cluster.ask_node(node_id, request, ListGroupsResponse)
            raise_if_error(response.error_code, None, f"the groups of broker {node_id}")
            return listed_groups(response)

        listed = (await by_broker(self.cluster, None, ask)).raise_first()
        groups = sorted(
            (group for some in listed.values() for group in some), key=lambda group: group.group_id
        )
        return {
            group.group_id: group
            for group in groups
            if not protocol_types or group.protocol_type in protocol_types
        }

    async def describe_groups(
        self, groups: Iterable[str], *, include_authorized_operations: bool = False
    ) -> Results[str, GroupDescription]:
        """Groups with their members. Errors: GroupIdNotFound, GroupAuthorizationFailed, ...

        A broker before Kafka 4.0 describes a group nobody knows as Dead.
        """

        async def ask(node_id: int, groups: Sequence[str]) -> Answers[str, GroupDescription]:
            request = DescribeGroupsRequest(
                groups=list(groups), include_authorized_operations=include_authorized_operations
            )
            response = await self.cluster.ask_node(node_id, request, DescribeGroupsResponse)
            return described_groups(response, await self.broker(node_id))

        return await by_coordinator(self.cluster, groups, ask)

    async def describe_group(
        self, group: str, *, include_authorized_operations: bool = False
    ) -> GroupDescription:
        """One group with its members. Raises what `describe_groups` gives for it."""
        described = await self.describe_groups(
            [group], include_authorized_operations=include_authorized_operations
        )
        return described.get(group)

    async def delete_groups(self, groups: Iterable[str]) -> Results[str, None]:
        """Delete groups without members, and their offsets.

        Errors: NonEmptyGroup, GroupIdNotFound, GroupAuthorizationFailed, ...
        """

        async def ask(node_id: int, groups: Sequence[str]) -> Answers[str, None]:
            request = DeleteGroupsRequest(groups_names=list(groups))
            response = await self.cluster.ask_node(node_id, request, DeleteGroupsResponse)
            return {
                result.group_id: outcome(result.error_code, None, f"group {result.group_id}", None)
                for result in response.results
            }

        return await by_coordinator(self.cluster, groups, ask)

    async def delete_group(self, group: str) -> None:
        """Delete one group. Raises what `delete_groups` gives for it."""
        (await self.delete_groups([group])).get(group)

    async def remove_members(
        self,
        group: str,
        members: Iterable[MemberToRemove | str] | None = None,
        *,
        reason: str = _REASON,
    ) -> Results[MemberToRemove, None]:
        """Take members out of a group; None takes all. A text names a static member's instance id.

        A member that still runs and is not static joins again. Errors, each a member's own:
        UnknownMemberId. Raises UnsupportedVersion before Kafka 2.4.
        """
        if members is None:
            leaving = [
                MemberToRemove(member.member_id, member.group_instance_id)
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
            response = await self.cluster.ask_node(node_id, request, LeaveGroupResponse)
            raise_if_error(response.error_code, None, f"group {group}")
            return removed_members(leaving, response)

        return Results(await ask_coordinator(self.cluster, group, ask))


# -- requests ---------------------------------------------------------------------------------


def leave_group_request(
    group: str, members: Iterable[MemberToRemove], reason: str
) -> LeaveGroupRequest:
    """The request in the name of members that are to go."""
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
    """The groups of one broker."""
    return [
        GroupListing(
            group_id=group.group_id,
            protocol_type=group.protocol_type,
            state=GroupState(group.group_state) if group.group_state else None,
            type=group.group_type or None,
        )
        for group in response.groups
    ]


def described_groups(
    response: DescribeGroupsResponse, coordinator: BrokerDescription
) -> dict[str, GroupDescription | KafkaError]:
    """The groups of one coordinator."""
    return {
        group.group_id: outcome(
            group.error_code,
            group.error_message,
            f"group {group.group_id}",
            _described(group, coordinator),
        )
        for group in response.groups
    }


def _described(group: DescribedGroup, coordinator: BrokerDescription) -> GroupDescription:
    consumes = group.protocol_type == CONSUMER_PROTOCOL_TYPE
    return GroupDescription(
        group_id=group.group_id,
        state=GroupState(group.group_state),
        protocol_type=group.protocol_type,
        protocol=group.protocol_data,
        members=tuple(_member(member, consumes=consumes) for member in group.members),
        coordinator=coordinator,
        authorized_operations=operations_of(group.authorized_operations),
    )


def _member(member: DescribedGroupMember, *, consumes: bool) -> MemberDescription:
    metadata, assignment = bytes(member.member_metadata), bytes(member.member_assignment)
    return MemberDescription(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        subscription=_subscription(metadata) if consumes else frozenset(),
        assignment=_assignment(assignment) if consumes else frozenset(),
        raw_metadata=metadata,
        raw_assignment=assignment,
    )


def _subscription(metadata: bytes) -> frozenset[str]:
    """None of it during a rebalance, or if the member sent what is no subscription."""
    try:
        return subscribed_topics(metadata)
    except WireError:
        return frozenset()


def _assignment(data: bytes) -> frozenset[TopicPartition]:
    """None of it during a rebalance, or if the leader sent what is no assignment."""
    try:
        assignment = decode_assignment(data)
    except WireError:
        return frozenset()
    return frozenset(
        TopicPartition(topic.topic, number)
        for topic in assignment.assigned_partitions
        for number in topic.partitions
    )


def removed_members(
    leaving: Sequence[MemberToRemove], response: LeaveGroupResponse
) -> dict[MemberToRemove, KafkaError | None]:
    """What became of each member that was to leave."""
    codes = {(x.member_id, x.group_instance_id): x.error_code for x in response.members}
    by_instance = {
        x.group_instance_id: x.error_code for x in response.members if x.group_instance_id
    }
    removed: dict[MemberToRemove, KafkaError | None] = {}
    for member in leaving:
        code = codes.get(member, by_instance.get(member.group_instance_id))
        about = f"member {member.group_instance_id or member.member_id}"
        if code is None:
            removed[member] = KafkaError(f"the answer does not say what became of {about}")
        else:
            removed[member] = outcome(code, None, about, None)
    return removed
