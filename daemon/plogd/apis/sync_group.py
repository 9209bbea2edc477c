"""SyncGroup (key 14): the leader tells who gets what, the others hear what they have got.

Versions served 0-5. The answer waits for the leader, and for its assignment to be durable.

  3 static members (KIP-345)     5 the protocol has to be told (KIP-559)

When a generation has its assignment is decided in group/group_metadata_manager.py and rebalance.py.
"""

from __future__ import annotations

from plog.errors import InconsistentGroupProtocol
from plog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from plogd.apis.request_context import RequestContext
from plogd.broker import Broker
from plogd.ports import Later

_FIRST_VERSION_WITH_PROTOCOL = 5


def handle_sync_group(
    request: SyncGroupRequest, context: RequestContext, broker: Broker
) -> Later[SyncGroupResponse]:
    """What the member is assigned."""
    if context.version >= _FIRST_VERSION_WITH_PROTOCOL and (
        request.protocol_type is None or request.protocol_name is None
    ):
        raise InconsistentGroupProtocol(
            "from version 5 on SyncGroup tells the protocol's type and name"
        )
    return broker.group_coordinator.write_sync(request, lambda shard: shard.groups.sync(request))
