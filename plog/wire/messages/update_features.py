"""UpdateFeatures (key 57): other levels for the cluster's features (KIP-584).

1  validate only, kinds of downgrade (KIP-778)
2  no more results by feature (KIP-1022)
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int8, int16, int32


class FeatureUpdateKey(Struct):
    """A feature and the level it is to have; kinds: 1 upgrade, 2 safe, 3 unsafe downgrade."""

    feature: str = field()
    max_version_level: int16 = field()
    allow_downgrade: bool = field("0")
    upgrade_type: int8 = field("1+", default=1)


class UpdateFeaturesRequest(
    ApiMessage, api_key=ApiKey.UPDATE_FEATURES, versions="0-2", flexible="0+"
):
    """Features to change, or only to check; all or none."""

    timeout_ms: int32 = field(default=60000)
    feature_updates: list[FeatureUpdateKey] = field()
    validate_only: bool = field("1+")


class UpdatableFeatureResult(Struct):
    """What became of a feature."""

    feature: str = field()
    error_code: int16 = field()
    error_message: str | None = field()


class UpdateFeaturesResponse(
    ApiMessage, api_key=ApiKey.UPDATE_FEATURES, versions="0-2", flexible="0+"
):
    """Whether all was changed, or why nothing was."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field()
    results: list[UpdatableFeatureResult] = field("0-1", ignorable=True)
