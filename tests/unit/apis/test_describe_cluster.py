"""DescribeCluster: requests and responses as frames."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.describe_cluster import NO_OPERATIONS, DescribeClusterRequest
from plog.wire.messages.metadata import MetadataRequest
from tests.helpers.sim.several_brokers import add_brokers, live_broker
from tests.helpers.sim.sim_broker import SimBroker, connection


def make(**settings: Any) -> SimBroker:
    return SimBroker(**settings).start()


@pytest.mark.parametrize("version", range(3))
def test_broker_is_the_controller_in_every_version(version: int) -> None:
    broker = make(node_id=7)
    answer = broker.ask(DescribeClusterRequest(), version)
    assert (answer.error_code, answer.error_message, answer.endpoint_type) == (0, None, 1)
    assert (answer.cluster_id, answer.controller_id) == (broker.broker.cluster_id, 7)
    [node] = answer.brokers
    assert (node.broker_id, node.host, node.port) == (7, "192.0.2.1", 9092)
    assert (node.rack, node.is_fenced) == (None, False)


def test_brokers_with_the_listener_are_listed() -> None:
    broker = make(broker_rack="r1")
    inside = live_broker(3, "INSIDE", rack="r3")
    add_brokers(broker, live_broker(2, "PLAINTEXT", "INSIDE"), inside, controller_id=3)
    answer = broker.ask(DescribeClusterRequest(), 2)
    nodes = [(node.broker_id, node.host, node.port, node.rack) for node in answer.brokers]
    assert nodes == [(1, "192.0.2.1", 9092, "r1"), (2, "b2", 9092, None)]
    assert answer.controller_id == 3
    answer = broker.ask(DescribeClusterRequest(), 2, connection=connection("INSIDE"))
    nodes = [(node.broker_id, node.host, node.port, node.rack) for node in answer.brokers]
    assert nodes[1:] == [(2, "b2", 9093, None), (3, "b3", 9092, "r3")]


@pytest.mark.parametrize(
    "advertised", [None, ("PLAINTEXT://plog.example:1234",)], ids=["as-connected", "advertised"]
)
def test_address_is_the_same_as_in_metadata(advertised: tuple[str, ...] | None) -> None:
    broker = make(advertised_listeners=advertised)
    came_by = connection(local_address=("198.51.100.5", 19092))
    [described] = broker.ask(DescribeClusterRequest(), 2, connection=came_by).brokers
    [known] = broker.ask(MetadataRequest(topics=[]), 12, connection=came_by).brokers
    assert (described.host, described.port) == (known.host, known.port)
    assert described.host == ("plog.example" if advertised else "198.51.100.5")


def test_authorized_operations_are_included_on_request() -> None:
    broker = make()
    assert broker.ask(DescribeClusterRequest(), 2).cluster_authorized_operations == NO_OPERATIONS
    asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
    operations = broker.ask(asked, 2).cluster_authorized_operations
    metadata = MetadataRequest(topics=[], include_cluster_authorized_operations=True)
    assert operations == broker.ask(metadata, 10).cluster_authorized_operations > 0


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_other_endpoint_types_are_refused(version: int, endpoint_type: int, code: int) -> None:
    answer = make().ask(DescribeClusterRequest(endpoint_type=endpoint_type), version)
    assert (answer.error_code, answer.brokers, answer.controller_id) == (code, [], -1)
    assert answer.error_message


def test_including_fenced_brokers_changes_nothing() -> None:
    broker = make()
    asked = DescribeClusterRequest(include_fenced_brokers=True)
    assert broker.ask(asked, 2) == broker.ask(DescribeClusterRequest(), 2)
