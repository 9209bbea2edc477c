"""The cluster as a whole: its brokers, the API versions they support, and feature levels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from plog.client.admin.base import AdminBase
from plog.client.admin.results import Results, outcome, raise_if_error
from plog.client.admin.routing import by_broker
from plog.client.admin.values import (
    BrokerDescription,
    ClusterDescription,
    VersionRange,
    operations_of,
)
from plog.client.network.bootstrap_controllers import BROKER_ENDPOINTS, CONTROLLER_ENDPOINTS
from plog.client.network.connection import api_versions_request
from plog.enums import UpgradeType
from plog.errors import ErrorCode, KafkaError, UnsupportedVersion
from plog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from plog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from plog.wire.messages.metadata import MetadataRequest, MetadataResponse
from plog.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from plog.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

# The first version of UpdateFeatures with upgrade types (KIP-778).
_FIRST_WITH_TYPES = 1
# The first version of ApiVersions that includes features with a minimum level of 0 (KAFKA-17011).
_FIRST_WITH_LEVEL_0 = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerApiVersions:
    """The API versions that a broker supports, by API key."""

    broker: BrokerDescription
    apis: Mapping[int, VersionRange]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureMetadata:
    """The feature levels that a broker supports, and the cluster's finalized levels."""

    supported: Mapping[str, VersionRange]
    finalized: Mapping[str, VersionRange]
    finalized_epoch: int | None
    """None if the broker does not know the finalized features."""


class FeatureUpdate(NamedTuple):
    """A new level for a feature; 0 disables the feature."""

    level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


class BrokerAdmin(AdminBase):
    """The operations on the cluster, its brokers and features."""

    async def describe_cluster(
        self, *, include_fenced: bool = False, include_authorized_operations: bool = False
    ) -> ClusterDescription:
        """Return the cluster and its brokers, optionally including fenced brokers (Kafka 4.0).

        In a KRaft cluster, `controller` is a random broker, which forwards requests to the active
        controller. With ``bootstrap.controllers``, the result lists controllers instead of brokers,
        and `controller` is the active controller.
        """
        asks_controllers = self._cluster.settings.uses_controllers
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=include_authorized_operations,
            endpoint_type=CONTROLLER_ENDPOINTS if asks_controllers else BROKER_ENDPOINTS,
            include_fenced_brokers=include_fenced,
        )
        try:
            response = await self._cluster.ask_any(request, DescribeClusterResponse)
        except UnsupportedVersion:
            # Metadata can describe neither fenced brokers nor controllers.
            if include_fenced or asks_controllers:
                raise
            return await self._describe_by_metadata(include_authorized_operations)
        raise_if_error(response.error_code, response.error_message, "the cluster")
        return described_cluster(response)

    async def _describe_by_metadata(self, include_operations: bool) -> ClusterDescription:
        """Describe the cluster with a Metadata request, for brokers before Kafka 2.8."""
        request = MetadataRequest(
            topics=[],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=include_operations,
        )
        return cluster_of_metadata(await self._cluster.ask_any(request, MetadataResponse))

    async def api_versions(
        self, brokers: Iterable[int] | None = None
    ) -> Results[int, BrokerApiVersions]:
        """Return the API versions that each broker supports."""

        async def ask(node_id: int) -> BrokerApiVersions:
            # Every connection starts with ApiVersions, so another request is not needed.
            versions = (await self._cluster.connection(node_id)).api_versions
            return BrokerApiVersions(broker=await self._broker(node_id), apis=served_apis(versions))

        return await by_broker(self._cluster, brokers, ask)

    async def describe_features(self, broker: int | None = None) -> FeatureMetadata:
        """Return the features as reported by `broker`, by default by any broker."""
        node_id = await self._some_broker() if broker is None else broker
        connection = await self._cluster.connection(node_id)
        versions = connection.api_versions
        # A connection starts with ApiVersions version 3, which omits features with a minimum level
        # of 0. Ask again if the broker supports a later version.
        if connection.version_of(ApiVersionsRequest) >= _FIRST_WITH_LEVEL_0:
            versions = await self._cluster.ask_node(
                node_id, api_versions_request(), ApiVersionsResponse
            )
            raise_if_error(versions.error_code, None, f"the API versions of broker {node_id}")
        return described_features(versions)

    async def update_features(
        self, updates: Mapping[str, FeatureUpdate], *, validate_only: bool = False
    ) -> Results[str, None]:
        """Change the levels of features. Errors: InvalidUpdateVersion, ..."""
        # The request has different fields in different versions.
        version = await self._version_at_controller(UpdateFeaturesRequest)
        request = update_features_request(
            updates,
            version=version,
            validate_only=validate_only,
            timeout_ms=self._request_timeout_ms,
        )
        response = await self._cluster.ask_controller(
            request,
            UpdateFeaturesResponse,
            # The controller may have moved since the last metadata refresh.
            retry_on=lambda answer: answer.error_code == ErrorCode.NOT_CONTROLLER,
        )
        return Results(updated_features(updates, response))

    async def unregister_broker(self, broker: int) -> None:
        """Remove a stopped broker's registration from an Apache Kafka cluster.

        Raises BrokerIdNotRegistered for an unknown broker, and UnsupportedVersion if the cluster
        runs plog.
        """
        response = await self._cluster.ask_controller(
            UnregisterBrokerRequest(broker_id=broker),
            UnregisterBrokerResponse,
            retry_on=lambda answer: answer.error_code == ErrorCode.NOT_CONTROLLER,
        )
        raise_if_error(response.error_code, response.error_message, f"broker {broker}")


