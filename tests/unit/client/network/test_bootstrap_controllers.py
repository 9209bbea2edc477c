"""Clients that bootstrap from the controllers of an Apache Kafka cluster."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import ExitStack
from typing import Any, TypeVar

import pytest

from plog.client.admin.brokers import BrokerAdmin, FeatureUpdate
from plog.client.network.bootstrap_controllers import CONTROLLER_ENDPOINTS, as_metadata
from plog.client.network.cluster import Cluster
from plog.client.network.socket_network import SocketNetwork, run_blocking
from plog.client.settings import AdminSettings, ConfigError
from plog.errors import MismatchedEndpointType, UnsupportedVersion
from plog.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from plog.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from plog.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from plog.wire.schema import ApiMessage
from tests.unit.client.scripted_broker import ScriptedBroker, Step, serve_versions

T = TypeVar("T")


class Quorum:
    """Two controllers: the first is inactive, the active one follows a script."""

    def __init__(self, stack: ExitStack, *steps: Step, at_first: Step | None = None) -> None:
        self.active = stack.enter_context(ScriptedBroker([serve_versions(), *steps]))
        first = [serve_versions(), at_first or self.describe]
        self.first = stack.enter_context(ScriptedBroker(first))
        self.cluster = Cluster(
            SocketNetwork(client_id="test"),
            AdminSettings.from_options(bootstrap_controllers=f"127.0.0.1:{self.first.port}"),
        )
        self.admin = BrokerAdmin(self.cluster)

    def describe(self, request: ApiMessage) -> ApiMessage:
        """Return the controllers; during an election none is active."""
        assert isinstance(request, DescribeClusterRequest)
        assert request.endpoint_type == CONTROLLER_ENDPOINTS
        ports = {3000: self.first.port, 3001: self.active.port}
        return DescribeClusterResponse(
            endpoint_type=CONTROLLER_ENDPOINTS,
            cluster_id="c",
            controller_id=3001,
            brokers=[
                DescribeClusterBroker(broker_id=node_id, host="127.0.0.1", port=port)
                for node_id, port in ports.items()
            ],
        )

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine`, return its result and close the connections."""

        async def closing() -> T:
            try:
                return await coroutine
            finally:
                await self.cluster.close()

        return run_blocking(closing())


@pytest.fixture
def stack() -> Any:
    """Yield an ExitStack that is closed at the end of the test."""
    with ExitStack() as stack:
        yield stack


def test_describe_cluster_returns_the_controllers(stack: ExitStack) -> None:
    quorum = Quorum(stack)
    quorum.active._steps = [serve_versions(), quorum.describe]
    cluster = quorum.run(quorum.admin.describe_cluster())
    assert list(cluster.brokers) == [3000, 3001]
    assert cluster.controller_id == 3001


def test_changes_go_to_the_active_controller(stack: ExitStack) -> None:
    asked: list[ApiMessage] = []

    def step(answer: ApiMessage) -> Step:
        return lambda request: asked.append(request) or answer  # type: ignore[func-returns-value]

    quorum = Quorum(stack, step(UpdateFeaturesResponse()), step(UnregisterBrokerResponse()))

    async def change() -> None:
        updated = await quorum.admin.update_features({"group.version": FeatureUpdate(1)})
        updated.raise_first()
        await quorum.admin.unregister_broker(7)

    quorum.run(change())
    features, unregistered = asked
    assert isinstance(features, UpdateFeaturesRequest)
    assert unregistered == UnregisterBrokerRequest(broker_id=7)


def test_broker_is_refused_as_bootstrap_controller(stack: ExitStack) -> None:
    refusal = DescribeClusterResponse(error_code=114, error_message="this is a broker")
    with pytest.raises(MismatchedEndpointType, match="this is a broker"):
        as_metadata(refusal)
    # An earlier version of the request cannot request controllers, and returns brokers.
    with pytest.raises(UnsupportedVersion, match=r"older than Kafka 3\.7"):
        as_metadata(DescribeClusterResponse())


def test_bootstrap_servers_and_controllers_exclude_each_other() -> None:
    with pytest.raises(
        ConfigError, match=r"bootstrap.controllers=a:1: conflicts with bootstrap.servers"
    ):
        AdminSettings.from_options(bootstrap_servers="a:1", bootstrap_controllers="a:1")
    with pytest.raises(ConfigError, match="does not have the form host:port"):
        AdminSettings.from_options(bootstrap_controllers="a:b")
    with pytest.raises(ConfigError, match=r"bootstrap.servers is not set"):
        AdminSettings.from_options(bootstrap_controllers="")
    settings = AdminSettings.from_options(bootstrap_controllers="a:1,b:2")
    assert [each.host for each in settings.bootstrap_addresses()] == ["a", "b"]
