"""DeleteGroups (key 42): delete groups without members, and their committed offsets.

Serves versions 0-2. Each group has its own outcome, and appears in the response once even if the
request repeats it.
"""

from __future__ import annotations

from plog.errors import KafkaError
from plog.wire.lazy_array import lazy_array
from plog.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from plogd.apis.request_context import RequestContext
from plogd.apis.sliced_requests import ask_in_slices
from plogd.broker import Broker
from plogd.ports import Later, spawn


def handle_delete_groups(
    request: DeleteGroupsRequest, context: RequestContext, broker: Broker
) -> Later[DeleteGroupsResponse]:
    """Delete the groups; each has its own outcome."""
    # Without repetitions: the second deletion of a group would fail with GROUP_ID_NOT_FOUND.
    return spawn(_delete(list(dict.fromkeys(request.groups_names)), broker))


async def _delete(group_ids: list[str], broker: Broker) -> DeleteGroupsResponse:
    outcomes = await ask_in_slices(group_ids, broker.group_coordinator.delete_group, broker)
    return DeleteGroupsResponse(
        results=lazy_array(list(zip(group_ids, outcomes, strict=True)), lambda one: _result(*one))
    )


def _result(group_id: str, error: KafkaError | None) -> DeletableGroupResult:
    return DeletableGroupResult(group_id=group_id, error_code=0 if error is None else error.code)


def refuse_delete_groups(
    request: DeleteGroupsRequest, context: RequestContext, error: KafkaError
) -> DeleteGroupsResponse:
    """Reject all groups with `error`."""
    return DeleteGroupsResponse(
        # With repetitions, because the request was rejected before they were removed.
        results=lazy_array(request.groups_names, lambda group_id: _result(group_id, error))
    )
