"""ListGroups (key 16): the groups this broker coordinates.

Versions served 0-5; from 4 on only those in some states (KIP-518), from 5 on only those of some
types (KIP-848), of which there is one here, "classic".

Partitions of `__consumer_offsets` that are elsewhere are somebody else's to tell. One that is being
loaded refuses the request: a list that is not complete would be taken for one that is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plog.errors import NotCoordinator
from plog.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from plogd.apis.context import RequestContext
from plogd.ports import Later, spawn

if TYPE_CHECKING:
    from plogd.broker import Broker


def handle_list_groups(
    request: ListGroupsRequest, context: RequestContext, broker: Broker
) -> Later[ListGroupsResponse]:
    """The groups of every partition this broker leads."""
    return spawn(_list(request, broker))


async def _list(request: ListGroupsRequest, broker: Broker) -> ListGroupsResponse:
    asked = broker.group_coordinator.read_all(
        lambda shard: shard.groups.list_groups(request.states_filter, request.types_filter)
    )
    groups: list[ListedGroup] = []
    for answer in asked:
        try:
            groups += await answer
        except NotCoordinator:
            continue
    return ListGroupsResponse(groups=groups)
