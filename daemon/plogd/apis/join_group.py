"""JoinGroup (key 11): join a group, or join its next generation.

Serves versions 0-9. The response is sent when the other members have also joined.

  1 rebalance timeout    4 a new member gets its id first (KIP-394)    5 static members (KIP-345)
  7 a missing protocol is null instead of empty (KIP-559)
  9 the leader may skip the assignment (KIP-814)

group/join_group.py decides which members may join, and rebalance.py decides when a generation
starts.
"""

from __future__ import annotations

from plog.errors import KafkaError
from plog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from plogd.apis.request_context import RequestContext
from plogd.broker import Broker
from plogd.ports import Later

_FIRST_VERSION_WITH_PENDING_MEMBERS = 4  # KIP-394.
_FIRST_VERSION_WITHOUT_PROTOCOL = 7  # KIP-559.
_FIRST_VERSION_THAT_SKIPS = 9  # KIP-814.


def handle_join_group(
    request: JoinGroupRequest, context: RequestContext, broker: Broker
) -> Later[JoinGroupResponse]:
    """Join the group; return the member's generation once it has started."""
    joined = broker.group_coordinator.write_join(
        request,
        lambda shard: shard.groups.join(
            request,
            context.client_id or "",
            client_host(context),
            # Older clients could not join at all: they do not know MEMBER_ID_REQUIRED.
            requires_known_member_id=context.version >= _FIRST_VERSION_WITH_PENDING_MEMBERS,
            can_skip_assignment=context.version >= _FIRST_VERSION_THAT_SKIPS,
        ),
    )
    return joined.map(lambda response: _in_version(response, context))


def client_host(context: RequestContext) -> str:
    """Return the client's address in Java's format for an address without a host name."""
    host, _ = context.connection.client_address
    # A dual-stack socket reports the address of an IPv4 client in its IPv6 form.
    return "/" + host.removeprefix("::ffff:")


def _in_version(response: JoinGroupResponse, context: RequestContext) -> JoinGroupResponse:
    if context.version < _FIRST_VERSION_WITHOUT_PROTOCOL:
        # These versions cannot encode null.
        response.protocol_name = response.protocol_name or ""
    else:
        response.protocol_name = response.protocol_name or None
    return response


def refuse_join_group(
    request: JoinGroupRequest, context: RequestContext, error: KafkaError
) -> JoinGroupResponse:
    """Reject the request with `error`."""
    refused = JoinGroupResponse(error_code=error.code, member_id=request.member_id)
    return _in_version(refused, context)
