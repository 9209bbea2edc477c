"""UpdateFeatures: requests and responses as frames."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.api_versions import ApiVersionsRequest
from plog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.helpers.sim.sim_broker import SimBroker


def make() -> SimBroker:
    return SimBroker().start()


def ask(broker: SimBroker, version: int, *updates: tuple[str, int], **fields: Any) -> Any:
    keys = [FeatureUpdateKey(feature=name, max_version_level=level) for name, level in updates]
    return broker.ask(UpdateFeaturesRequest(feature_updates=keys, **fields), version)


def described_features(broker: SimBroker) -> Any:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    answer = broker.ask(request, 4)
    return answer.finalized_features, answer.finalized_features_epoch


@pytest.mark.parametrize("version", range(3))
def test_current_level_is_accepted_in_every_version(version: int) -> None:
    broker = make()
    before = described_features(broker)
    answer = ask(broker, version, ("metadata.version", 11))
    assert (answer.error_code, answer.error_message) == (0, None)
    actual = [(one.feature, one.error_code, one.error_message) for one in answer.results]
    assert actual == ([("metadata.version", 0, None)] if version < 2 else [])
    assert described_features(broker) == before


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    ("feature", "level"),
    [("metadata.version", 12), ("metadata.version", 0), ("transaction.version", 2), ("", 0)],
)
def test_other_level_is_refused_and_nothing_changes(version: int, feature: str, level: int) -> None:
    broker = make()
    before = described_features(broker)
    answer = ask(broker, version, (feature, level))
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert answer.error_message.startswith("no feature was changed: ")
    assert answer.results == []
    assert described_features(broker) == before


def test_one_refused_update_refuses_all() -> None:
    answer = ask(make(), 1, ("metadata.version", 11), ("group.version", 1))
    assert (answer.error_code, answer.results) == (ErrorCode.INVALID_UPDATE_VERSION, [])


def test_feature_named_twice_is_refused() -> None:
    answer = ask(make(), 1, ("metadata.version", 11), ("metadata.version", 8))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "metadata.version" in answer.error_message


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("level", "code"), [(11, 0), (12, ErrorCode.INVALID_UPDATE_VERSION)])
def test_validate_only_gets_the_same_response(version: int, level: int, code: int) -> None:
    answer = ask(make(), version, ("metadata.version", level), validate_only=True)
    assert answer.error_code == code


def test_downgrade_types_are_distinguished() -> None:
    broker = make()
    old = FeatureUpdateKey(feature="metadata.version", max_version_level=6, allow_downgrade=True)
    answer = broker.ask(UpdateFeaturesRequest(feature_updates=[old]), 0)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "supports levels 11 to 11" in answer.error_message
    odd = FeatureUpdateKey(feature="metadata.version", max_version_level=7, upgrade_type=9)
    answer = broker.ask(UpdateFeaturesRequest(feature_updates=[odd]), 1)
    assert "unknown upgrade type 9" in answer.error_message


def test_empty_request_succeeds() -> None:
    assert ask(make(), 2).error_code == 0
