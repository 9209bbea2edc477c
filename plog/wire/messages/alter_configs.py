"""AlterConfigs (key 33): a resource gets these settings, and loses all others it had.

  1  as 0
  2  flexible

IncrementalAlterConfigs has come in its place (KIP-339); older clients know only this one.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int8, int16, int32


class AlterableConfig(Struct):
    """One setting and its new value."""

    name: str = field()
    value: str | None = field()


class AlterConfigsResource(Struct):
    """A resource, and all the settings it is to have."""

    resource_type: int8 = field()
    resource_name: str = field()
    configs: list[AlterableConfig] = field()


class AlterConfigsRequest(ApiMessage, api_key=ApiKey.ALTER_CONFIGS, versions="0-2", flexible="2+"):
    """Resources to change, each by itself."""

    resources: list[AlterConfigsResource] = field()
    validate_only: bool = field()


class AlterConfigsResourceResponse(Struct):
    """What became of one resource."""

    error_code: int16 = field()
    error_message: str | None = field()
    resource_type: int8 = field()
    resource_name: str = field()


class AlterConfigsResponse(ApiMessage, api_key=ApiKey.ALTER_CONFIGS, versions="0-2", flexible="2+"):
    """Outcomes, by resource."""

    throttle_time_ms: int32 = field()
    responses: list[AlterConfigsResourceResponse] = field()
