"""ListGroups (key 16): the groups that this broker coordinates.

Serves versions 0-5. A request can filter by state from version 4 (KIP-518) and by type from version
5 (KIP-848); the only type here is "classic".

A broker lists the groups in the `__consumer_offsets` partitions that it leads. While one of these
partitions is being loaded, the request fails, because clients would treat an incomplete list as
complete.
"""

from __future__ import annotations

from plog.errors import NotCoordinator
from plog.wire.lazy_array import lazy_array
from plog.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from plogd.apis.request_context import RequestContext
from plogd.broker import Broker
from plogd.coordinator.group.group import Group
from plogd.coordinator.group.group_metadata_manager import GROUP_TYPE
from plogd.fair_queue import Slices
from plogd.ports import Later, spawn


def handle_list_groups(
    request: ListGroupsRequest, context: RequestContext, broker: Broker
) -> Later[ListGroupsResponse]:
    """List the groups in every partition that this broker leads."""
    return spawn(_list(request, broker))


async def _list(request: ListGroupsRequest, broker: Broker) -> ListGroupsResponse:
    slices = Slices(broker.fair_queue)
    # As in Kafka, filters ignore case.
    states = {state.strip().lower() async for state in slices.over(request.states_filter)}
    types = {one.strip().lower() async for one in slices.over(request.types_filter)}
    # Other types are not an error, because a newer client asks all brokers for its own type.
    if types and GROUP_TYPE not in types:
        return ListGroupsResponse()
    # Copies, because groups can be added and removed between slices.
    asked = broker.group_coordinator.read_all(lambda shard: list(shard.groups))
    found: list[Group] = []
    for answer in asked:
        try:
            groups = await answer
        except NotCoordinator:  # The partition's new coordinator lists its groups.
            continue
        async for group in slices.over(groups):
            if not states or group.state.value.lower() in states:
                found.append(group)
    return ListGroupsResponse(groups=lazy_array(found, _listed))


def _listed(group: Group) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=GROUP_TYPE,
    )
