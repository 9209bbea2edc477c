"""ApiVersions (key 18): supported APIs and features; the first request on every connection.

Changes by version:

  1  throttle time
  3  flexible; client software (KIP-511), features (KIP-584)
  4  supported features may start at 0 (KAFKA-17011)

The broker responds to an unknown version with version 0 and UNSUPPORTED_VERSION. The response
header never has tagged fields, because the client does not know the broker's versions (KIP-511).
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32, int64


class ApiVersionsRequest(ApiMessage, api_key=ApiKey.API_VERSIONS, versions="0-4", flexible="3+"):
    """Name and version of the client's software."""

    # Ignorable: a client that falls back to an older version drops its name and version.
    client_software_name: str = field("3+", ignorable=True)
    client_software_version: str = field("3+", ignorable=True)


class ApiVersion(Struct):
    """An API and its range of supported versions."""

    api_key: int16 = field()
    min_version: int16 = field()
    max_version: int16 = field()


class SupportedFeatureKey(Struct):
    """A feature, and its range of supported levels."""

    name: str = field()
    min_version: int16 = field()
    max_version: int16 = field()


class FinalizedFeatureKey(Struct):
    """A feature, and its finalized range of levels."""

    name: str = field()
    # Unlike in the other ranges, the maximum comes first on the wire.
    max_version_level: int16 = field()
    min_version_level: int16 = field()


class ApiVersionsResponse(ApiMessage, api_key=ApiKey.API_VERSIONS, versions="0-4", flexible="3+"):
    """Supported APIs and features. An epoch of -1 means unknown finalized features."""

    error_code: int16 = field()
    api_keys: list[ApiVersion] = field()
    throttle_time_ms: int32 = field("1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = field("3+", tag=0, ignorable=True)
    finalized_features_epoch: int64 = field("3+", tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field("3+", tag=2, ignorable=True)
    # Only controllers of Kafka 3.4 to 3.9 set it, during the migration to KRaft (KIP-866).
    zk_migration_ready: bool = field("3+", tag=3, ignorable=True)
