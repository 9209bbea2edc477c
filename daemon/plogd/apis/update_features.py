"""UpdateFeatures (key 57): change the levels of cluster features, either all or none of them.

Serves versions 0-2.

  1 validate only, downgrade types (KIP-778)      2 no results per feature (KIP-1022)

features.py accepts only the current levels. An accepted update therefore has no effect, so a
validate-only request gets the same response.
"""

from __future__ import annotations

from collections import Counter

from plog.enums import UpgradeType
from plog.errors import InvalidRequest, InvalidUpdateVersion
from plog.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from plogd.apis.error_responses import refuse_at_top_level
from plogd.apis.request_context import RequestContext
from plogd.broker import Broker
from plogd.features import check_update

_FIRST_VERSION_WITH_TYPES = 1  # KIP-778.
_MAX_UPDATES = 100
"""Maximum number of features in one request: several times the number of features in Kafka."""
_LAST_VERSION_WITH_RESULTS = 1  # KIP-1022.


def handle_update_features(
    request: UpdateFeaturesRequest, context: RequestContext, broker: Broker
) -> UpdateFeaturesResponse:
    """Accept the current levels; reject the whole request if it contains a different level."""
    broker.controller.check_active()
    if len(request.feature_updates) > _MAX_UPDATES:
        raise InvalidRequest(f"the request updates more than {_MAX_UPDATES} features")
    # Two updates of a feature could contradict each other, and the update must be atomic.
    counts = Counter(update.feature for update in request.feature_updates)
    repeated = sorted(feature for feature, count in counts.items() if count > 1)
    if repeated:
        raise InvalidRequest(f"cannot update features listed more than once: {', '.join(repeated)}")
    for update in request.feature_updates:
        try:
            check_update(
                update.feature,
                update.max_version_level,
                _upgrade_type(update, context),
                broker.embedded_store.features,
            )
        except InvalidUpdateVersion as error:
            raise InvalidUpdateVersion(f"no feature was changed: {error.message}") from error
    response = UpdateFeaturesResponse(error_message=None)
    if context.version <= _LAST_VERSION_WITH_RESULTS:
        response.results = [
            UpdatableFeatureResult(feature=update.feature, error_message=None)
            for update in request.feature_updates
        ]
    return response


def _upgrade_type(update: FeatureUpdateKey, context: RequestContext) -> int:
    if context.version >= _FIRST_VERSION_WITH_TYPES:
        return update.upgrade_type
    # Version 0 has a flag instead of a type, and does not distinguish unsafe downgrades.
    return UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE


refuse_update_features = refuse_at_top_level(UpdateFeaturesResponse)
