"""FindCoordinator: groups have a coordinator, transactions do not, and clients do not retry."""

from __future__ import annotations

import errno

import pytest

from plog.errors import ErrorCode, error_from_code
from plog.wire.messages.find_coordinator import FindCoordinatorRequest
from plogd.coordinator.group.group_coordinator import OFFSETS_TOPIC
from tests.helpers.sim.several_brokers import add_brokers, live_broker, set_partition
from tests.helpers.sim.sim_broker import SimBroker, connection, create_topic

GROUP, TRANSACTION, SHARE = 0, 1, 2
REFUSED = {
    TRANSACTION: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    SHARE: ErrorCode.INVALID_REQUEST,
}


@pytest.fixture(scope="module")
def broker() -> SimBroker:
    return SimBroker(node_id=5).start()


@pytest.mark.parametrize("key_type", REFUSED)
def test_transactional_id_gets_an_error_that_clients_do_not_retry(key_type: int) -> None:
    assert not error_from_code(REFUSED[key_type]).retriable


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("key", ["g", "", "日本"])
def test_broker_is_the_coordinator_of_every_group(
    broker: SimBroker, version: int, key: str
) -> None:
    answer = broker.ask(FindCoordinatorRequest(key=key), version)
    assert (answer.error_code, answer.node_id) == (0, 5)
    assert (answer.host, answer.port) == ("192.0.2.1", 9092)
    assert answer.error_message == ("NONE" if version >= 1 else "")


@pytest.mark.parametrize("version", range(4, 7))
def test_repeated_groups_are_answered_once(broker: SimBroker, version: int) -> None:
    request = FindCoordinatorRequest(coordinator_keys=["a", "b", "a"])
    answer = broker.ask(request, version)
    actual = [(one.key, one.error_code, one.node_id, one.port) for one in answer.coordinators]
    assert actual == [("a", 0, 5, 9092), ("b", 0, 5, 9092)]
    assert {one.error_message for one in answer.coordinators} == {""}


def test_empty_list_of_groups_has_empty_response(broker: SimBroker) -> None:
    assert broker.ask(FindCoordinatorRequest(coordinator_keys=[]), 6).coordinators == []


def test_address_is_that_of_the_clients_listener(broker: SimBroker) -> None:
    by_another = connection(local_address=("198.51.100.7", 9999))
    answer = broker.ask(FindCoordinatorRequest(key="g"), 2, connection=by_another)
    assert (answer.host, answer.port) == ("198.51.100.7", 9999)


class TestSeveralBrokers:
    """The coordinator of a group is the leader of the group's partition."""

    def make(self, leader: int) -> SimBroker:
        broker = SimBroker(offsets_topic_num_partitions=1).start()
        broker.ask(FindCoordinatorRequest(key="g"), 2)  # Creates the topic.
        add_brokers(broker, live_broker(2, "PLAINTEXT"), live_broker(3, "INSIDE"))
        set_partition(broker, OFFSETS_TOPIC, leader=leader)
        return broker

    @pytest.mark.parametrize(("leader", "host"), [(1, "192.0.2.1"), (2, "b2")])
    def test_leader_is_the_coordinator(self, leader: int, host: str) -> None:
        broker = self.make(leader)
        answer = broker.ask(FindCoordinatorRequest(key="g"), 3)
        assert (answer.error_code, answer.node_id) == (0, leader)
        assert (answer.host, answer.port) == (host, 9092)
        [one] = broker.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 6).coordinators
        assert (one.error_code, one.node_id, one.host, one.port) == (0, leader, host, 9092)

    @pytest.mark.parametrize("leader", [-1, 3, 4], ids=["none", "other listener", "dead"])
    def test_group_without_a_reachable_leader_has_no_coordinator(self, leader: int) -> None:
        broker = self.make(leader)
        answer = broker.ask(FindCoordinatorRequest(key="g"), 3)
        nothing = (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1)
        assert (answer.error_code, answer.node_id, answer.host, answer.port) == nothing
        [one] = broker.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 6).coordinators
        assert (one.error_code, one.node_id, one.host, one.port) == nothing


@pytest.mark.parametrize("version", range(1, 4))
@pytest.mark.parametrize("key_type", REFUSED)
def test_single_key_of_another_type_is_refused(
    broker: SimBroker, version: int, key_type: int
) -> None:
    answer = broker.ask(FindCoordinatorRequest(key="k", key_type=key_type), version)
    assert (answer.error_code, answer.node_id, answer.host) == (REFUSED[key_type], -1, "")
    assert answer.error_message


@pytest.mark.parametrize("version", range(4, 7))
@pytest.mark.parametrize("key_type", REFUSED)
def test_several_keys_of_another_type_are_refused(
    broker: SimBroker, version: int, key_type: int
) -> None:
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["a", "b"])
    answer = broker.ask(request, version)
    actual = [(one.key, one.error_code, one.node_id) for one in answer.coordinators]
    assert actual == [("a", REFUSED[key_type], -1), ("b", REFUSED[key_type], -1)]
    assert all(one.error_message for one in answer.coordinators)


def test_first_request_creates_the_topic() -> None:
    broker = SimBroker(offsets_topic_num_partitions=7, offsets_topic_segment_bytes=1 << 20).start()
    assert broker.broker.cache.topic(OFFSETS_TOPIC) is None
    first = broker.begin(FindCoordinatorRequest(coordinator_keys=["a", "b"]), 4)
    second = broker.begin(FindCoordinatorRequest(key="c"), 2)
    broker.settle()
    assert [one.error_code for one in first.response().coordinators] == [0, 0]
    assert second.response().error_code == 0
    topic = broker.broker.cache.topic(OFFSETS_TOPIC)
    assert topic is not None and topic.is_internal
    assert len(topic.partitions) == 7
    assert {partition.replicas for partition in topic.partitions} == {(1,)}
    assert topic.config == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(1 << 20),
    }


def test_request_of_another_type_creates_no_topic() -> None:
    broker = SimBroker().start()
    broker.ask(FindCoordinatorRequest(key="k", key_type=TRANSACTION), 2)
    assert list(broker.broker.cache.topics()) == []


def test_failed_topic_creation_is_retriable() -> None:
    broker = SimBroker().start()
    broker.files.fail_when(lambda op: op.name == "mkdir", errno.ENOSPC)
    answer = broker.ask(FindCoordinatorRequest(key="g"), 2)
    assert (answer.error_code, answer.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    assert OFFSETS_TOPIC in answer.error_message
    broker.files.fail_no_more()
    assert broker.ask(FindCoordinatorRequest(key="g"), 2).error_code == 0


def test_slow_topic_creation_is_retriable() -> None:
    broker = SimBroker().start()
    asked = broker.begin(FindCoordinatorRequest(key="g"), 2)
    broker.ports.timers.advance(5_000)
    assert asked.response().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.settle()
    assert broker.ask(FindCoordinatorRequest(key="g"), 2).error_code == 0


def test_coordinator_with_failed_disk_is_not_available() -> None:
    broker = SimBroker(log_dirs=("/data", "/other")).start()
    create_topic(broker, "t")
    broker.ask(FindCoordinatorRequest(key="g"), 2)
    broker.broker.log_manager.storage_failed("/other", OSError(errno.EIO, "bad disk"))
    broker.settle()
    keys = [f"group-{number}" for number in range(40)]
    answer = broker.ask(FindCoordinatorRequest(coordinator_keys=keys), 4)
    actual = {one.error_code for one in answer.coordinators}
    assert actual == {0, ErrorCode.COORDINATOR_NOT_AVAILABLE}
