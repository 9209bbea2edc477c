"""DeleteGroups (key 42): forget groups that have no members, and the offsets they committed.

Versions served 0-2. Each group has its own outcome; one that is named twice is deleted once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plog.errors import KafkaError
from plog.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from plogd.apis.context import RequestContext
from plogd.apis.in_slices import ask_in_slices
from plogd.ports import Later, spawn

if TYPE_CHECKING:
    from plogd.broker import Broker


def handle_delete_groups(
    request: DeleteGroupsRequest, context: RequestContext, broker: Broker
) -> Later[DeleteGroupsResponse]:
    """Delete each of the groups."""
    return spawn(_delete(list(dict.fromkeys(request.groups_names)), broker))


async def _delete(group_ids: list[str], broker: Broker) -> DeleteGroupsResponse:
    outcomes = await ask_in_slices(group_ids, broker.group_coordinator.delete_group, broker)
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=0 if error is None else error.code)
            for group_id, error in zip(group_ids, outcomes, strict=True)
        ]
    )


def refuse_delete_groups(
    request: DeleteGroupsRequest, context: RequestContext, error: KafkaError
) -> DeleteGroupsResponse:
    """The answer in which every group gets `error`."""
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=error.code)
            for group_id in request.groups_names
        ]
    )
