"""AlterConfigs (key 33): replace all settings of a resource.

Changes by version:

  1  identical to version 0
  2  flexible

IncrementalAlterConfigs replaces this API (KIP-339), but older clients do not support it.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int8, int16, int32


class AlterableConfig(Struct):
    """One setting and its new value."""

    name: str = field()
    value: str | None = field()


class AlterConfigsResource(Struct):
    """A resource, and all its new settings."""

    resource_type: int8 = field()
    resource_name: str = field()
    configs: list[AlterableConfig] = field()


class AlterConfigsRequest(ApiMessage, api_key=ApiKey.ALTER_CONFIGS, versions="0-2", flexible="2+"):
    """Resources to change independently."""

    resources: list[AlterConfigsResource] = field()
    validate_only: bool = field()


class AlterConfigsResourceResponse(Struct):
    """The result for one resource."""

    error_code: int16 = field()
    error_message: str | None = field()
    resource_type: int8 = field()
    resource_name: str = field()


class AlterConfigsResponse(ApiMessage, api_key=ApiKey.ALTER_CONFIGS, versions="0-2", flexible="2+"):
    """Results by resource."""

    throttle_time_ms: int32 = field()
    responses: list[AlterConfigsResourceResponse] = field()
