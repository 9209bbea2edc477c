"""BrokerAdmin: conversion of requests and responses, and operations on a broker."""

from __future__ import annotations

import pytest

from plog.client.admin.brokers import (
    BrokerAdmin,
    FeatureUpdate,
    described_cluster,
    described_features,
    served_apis,
    update_features_request,
    updated_features,
)
from plog.client.admin.values import BrokerDescription, VersionRange
from plog.client.network.socket_network import run_blocking
from plog.enums import AclOperation, UpgradeType
from plog.errors import ErrorCode, InvalidUpdateVersion, UnsupportedVersion
from plog.wire.api_keys import ApiKey
from plog.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from plog.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from plog.wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from plog.wire.messages.update_features import UpdatableFeatureResult, UpdateFeaturesResponse
from plog.wire.schema import ApiMessage
from plogd.apis.api_table import HANDLERS
from tests.helpers.client.fake_cluster import FakeCluster
from tests.unit.client.admin.conftest import Site

# -- pure -------------------------------------------------------------------------------------


def test_brokers_are_in_order_of_their_ids() -> None:
    response = DescribeClusterResponse(
        cluster_id="c",
        controller_id=2,
        brokers=[
            DescribeClusterBroker(broker_id=2, host="b", port=9092, rack="r"),
            DescribeClusterBroker(broker_id=1, host="a", port=9093, is_fenced=True),
        ],
    )
    cluster = described_cluster(response)
    assert list(cluster.brokers) == [1, 2]
    assert cluster.brokers[1].is_fenced
    assert cluster.controller == BrokerDescription(id=2, host="b", port=9092, rack="r")
    assert str(cluster.controller) == "b:9092 (id: 2 rack: r)"
    assert cluster.authorized_operations is None
    response.controller_id = -1
    assert described_cluster(response).controller is None


def test_old_broker_describes_the_cluster_with_metadata() -> None:
    cluster = FakeCluster()

    def answer(node_id: int, request: ApiMessage) -> ApiMessage:
        if isinstance(request, DescribeClusterRequest):
            raise UnsupportedVersion("unknown API")
        return MetadataResponse(
            cluster_id="c",
            controller_id=1,
            brokers=[MetadataResponseBroker(node_id=1, host="a", port=9092)],
        )

    cluster.answer = answer
    admin = BrokerAdmin(cluster.as_cluster())
    described = run_blocking(admin.describe_cluster())
    assert (described.cluster_id, described.controller) == (
        "c",
        BrokerDescription(id=1, host="a", port=9092),
    )
    with pytest.raises(UnsupportedVersion):
        run_blocking(admin.describe_cluster(include_fenced=True))


def test_api_versions_and_features_are_decoded() -> None:
    response = ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=3, min_version=0, max_version=13),
            ApiVersion(api_key=0, min_version=3, max_version=12),
        ],
        supported_features=[SupportedFeatureKey(name="f", min_version=1, max_version=4)],
        finalized_features_epoch=9,
        finalized_features=[
            FinalizedFeatureKey(name="f", min_version_level=1, max_version_level=3)
        ],
    )
    assert list(served_apis(response).items()) == [
        (0, VersionRange(3, 12)),
        (3, VersionRange(0, 13)),
    ]
    features = described_features(response)
    assert features.supported == {"f": VersionRange(1, 4)}
    assert features.finalized == {"f": VersionRange(1, 3)}
    assert features.finalized_epoch == 9
    assert described_features(ApiVersionsResponse()).finalized_epoch is None


def test_downgrade_is_encoded_for_the_request_version() -> None:
    updates = {"f": FeatureUpdate(2, UpgradeType.SAFE_DOWNGRADE), "g": FeatureUpdate(3)}
    new = update_features_request(updates, version=1, validate_only=True, timeout_ms=5)
    assert [(x.feature, x.max_version_level, x.upgrade_type) for x in new.feature_updates] == [
        ("f", 2, 2),
        ("g", 3, 1),
    ]
    assert new.encode(1)
    old = update_features_request(updates, version=0, validate_only=False, timeout_ms=5)
    assert [x.allow_downgrade for x in old.feature_updates] == [True, False]
    assert old.encode(0)
    with pytest.raises(UnsupportedVersion, match="does not support validate_only"):
        update_features_request(updates, version=0, validate_only=True, timeout_ms=5)


def test_features_have_a_common_or_individual_outcome() -> None:
    whole = UpdateFeaturesResponse(error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message="no")
    assert {str(error) for error in updated_features(["f", "g"], whole).values()} == {"no"}
    own = UpdateFeaturesResponse(
        results=[
            UpdatableFeatureResult(feature="f"),
            UpdatableFeatureResult(feature="g", error_code=ErrorCode.INVALID_UPDATE_VERSION),
        ]
    )
    expected = updated_features(["f", "g"], own)
    assert expected["f"] is None
    assert isinstance(expected["g"], InvalidUpdateVersion)
    assert updated_features(["f"], UpdateFeaturesResponse()) == {"f": None}


@pytest.mark.parametrize(
    ("served", "expected"), [(3, {}), (4, {"share.version": VersionRange(0, 1)})]
)
def test_describe_features_includes_level_0_where_supported(
    served: int, expected: dict[str, VersionRange]
) -> None:
    cluster = FakeCluster(versions={ApiVersionsRequest: served})
    feature = SupportedFeatureKey(name="share.version", min_version=0, max_version=1)
    cluster.answer = lambda node_id, request: ApiVersionsResponse(supported_features=[feature])
    admin = BrokerAdmin(cluster.as_cluster())
    assert run_blocking(admin.describe_features(1)).supported == expected
    asked = [request.client_software_name for _, request in cluster.asked]
    assert asked == (["plog"] if expected else [])


# -- at a broker ------------------------------------------------------------------------------


def test_describe_cluster_returns_the_brokers(site: Site) -> None:
    broker = site.sim.broker
    cluster = site.run(site.admin.describe_cluster(include_fenced=True))
    assert cluster.cluster_id == broker.broker.cluster_id
    assert list(cluster.brokers) == [broker.config.node_id]
    assert cluster.controller is cluster.brokers[broker.config.node_id]
    assert cluster.authorized_operations is None
    allowed = site.run(site.admin.describe_cluster(include_authorized_operations=True))
    assert allowed.authorized_operations is not None
    assert AclOperation.ALTER in allowed.authorized_operations


def test_api_versions_returns_the_versions_of_each_broker(site: Site) -> None:
    [versions] = site.run(site.admin.api_versions()).raise_first().values()
    assert versions.broker.id == site.sim.broker.config.node_id
    assert set(versions.apis) == {row.api_key for row in HANDLERS}
    assert versions.apis[ApiKey.METADATA] == VersionRange(0, 13)


def test_unsupported_feature_level_is_refused_and_changes_nothing(site: Site) -> None:
    features = site.run(site.admin.describe_features())
    assert features.finalized
    name, levels = next(iter(features.finalized.items()))
    same = {name: FeatureUpdate(levels.highest)}
    assert site.run(site.admin.update_features(same)) == {name: None}
    with pytest.raises(InvalidUpdateVersion):
        site.run(site.admin.update_features({name: FeatureUpdate(99)})).get(name)
    assert site.run(site.admin.describe_features()).finalized == features.finalized
