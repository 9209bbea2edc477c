"""Apply client quotas to produce and fetch requests.

apis/produce.py and apis/fetch.py call these functions if any quota is set (`RateQuota.is_set`). The
broker stops reading requests from a throttled connection for the throttle time, which it also sends
in the response (KIP-219).
"""

from __future__ import annotations

from collections.abc import Sequence

from plogd.apis.request_context import RequestContext
from plogd.broker import Broker
from plogd.replica.fetch.partition_read import PartitionRead


def count_produce(context: RequestContext, broker: Broker) -> int:
    """Count a produce request; return the throttle time for its response."""
    user, client_id = _client(context)
    now_ms = broker.clock.monotonic_ms()
    # The size of the frame, not of the records: Kafka also counts whole Produce requests.
    throttle_ms = broker.quotas.produce.take(user, client_id, context.size_bytes, now_ms)
    # Another request in the same turn may have set a longer time.
    context.connection.mute_ms = max(throttle_ms, context.connection.mute_ms)
    return throttle_ms


def grant_fetch(
    context: RequestContext, broker: Broker, reads: Sequence[PartitionRead]
) -> tuple[bool, int]:
    """Return whether these records may be sent now, and the throttle time for the response."""
    nbytes = sum(read.nbytes for read in reads)
    if not nbytes:  # The quota limits records, so an empty response is never throttled.
        return True, 0
    user, client_id = _client(context)
    now_ms = broker.clock.monotonic_ms()
    # Unlike a produce, a fetch that is not sent does not count against the quota.
    granted = broker.quotas.fetch.request(user, client_id, nbytes, now_ms)
    context.connection.mute_ms = max(granted.throttle_ms, context.connection.mute_ms)
    return granted


def bound_fetch(context: RequestContext, broker: Broker, max_bytes: int) -> int:
    """Return `max_bytes`, or less if the client's quota allows less for one response."""
    # As in Kafka's KafkaApis: a larger response would use up more than a whole quota window.
    limit = broker.quotas.fetch.window_limit(*_client(context))
    return max_bytes if limit is None else min(max_bytes, int(limit))


def _client(context: RequestContext) -> tuple[str, str]:
    """Return the user name without the principal type, and the client id."""
    return context.connection.principal.partition(":")[2], context.client_id or ""
