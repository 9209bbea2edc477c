"""Requests of clients to a broker that is not the controller."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.types import ZERO_UUID
from plog.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from plog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from plog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from plog.wire.messages.delete_topics import DeleteTopicsRequest
from plog.wire.messages.elect_leaders import ElectLeadersRequest
from plog.wire.messages.find_coordinator import FindCoordinatorRequest
from plog.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from plog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from plog.wire.messages.update_features import UpdateFeaturesRequest
from tests.helpers.sim.sim_broker import SimBroker, create_topic

CREATION = CreatableTopic(name="u", num_partitions=1, replication_factor=1)
EXPANSION = CreatePartitionsTopic(name="t", count=5)
REQUESTS: list[tuple[Any, int]] = [
    (CreateTopicsRequest(topics=[CREATION], timeout_ms=1000), 7),
    (CreateTopicsRequest(topics=[CREATION], timeout_ms=1000, validate_only=True), 7),
    (CreatePartitionsRequest(topics=[EXPANSION], timeout_ms=1000), 3),
    (CreatePartitionsRequest(topics=[EXPANSION], timeout_ms=1000, validate_only=True), 3),
    (DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5),
    (ElectLeadersRequest(topic_partitions=None), 2),
    (AlterPartitionReassignmentsRequest(), 0),
    (ListPartitionReassignmentsRequest(), 0),
    (UpdateFeaturesRequest(), 1),
]


def inactive() -> SimBroker:
    """Return a broker with a topic that is not the controller any more."""
    broker = SimBroker().start()
    create_topic(broker, "t")
    broker.broker.controller.stop()
    return broker


def codes(response: Any) -> set[int]:
    """Return the error codes in a response, at the top level or of each topic."""
    for name in ("topics", "results", "responses"):
        elements = getattr(response, name, None)
        if elements:
            return {one.error_code for one in elements}
    return {int(response.error_code)}


@pytest.mark.parametrize(("request_", "version"), REQUESTS, ids=lambda x: type(x).__name__)
def test_requests_for_the_controller_get_not_controller(request_: Any, version: int) -> None:
    broker = inactive()
    assert codes(broker.ask(request_, version)) == {ErrorCode.NOT_CONTROLLER}
    # Nothing has changed.
    [topic] = broker.broker.cache.topics()
    assert (topic.name, len(topic.partitions)) == ("t", 1)


def test_client_retries_a_metadata_request_for_a_missing_topic() -> None:
    broker = inactive()
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="missing", topic_id=ZERO_UUID)],
        allow_auto_topic_creation=True,
    )
    [topic] = broker.ask(request, 12).topics
    assert topic.error_code == ErrorCode.LEADER_NOT_AVAILABLE


def test_client_retries_when_its_coordinator_has_no_topic() -> None:
    broker = inactive()
    [found] = broker.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators
    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_creation_in_progress_gets_an_error_that_clients_retry() -> None:
    broker = SimBroker().start()
    creation = broker.begin(CreateTopicsRequest(topics=[CREATION], timeout_ms=60_000), 7)
    metadata = broker.begin(MetadataRequest(topics=[MetadataRequestTopic(name="auto")]), 9)
    broker.broker.controller.stop()
    [created] = creation.response().topics
    assert created.error_code == ErrorCode.NOT_CONTROLLER
    [topic] = metadata.response().topics
    assert topic.error_code == ErrorCode.LEADER_NOT_AVAILABLE


def test_gauge_shows_whether_the_broker_is_the_controller() -> None:
    broker = SimBroker().start()
    name = "kafka_controller_kafkacontroller_activecontrollercount"
    assert f"{name} 1" in broker.metrics.expose().decode().splitlines()
    broker.broker.controller.stop()
    assert f"{name} 0" in broker.metrics.expose().decode().splitlines()
