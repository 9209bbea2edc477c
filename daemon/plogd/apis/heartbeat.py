"""Heartbeat (key 12): keep a member of a group alive.

Serves versions 0-4; version 3 adds static members (KIP-345).
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
    """Record the heartbeat; the response reports a rebalance or an unknown member."""
    return spawn(_heartbeat(request, broker))


async def _heartbeat(request: HeartbeatRequest, broker: Broker) -> HeartbeatResponse:
    try:
        return await broker.group_coordinator.write(
            request.group_id, lambda shard: shard.groups.heartbeat(request)
        )
    except CoordinatorLoadInProgress:
        # As in Kafka, because consumers treat this error as fatal in a Heartbeat response. While
        # the coordinator loads its log, it does not know its members, so none of them can expire.
        return HeartbeatResponse()
