"""SyncGroup (key 14): the group leader sends the assignment, and each member receives its part.

Serves versions 0-5. The response is sent when the leader's assignment is durable.

  3 static members (KIP-345)     5 protocol type and name are required (KIP-559)

group/group_metadata_manager.py and rebalance.py decide when a generation has its assignment.
"""

from __future__ import annotations

from plog.errors import InconsistentGroupProtocol
from plog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from plogd.apis.request_context import RequestContext
from plogd.broker import Broker
from plogd.ports import Later

_FIRST_VERSION_WITH_PROTOCOL = 5  # KIP-559.


def handle_sync_group(
    request: SyncGroupRequest, context: RequestContext, broker: Broker
) -> Later[SyncGroupResponse]:
    """Return the member's assignment."""
    # As in Kafka: the schema makes both fields nullable, but KIP-559 makes them mandatory.
    if context.version >= _FIRST_VERSION_WITH_PROTOCOL and (
        request.protocol_type is None or request.protocol_name is None
    ):
        raise InconsistentGroupProtocol(
            "protocol type or name is missing; SyncGroup requires both in version 5 and later"
        )
    return broker.group_coordinator.write_sync(request, lambda shard: shard.groups.sync(request))
