"""The cluster as a whole: its brokers, what they speak, and the levels of its features."""

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

_FIRST_WITH_FENCED = 2
_FIRST_WITH_TYPES = 1
_FIRST_WITH_LEVEL_0 = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerApiVersions:
    """What a broker speaks: the versions it serves, by the number of the API."""

    broker: BrokerDescription
    apis: Mapping[int, VersionRange]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureMetadata:
    """Features a broker could run at some levels, and those the cluster runs at one."""

    supported: Mapping[str, VersionRange]
    finalized: Mapping[str, VersionRange]
    finalized_epoch: int | None
    """None if the broker does not know which are finalized."""


class FeatureUpdate(NamedTuple):
    """The level a feature is to have; 0 ends it."""

    level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


class BrokerAdmin(AdminBase):
    """See the module's text."""

    async def describe_cluster(
        self, *, include_fenced: bool = False, include_authorized_operations: bool = False
    ) -> ClusterDescription:
        """The cluster and its brokers, also the fenced ones where the broker (Kafka 4.0) can tell.

        The controller of a KRaft cluster is not told: it is some broker, which hands on. A client
        of controllers is told of those instead, and which of them is active.
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
            if include_fenced or asks_controllers:
                raise
            return await self._describe_by_metadata(include_authorized_operations)
        raise_if_error(response.error_code, response.error_message, "the cluster")
        return described_cluster(response)

    async def _describe_by_metadata(self, include_operations: bool) -> ClusterDescription:
        """As before Kafka 2.8."""
        request = MetadataRequest(
            topics=[],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=include_operations,
        )
        return cluster_of_metadata(await self._cluster.ask_any(request, MetadataResponse))

    async def api_versions(
        self, brokers: Iterable[int] | None = None
    ) -> Results[int, BrokerApiVersions]:
        """What each broker speaks."""

        async def ask(node_id: int) -> BrokerApiVersions:
            versions = (await self._cluster.connection(node_id)).api_versions
            return BrokerApiVersions(broker=await self._broker(node_id), apis=served_apis(versions))

        return await by_broker(self._cluster, brokers, ask)

    async def describe_features(self, broker: int | None = None) -> FeatureMetadata:
        """The features, as some broker or `broker` knows them."""
        node_id = await self._some_broker() if broker is None else broker
        connection = await self._cluster.connection(node_id)
        versions = connection.api_versions
        # Connections begin with an earlier one, which leaves out features that may be at level 0.
        if connection.version_of(ApiVersionsRequest) >= _FIRST_WITH_LEVEL_0:
            versions = await self._cluster.ask_node(
                node_id, api_versions_request(), ApiVersionsResponse
            )
            raise_if_error(versions.error_code, None, f"what broker {node_id} speaks")
        return described_features(versions)

    async def update_features(
        self, updates: Mapping[str, FeatureUpdate], *, validate_only: bool = False
    ) -> Results[str, None]:
        """Give features other levels. Errors: InvalidUpdateVersion, ..."""
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
            retry_on=lambda answer: answer.error_code == ErrorCode.NOT_CONTROLLER,
        )
        return Results(updated_features(updates, response))

    async def unregister_broker(self, broker: int) -> None:
        """Let an Apache Kafka cluster forget a broker that has stopped and will not come back.

        Raises BrokerIdNotRegistered for one there is not, UnsupportedVersion at a plog broker.
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
    """The request for other levels. Raises UnsupportedVersion for a trial before Kafka 3.3."""
    typed = version >= _FIRST_WITH_TYPES
    if validate_only and not typed:
        raise UnsupportedVersion("this broker cannot check an update without making it")
    return UpdateFeaturesRequest(
        timeout_ms=timeout_ms,
        feature_updates=[
            FeatureUpdateKey(
                feature=name,
                max_version_level=update.level,
                allow_downgrade=not typed and update.upgrade_type != UpgradeType.UPGRADE,
                upgrade_type=update.upgrade_type if typed else UpgradeType.UPGRADE,
            )
            for name, update in updates.items()
        ],
        validate_only=validate_only,
    )


# -- responses --------------------------------------------------------------------------------


def described_cluster(response: DescribeClusterResponse) -> ClusterDescription:
    """The cluster as DescribeCluster tells it."""
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
            for broker in sorted(response.brokers, key=lambda broker: broker.broker_id)
        },
        authorized_operations=operations_of(response.cluster_authorized_operations),
    )


def cluster_of_metadata(response: MetadataResponse) -> ClusterDescription:
    """The cluster as Metadata tells it."""
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
    """The versions a broker serves, by the number of the API."""
    return {
        api.api_key: VersionRange(api.min_version, api.max_version)
        for api in sorted(response.api_keys, key=lambda api: api.api_key)
    }


def described_features(response: ApiVersionsResponse) -> FeatureMetadata:
    """The features a broker tells of."""
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
    """What became of each feature: all have one fate where the answer tells no more."""
    whole = outcome(response.error_code, response.error_message, "the features", None)
    told = {
        result.feature: outcome(
            result.error_code, result.error_message, f"feature {result.feature}", None
        )
        for result in response.results
    }
    return {name: whole if whole is not None else told.get(name) for name in updates}
