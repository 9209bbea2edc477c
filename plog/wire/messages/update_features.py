"""UpdateFeatures (key 57): change the levels of the cluster's features (KIP-584).

Changes by version:

  1  validate only, types of downgrade (KIP-778)
  2  results by feature removed (KIP-1022)
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int8, int16, int32


class FeatureUpdateKey(Struct):
    """A feature and its new level; types: 1 upgrade, 2 safe downgrade, 3 unsafe downgrade."""

    feature: str = field()
    max_version_level: int16 = field()
    # Replaced by the upgrade type, which also distinguishes safe from unsafe downgrades (KIP-778).
    allow_downgrade: bool = field("0")
    upgrade_type: int8 = field("1+", default=1)


class UpdateFeaturesRequest(
    ApiMessage, api_key=ApiKey.UPDATE_FEATURES, versions="0-2", flexible="0+"
):
    """Features to change atomically, or only to validate."""

    timeout_ms: int32 = field(default=60000)
    feature_updates: list[FeatureUpdateKey] = field()
    validate_only: bool = field("1+")


class UpdatableFeatureResult(Struct):
    """The result for one feature."""

    feature: str = field()
    error_code: int16 = field()
    error_message: str | None = field()


class UpdateFeaturesResponse(
    ApiMessage, api_key=ApiKey.UPDATE_FEATURES, versions="0-2", flexible="0+"
):
    """The result: either all features were changed, or none."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field()
    results: list[UpdatableFeatureResult] = field("0-1", ignorable=True)
