"""ListConfigResources (key 74): the resources that have, or can have, settings.

Changes by version:

  1  resource types other than client metrics (KIP-1142)

Version 0 is KIP-1000's ListClientMetricsResources; all versions are flexible.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int8, int16, int32


class ListConfigResourcesRequest(
    ApiMessage, api_key=ApiKey.LIST_CONFIG_RESOURCES, versions="0-1", flexible="0+"
):
    """The resource types to list; empty means all."""

    resource_types: list[int8] = field("1+")


class ConfigResource(Struct):
    """A resource; its type defaults to client metrics (16)."""

    resource_name: str = field()
    resource_type: int8 = field("1+", ignorable=True, default=16)


class ListConfigResourcesResponse(
    ApiMessage, api_key=ApiKey.LIST_CONFIG_RESOURCES, versions="0-1", flexible="0+"
):
    """The resources."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    config_resources: list[ConfigResource] = field()
