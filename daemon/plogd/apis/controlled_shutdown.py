"""ControlledShutdown (key 7): a broker hands over its partitions before it stops.

Serves versions 1-3. Only the controller handles it; controller/cluster/leader_requests.py contains
the rules. Source: Kafka 3.9 KafkaController.controlledShutdown; KIP-46.
"""

from __future__ import annotations

from plog.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from plogd.apis.request_context import RequestContext
from plogd.broker import Broker
from plogd.ports import Later, spawn


def handle_controlled_shutdown(
    request: ControlledShutdownRequest, _context: RequestContext, broker: Broker
) -> Later[ControlledShutdownResponse]:
    """Move the leaders; return the partitions that cannot be moved yet. Raises NotController."""
    return spawn(_shut_down(request, broker))


async def _shut_down(
    request: ControlledShutdownRequest, broker: Broker
) -> ControlledShutdownResponse:
    cluster = broker.controller.cluster
    remaining = await cluster.requests.shut_down(request.broker_id, request.broker_epoch)
    return ControlledShutdownResponse(
        remaining_partitions=[
            RemainingPartition(topic_name=name, partition_index=number)
            for name, number in remaining
        ]
    )
