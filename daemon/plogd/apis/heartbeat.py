"""Heartbeat (key 12): a member of a group is alive.

Versions served 0-4; from 3 on static members (KIP-345).

While a coordinator reads its log it cannot know its members, and counts no time against them: it
answers that all is well, as Kafka does. Consumers take COORDINATOR_LOAD_IN_PROGRESS for fatal here.
"""

from __future__ import annotations

from plog.errors import CoordinatorLoadInProgress
from plog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from plogd.apis.request_context import RequestContext
from plogd.broker import Broker
from plogd.ports import Later, spawn


def handle_heartbeat(
    request: HeartbeatRequest, context: RequestContext, broker: Broker
) -> Later[HeartbeatResponse]:
    """Whether the member is one, and its group at rest."""
    return spawn(_heartbeat(request, broker))


async def _heartbeat(request: HeartbeatRequest, broker: Broker) -> HeartbeatResponse:
    try:
        return await broker.group_coordinator.write(
            request.group_id, lambda shard: shard.groups.heartbeat(request)
        )
    except CoordinatorLoadInProgress:
        return HeartbeatResponse()