def update_features_request(
    updates: Mapping[str, FeatureUpdate], *, version: int, validate_only: bool, timeout_ms: int
) -> UpdateFeaturesRequest:
    """Return the request to change feature levels.

    Raises UnsupportedVersion for `validate_only` before Kafka 3.3.
    """
    # KIP-778 replaced the `allow_downgrade` flag with an upgrade type.
    typed = version >= _FIRST_WITH_TYPES
    if validate_only and not typed:
        raise UnsupportedVersion(
            "cannot validate feature updates: the broker does not support validate_only"
        )
    return UpdateFeaturesRequest(
        timeout_ms=timeout_ms,
        feature_updates=[
            FeatureUpdateKey(
                feature=name,
                max_version_level=update.level,
                allow_downgrade=not typed and update.upgrade_type != UpgradeType.UPGRADE,
                # Version 0 does not have this field, and encoding fails unless it has its default
                # value.
                upgrade_type=update.upgrade_type if typed else UpgradeType.UPGRADE,
            )
            for name, update in updates.items()
        ],
        validate_only=validate_only,
    )


# -- responses --------------------------------------------------------------------------------


def described_cluster(response: DescribeClusterResponse) -> ClusterDescription:
    """Return the cluster in a DescribeCluster response."""
    return ClusterDescription(
        cluster_id=response.cluster_id,
        controller_id=None if response.controller_id < 0 else response.controller_id,
        brokers={
            broker.broker_id: BrokerDescription(
                id=broker.broker_id,
                host=broker.host,
                port=broker.port,
                rack=broker.rack,
                is_fenced=broker.is_fenced,
            )
            # Brokers return the list in arbitrary order; tools should print the same list each
            # time.
            for broker in sorted(response.brokers, key=lambda broker: broker.broker_id)
        },
        authorized_operations=operations_of(response.cluster_authorized_operations),
    )


def cluster_of_metadata(response: MetadataResponse) -> ClusterDescription:
    """Return the cluster in a Metadata response."""
    return ClusterDescription(
        cluster_id=response.cluster_id or "",
        controller_id=None if response.controller_id < 0 else response.controller_id,
        brokers={
            broker.node_id: BrokerDescription(
                id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
            )
            for broker in sorted(response.brokers, key=lambda broker: broker.node_id)
        },
        authorized_operations=operations_of(response.cluster_authorized_operations),
    )


def served_apis(response: ApiVersionsResponse) -> dict[int, VersionRange]:
    """Return the API versions that a broker supports, by API key."""
    return {
        api.api_key: VersionRange(api.min_version, api.max_version)
        for api in sorted(response.api_keys, key=lambda api: api.api_key)
    }


def described_features(response: ApiVersionsResponse) -> FeatureMetadata:
    """Return the features in an ApiVersions response."""
    epoch = response.finalized_features_epoch
    return FeatureMetadata(
        supported={
            feature.name: VersionRange(feature.min_version, feature.max_version)
            for feature in sorted(response.supported_features, key=lambda feature: feature.name)
        },
        finalized={
            feature.name: VersionRange(feature.min_version_level, feature.max_version_level)
            for feature in sorted(response.finalized_features, key=lambda feature: feature.name)
        },
        finalized_epoch=None if epoch < 0 else epoch,
    )


def updated_features(
    updates: Iterable[str], response: UpdateFeaturesResponse
) -> dict[str, KafkaError | None]:
    """Return the outcome for each feature."""
    # From version 2 on, a response contains only one error, which applies to all features.
    whole = outcome(response.error_code, response.error_message, "the features", None)
    by_feature = {
        result.feature: outcome(
            result.error_code, result.error_message, f"feature {result.feature}", None
        )
        for result in response.results
    }
    return {name: whole if whole is not None else by_feature.get(name) for name in updates}
