"""What a client's quotas mean for the request at hand.

Called by apis/produce.py and apis/fetch.py where there are quotas at all (`RateQuota.is_set`). The
connection is told how long to take no request, the client by the answer (KIP-219).
"""

from __future__ import annotations

from collections.abc import Sequence

from plogd.apis.request_context import RequestContext
from plogd.broker import Broker
from plogd.replica.partition import PartitionRead


def count_produce(context: RequestContext, broker: Broker) -> int:
    """Count a produce request; the throttle time its answer is to tell."""
    user, client_id = _client(context)
    now_ms = broker.clock.monotonic_ms()
    throttle_ms = broker.quotas.produce.take(user, client_id, context.size_bytes, now_ms)
    context.connection.mute_ms = max(throttle_ms, context.connection.mute_ms)
    return throttle_ms


def grant_fetch(
    context: RequestContext, broker: Broker, reads: Sequence[PartitionRead]
) -> tuple[bool, int]:
    """Whether these records may be sent now, and the throttle time the answer is to tell."""
    nbytes = sum(read.nbytes for read in reads)
    if not nbytes:
        return True, 0
    user, client_id = _client(context)
    now_ms = broker.clock.monotonic_ms()
    granted = broker.quotas.fetch.request(user, client_id, nbytes, now_ms)
    context.connection.mute_ms = max(granted.throttle_ms, context.connection.mute_ms)
    return granted


def bound_fetch(context: RequestContext, broker: Broker, max_bytes: int) -> int:
    """`max_bytes`, or less where more could only be refused."""
    limit = broker.quotas.fetch.window_limit(*_client(context))
    return max_bytes if limit is None else min(max_bytes, int(limit))


def _client(context: RequestContext) -> tuple[str, str]:
    """The name of the user, without its type, and the client id."""
    return context.connection.principal.partition(":")[2], context.client_id or ""
