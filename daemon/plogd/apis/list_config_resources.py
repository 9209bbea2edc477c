"""ListConfigResources (key 74): the resources that have, or can have, settings.

Serves versions 0-1. Version 0 lists only client metrics, which plog does not have. Version 1 lists
resources of the requested types, or of all types if the request does not specify any (KIP-1142). If
a requested type is unknown, the whole request fails.
"""

from __future__ import annotations

from collections.abc import Iterator

from plog.enums import ConfigResourceType
from plog.errors import UnsupportedVersion
from plog.wire.lazy_array import lazy_array
from plog.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from plogd.apis.request_context import RequestContext
from plogd.broker import Broker

_FIRST_VERSION_WITH_TYPES = 1  # KIP-1142.
_KNOWN = [resource_type for resource_type in ConfigResourceType if resource_type.is_known]


def handle_list_config_resources(
    request: ListConfigResourcesRequest, context: RequestContext, broker: Broker
) -> ListConfigResourcesResponse:
    """Return the resources of the requested types."""
    if context.version < _FIRST_VERSION_WITH_TYPES:
        # In version 0, this API is ListClientMetricsResources (KIP-714).
        asked = {int(ConfigResourceType.CLIENT_METRICS)}
    else:
        asked = set(request.resource_types) or set(map(int, _KNOWN))
    unknown = sorted(asked - set(map(int, _KNOWN)))
    if unknown:
        # A type that this broker does not know can only come from a newer client.
        raise UnsupportedVersion(f"Unsupported resource types: {unknown}")
    resources = [
        (name, resource_type)
        for resource_type in _KNOWN
        if resource_type in asked
        for name in _names(resource_type, broker)
    ]
    return ListConfigResourcesResponse(
        config_resources=lazy_array(
            resources, lambda one: ConfigResource(resource_name=one[0], resource_type=one[1])
        )
    )


def _names(resource_type: ConfigResourceType, broker: Broker) -> Iterator[str]:
    match resource_type:
        case ConfigResourceType.TOPIC:
            yield from (topic.name for topic in broker.cache.topics())
        case ConfigResourceType.BROKER | ConfigResourceType.BROKER_LOGGER:
            # In Kafka, the resource of a broker's loggers is also named by the broker's id.
            yield from map(str, broker.cache.live_brokers)
