"""JoinGroup (key 11): become a member of a group, or take part in its next generation.

Versions served 0-9. The answer waits for the other members.

  1 rebalance timeout    4 a new member is given an id first (KIP-394)    5 static members (KIP-345)
  7 no protocol is null, and empty before (KIP-559)    9 a leader need not assign again (KIP-814)

Who is let in, and when a generation begins, is decided in group/join_group.py and rebalance.py.
"""

from __future__ import annotations

from plog.errors import KafkaError
from plog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from plogd.apis.request_context import RequestContext
from plogd.broker import Broker
from plogd.ports import Later

_FIRST_VERSION_WITH_PENDING_MEMBERS = 4
_FIRST_VERSION_WITHOUT_PROTOCOL = 7
_FIRST_VERSION_THAT_SKIPS = 9


def handle_join_group(
    request: JoinGroupRequest, context: RequestContext, broker: Broker
) -> Later[JoinGroupResponse]:
    """The generation the member is in, once it has begun."""
    joined = broker.group_coordinator.write_join(
        request,
        lambda shard: shard.groups.join(
            request,
            context.client_id or "",
            client_host(context),
            requires_known_member_id=context.version >= _FIRST_VERSION_WITH_PENDING_MEMBERS,
            can_skip_assignment=context.version >= _FIRST_VERSION_THAT_SKIPS,
        ),
    )
    return joined.map(lambda response: _in_version(response, context))


def client_host(context: RequestContext) -> str:
    """Where the client is, in Java's way of writing an address without a name."""
    host, _ = context.connection.client_address
    # A dual-stack socket reports IPv4 clients' addresses in their IPv6 form.
    return "/" + host.removeprefix("::ffff:")


def _in_version(response: JoinGroupResponse, context: RequestContext) -> JoinGroupResponse:
    if context.version < _FIRST_VERSION_WITHOUT_PROTOCOL:
        response.protocol_name = response.protocol_name or ""
    else:
        response.protocol_name = response.protocol_name or None
    return response


def refuse_join_group(
    request: JoinGroupRequest, context: RequestContext, error: KafkaError
) -> JoinGroupResponse:
    """The answer that nobody joins anything."""
    refused = JoinGroupResponse(error_code=error.code, member_id=request.member_id)
    return _in_version(refused, context)
