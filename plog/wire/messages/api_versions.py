"""ApiVersions (key 18): what this broker speaks; the first request on every connection.

  1  throttle time
  3  flexible; client software (KIP-511), features (KIP-584)
  4  supported features may begin at 0 (KAFKA-17011)

A request of an unknown version is answered in version 0 with UNSUPPORTED_VERSION, and the response
header never has tagged fields: a client cannot know yet what the broker understands (KIP-511).
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32, int64


class ApiVersionsRequest(ApiMessage, api_key=ApiKey.API_VERSIONS, versions="0-4", flexible="3+"):
    """Who is asking."""

    client_software_name: str = field("3+", ignorable=True)
    client_software_version: str = field("3+", ignorable=True)


class ApiVersion(Struct):
    """An API and the versions of it that are served."""

    api_key: int16 = field()
    min_version: int16 = field()
    max_version: int16 = field()


class SupportedFeatureKey(Struct):
    """A feature this broker could run at these levels."""

    name: str = field()
    min_version: int16 = field()
    max_version: int16 = field()


class FinalizedFeatureKey(Struct):
    """A feature the cluster runs at this level."""

    name: str = field()
    max_version_level: int16 = field()
    min_version_level: int16 = field()


class ApiVersionsResponse(ApiMessage, api_key=ApiKey.API_VERSIONS, versions="0-4", flexible="3+"):
    """What is served. An epoch of -1 means the finalized features are not known."""

    error_code: int16 = field()
    api_keys: list[ApiVersion] = field()
    throttle_time_ms: int32 = field("1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = field("3+", tag=0, ignorable=True)
    finalized_features_epoch: int64 = field("3+", tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field("3+", tag=2, ignorable=True)
    zk_migration_ready: bool = field("3+", tag=3, ignorable=True)
