"""DescribeCluster (key 60): the live brokers with their addresses, and the controller.

Serves versions 0-2.

  1 endpoint type (KIP-919)      2 fenced brokers (KIP-1073); plog does not fence brokers

The addresses are the same as in a Metadata response.
"""

from __future__ import annotations

from typing import Final

from plog.errors import MismatchedEndpointType, UnsupportedEndpointType
from plog.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from plogd.apis.error_responses import refuse_at_top_level
from plogd.apis.listener_view import ListenerView
from plogd.apis.metadata import CLUSTER_OPERATIONS
from plogd.apis.request_context import RequestContext
from plogd.broker import Broker

# Kafka's EndpointType (KIP-919).
BROKERS: Final = 1
CONTROLLERS: Final = 2


def handle_describe_cluster(
    request: DescribeClusterRequest, context: RequestContext, broker: Broker
) -> DescribeClusterResponse:
    """Return the brokers that have the client's listener, and the controller."""
    _check_endpoint_type(request.endpoint_type)
    nodes = ListenerView(context.connection, broker).nodes()
    response = DescribeClusterResponse(
        endpoint_type=BROKERS,
        cluster_id=broker.cluster_id,
        controller_id=broker.cache.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=broker_id, host=host, port=port, rack=rack)
            for broker_id, host, port, rack in nodes
        ],
    )
    if request.include_cluster_authorized_operations:
        # Otherwise, the field keeps its default, Java's Integer.MIN_VALUE, which means "not
        # requested".
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def _check_endpoint_type(endpoint_type: int) -> None:
    # The controller does not have its own listener, so a broker cannot serve this request.
    if endpoint_type == CONTROLLERS:
        raise MismatchedEndpointType(
            "this is a broker listener, not a controller listener; use bootstrap.servers instead"
            " of bootstrap.controllers"
        )
    if endpoint_type != BROKERS:
        raise UnsupportedEndpointType(f"unknown endpoint type {endpoint_type}")


refuse_describe_cluster = refuse_at_top_level(DescribeClusterResponse)
