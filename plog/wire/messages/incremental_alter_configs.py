"""IncrementalAlterConfigs (key 44): change some settings of a resource (KIP-339).

Changes by version:

  1  flexible
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.messages.alter_configs import AlterConfigsResourceResponse
from plog.wire.schema import ApiMessage, Struct, field, int8, int32


class IncrementalAlterableConfig(Struct):
    """One change. ``config_operation``: 0 set, 1 delete, 2 append, 3 subtract."""

    name: str = field()
    config_operation: int8 = field()
    value: str | None = field()


class IncrementalAlterConfigsResource(Struct):
    """A resource, and the changes to its settings."""

    resource_type: int8 = field()
    resource_name: str = field()
    configs: list[IncrementalAlterableConfig] = field()


class IncrementalAlterConfigsRequest(
    ApiMessage, api_key=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions="0-1", flexible="1+"
):
    """Resources to change independently."""

    resources: list[IncrementalAlterConfigsResource] = field()
    validate_only: bool = field()


class IncrementalAlterConfigsResponse(
    ApiMessage, api_key=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions="0-1", flexible="1+"
):
    """Results by resource."""

    throttle_time_ms: int32 = field()
    # Kafka declares this struct twice, with the same fields.
    responses: list[AlterConfigsResourceResponse] = field()
