"""Bootstrap from the controllers of an Apache Kafka cluster, which do not serve Metadata (KIP-919).

The client sends DescribeCluster instead. It converts the response into a Metadata response, so that
the rest of the client does not need a special case.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from plog.errors import UnsupportedVersion, error_from_code
from plog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from plog.wire.messages.metadata import MetadataResponse, MetadataResponseBroker

# Version 1 of DescribeCluster added endpoint types (KIP-919).
BROKER_ENDPOINTS: Final = 1
CONTROLLER_ENDPOINTS: Final = 2


async def ask_controllers(
    ask: Callable[
        [DescribeClusterRequest, type[DescribeClusterResponse]], Awaitable[DescribeClusterResponse]
    ],
) -> MetadataResponse:
    """Return the controllers, including the active one. Raises the same errors as `as_metadata`."""
    # The endpoint type selects controllers instead of brokers.
    request = DescribeClusterRequest(endpoint_type=CONTROLLER_ENDPOINTS)
    return as_metadata(await ask(request, DescribeClusterResponse))


def as_metadata(response: DescribeClusterResponse) -> MetadataResponse:
    """Return the controllers as if they were brokers without topics.

    Raises MismatchedEndpointType if a broker responded, and UnsupportedVersion if that broker is
    older than Kafka 3.7.
    """
    if response.error_code:
        raise error_from_code(response.error_code, response.error_message or "the controllers")
    # Brokers before Kafka 3.7 ignore the endpoint type and return the brokers.
    if response.endpoint_type != CONTROLLER_ENDPOINTS:
        raise UnsupportedVersion(
            "cannot bootstrap from controllers: the cluster is older than Kafka 3.7"
        )
    return MetadataResponse(
        cluster_id=response.cluster_id,
        controller_id=response.controller_id,
        brokers=[
            MetadataResponseBroker(
                node_id=node.broker_id, host=node.host, port=node.port, rack=node.rack
            )
            for node in response.brokers
        ],
    )
