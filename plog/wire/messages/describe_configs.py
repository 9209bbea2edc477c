"""DescribeConfigs (key 32): the settings of topics and brokers, and their sources.

Changes by version:

  1  source and synonyms (KIP-226)
  3  type and documentation (KIP-569)
  4  flexible

Version 0 was removed in Kafka 4.0.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int8, int16, int32


class DescribeConfigsResource(Struct):
    """A topic or broker; null keys request all its settings."""

    resource_type: int8 = field()
    resource_name: str = field()
    configuration_keys: list[str] | None = field()


class DescribeConfigsRequest(
    ApiMessage, api_key=ApiKey.DESCRIBE_CONFIGS, versions="1-4", flexible="4+"
):
    """Resources to describe."""

    resources: list[DescribeConfigsResource] = field()
    include_synonyms: bool = field()
    include_documentation: bool = field("3+")


class DescribeConfigsSynonym(Struct):
    """A setting that can determine the value; synonyms are in order of precedence."""

    name: str = field()
    value: str | None = field()
    source: int8 = field()


class DescribeConfigsResourceResult(Struct):
    """One setting."""

    name: str = field()
    value: str | None = field()
    read_only: bool = field()
    # -1 means unknown: version 0 only had a flag for default values.
    config_source: int8 = field(default=-1)
    is_sensitive: bool = field()
    synonyms: list[DescribeConfigsSynonym] = field()
    config_type: int8 = field("3+", ignorable=True)
    documentation: str | None = field("3+", ignorable=True)


class DescribeConfigsResult(Struct):
    """The settings of one resource."""

    error_code: int16 = field()
    error_message: str | None = field()
    resource_type: int8 = field()
    resource_name: str = field()
    configs: list[DescribeConfigsResourceResult] = field()


class DescribeConfigsResponse(
    ApiMessage, api_key=ApiKey.DESCRIBE_CONFIGS, versions="1-4", flexible="4+"
):
    """Settings by resource."""

    throttle_time_ms: int32 = field()
    results: list[DescribeConfigsResult] = field()
