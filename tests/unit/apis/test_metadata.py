"""Metadata: requests and responses as frames."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.types import ZERO_UUID, TopicPartition
from plog.wire.messages.delete_topics import DeleteTopicsRequest
from plog.wire.messages.list_offsets import ListOffsetsRequest
from plog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from plog.wire.schema import ApiMessage
from tests.helpers.sim.several_brokers import add_brokers, live_broker, set_partition
from tests.helpers.sim.sim_broker import LOG_DIR, SimBroker, connection, create_topic


def make(**settings: Any) -> SimBroker:
    broker = SimBroker(**settings).start()
    create_topic(broker, "t", 2)
    return broker


def named(*names: str, **fields: Any) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **fields)


def by_id(*topic_ids: bytes) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in topic_ids]
    )


@pytest.mark.parametrize("version", range(14))
def test_topic_is_described_in_every_version(version: int) -> None:
    broker = make()
    answer = broker.ask(named("t"), version)
    [node] = answer.brokers
    assert (node.node_id, node.host, node.port, node.rack) == (1, "192.0.2.1", 9092, None)
    assert answer.cluster_id == (None if version < 2 else broker.broker.cluster_id)
    assert answer.controller_id == (-1 if version < 1 else 1)
    [topic] = answer.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, "t", False)
    assert (topic.topic_id == ZERO_UUID) == (version < 10)
    actual = [
        (p.error_code, p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes)
        for p in topic.partitions
    ]
    assert actual == [(0, 0, 1, [1], [1]), (0, 1, 1, [1], [1])]


class TestRequestedTopics:
    """Requests for all, no or some topics, by name or by id."""

    @pytest.mark.parametrize(
        ("version", "topics", "expected"),
        [(0, [], ["t", "u"]), (1, [], []), (1, None, ["t", "u"]), (12, None, ["t", "u"])],
    )
    def test_request_for_all_topics_or_none(
        self, version: int, topics: list[MetadataRequestTopic] | None, expected: list[str]
    ) -> None:
        broker = make()
        create_topic(broker, "u")
        answer = broker.ask(MetadataRequest(topics=topics), version)
        assert [topic.name for topic in answer.topics] == expected

    def test_each_topic_is_described_once_in_the_order_requested(self) -> None:
        broker = make()
        create_topic(broker, "u")
        answer = broker.ask(named("u", "t", "u"), 12)
        assert [topic.name for topic in answer.topics] == ["u", "t"]

    def test_topic_is_described_by_id(self) -> None:
        broker = make()
        state = broker.broker.cache.topic("t")
        assert state is not None
        answer = broker.ask(by_id(state.topic_id, b"?" * 16), 12)
        known, unknown = answer.topics
        assert (known.error_code, known.name) == (0, "t")
        code = ErrorCode.UNKNOWN_TOPIC_ID
        assert (unknown.error_code, unknown.name, unknown.topic_id) == (code, None, b"?" * 16)

    @pytest.mark.parametrize("version", [10, 11])
    def test_topic_id_is_refused_before_version_12(self, version: int) -> None:
        answer = make().ask(by_id(b"?" * 16), version)
        assert answer.topics[0].error_code == ErrorCode.INVALID_REQUEST

    def test_metadata_log_is_not_listed(self) -> None:
        answer = make().ask(MetadataRequest(topics=None), 12)
        assert [topic.name for topic in answer.topics] == ["t"]

    def test_internal_topic_is_marked(self) -> None:
        broker = make()
        create_topic(broker, "__consumer_offsets")
        answer = broker.ask(named("__consumer_offsets"), 12)
        assert answer.topics[0].is_internal


class TestAutomaticCreation:
    """Creation of missing topics on request."""

    def test_response_names_leaders_of_the_new_topic(self) -> None:
        broker = make(num_partitions=3)
        asked = broker.begin(named("new"), 9)
        assert not asked.is_done
        broker.settle()
        [topic] = asked.response().topics
        assert (topic.error_code, [p.leader_id for p in topic.partitions]) == (0, [1, 1, 1])
        assert broker.produce("new", b"a", partition=2).error_code == 0

    def test_created_topic_survives_a_restart(self) -> None:
        broker = make()
        broker.ask(named("new"), 9)
        again = broker.restart(auto_create_topics_enable=False)
        assert again.ask(named("new"), 9).topics[0].error_code == 0

    def test_concurrent_clients_get_the_same_topic(self) -> None:
        broker = make()
        asked = [broker.begin(named("new"), 12) for _ in range(2)]
        broker.settle()
        topics = [one.response().topics[0] for one in asked]
        assert topics[0].error_code == topics[1].error_code == 0
        assert topics[0].topic_id == topics[1].topic_id

    @pytest.mark.parametrize(
        ("settings", "fields", "version"),
        [
            ({"auto_create_topics_enable": False}, {}, 9),
            ({}, {"allow_auto_topic_creation": False}, 9),
        ],
    )
    def test_topic_is_not_created_without_permission(
        self, settings: dict[str, Any], fields: dict[str, Any], version: int
    ) -> None:
        broker = make(**settings)
        asked = broker.begin(named("new", **fields), version)
        assert asked.is_done
        assert asked.response().topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_invalid_name_is_refused_and_the_others_are_created(self) -> None:
        answer = make().ask(named("no/good", "good"), 9)
        assert [topic.error_code for topic in answer.topics] == [
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            0,
        ]

    def test_invalid_name_is_an_error_when_nothing_is_created(self) -> None:
        answer = make(auto_create_topics_enable=False).ask(named("no/good"), 9)
        assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    def test_offsets_topic_is_created_by_its_coordinator(self) -> None:
        broker = make()
        answer = broker.ask(named("__consumer_offsets"), 9)
        assert answer.topics[0].error_code == 0
        assert len(answer.topics[0].partitions) == 50
        made = broker.broker.cache.topic("__consumer_offsets")
        assert made is not None and made.config["cleanup.policy"] == "compact"

    def test_offsets_topic_has_no_leader_when_it_cannot_be_created(self) -> None:
        broker = make()
        broker.files.fail_when(lambda op: op.name == "mkdir", errno.ENOSPC)
        answer = broker.ask(named("__consumer_offsets"), 9)
        assert answer.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE

    @pytest.mark.parametrize("name", ["__transaction_state", "__cluster_metadata"])
    def test_reserved_names_are_not_created(self, name: str) -> None:
        answer = make().ask(named(name), 9)
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_more_replicas_than_brokers_is_an_error(self) -> None:
        answer = make(default_replication_factor=3).ask(named("new"), 9)
        assert answer.topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR

    def test_wait_for_a_slow_disk_is_bounded(self) -> None:
        broker = make()
        asked = broker.begin(named("new"), 9)
        broker.ports.timers.advance(5_000)
        assert asked.response().topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
        broker.settle()
        assert broker.ask(named("new"), 9).topics[0].error_code == 0

    def test_disconnect_does_not_stop_the_creation(self) -> None:
        broker = make()
        broker.begin(named("new"), 9).cancel()
        broker.settle()
        assert broker.broker.cache.topic("new") is not None

    def test_failed_metadata_log_is_an_error(self) -> None:
        broker = make()
        broker.files.fail_when(lambda op: op.name == "sync" and "__cluster" in op.path, errno.EIO)
        answer = broker.ask(named("new"), 9)
        assert answer.topics[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


class TestSeveralBrokers:
    """Responses of one broker of a cluster."""

    def make(self) -> SimBroker:
        broker = make(broker_rack="r1")
        add_brokers(
            broker,
            live_broker(2, "PLAINTEXT", "INSIDE", rack="r2"),
            live_broker(3, "INSIDE", rack="r3"),
            controller_id=3,
        )
        set_partition(broker, "t", 0, leader=3, replicas=(3, 1, 4), isr=(3, 1))
        set_partition(broker, "t", 1, leader=2, replicas=(2, 1), isr=(2, 1))
        return broker

    @pytest.mark.parametrize("version", range(14))
    def test_brokers_with_the_listener_and_the_controller_are_listed(self, version: int) -> None:
        answer = self.make().ask(named("t"), version)
        nodes = [(node.node_id, node.host, node.port, node.rack) for node in answer.brokers]
        racks = ("r1", "r2") if version >= 1 else (None, None)
        assert nodes == [(1, "192.0.2.1", 9092, racks[0]), (2, "b2", 9092, racks[1])]
        # As in Kafka, the controller's id is given even if it does not have the listener.
        assert answer.controller_id == (3 if version >= 1 else -1)

    @pytest.mark.parametrize(
        ("version", "expected"),
        [
            (0, (ErrorCode.LEADER_NOT_AVAILABLE, -1, [1], [1], [])),
            (1, (ErrorCode.LEADER_NOT_AVAILABLE, -1, [3, 1, 4], [3, 1], [])),
            (5, (ErrorCode.LEADER_NOT_AVAILABLE, -1, [3, 1, 4], [3, 1], [4])),
            (6, (ErrorCode.LISTENER_NOT_FOUND, -1, [3, 1, 4], [3, 1], [4])),
            (13, (ErrorCode.LISTENER_NOT_FOUND, -1, [3, 1, 4], [3, 1], [4])),
        ],
    )
    def test_leader_without_the_listener_is_an_error(self, version: int, expected: object) -> None:
        first, second = self.make().ask(named("t"), version).topics[0].partitions
        assert (
            first.error_code,
            first.leader_id,
            first.replica_nodes,
            first.isr_nodes,
            first.offline_replicas,
        ) == expected
        assert (second.error_code, second.leader_id, second.replica_nodes) == (0, 2, [2, 1])

    def test_version_0_does_not_list_dead_replicas(self) -> None:
        broker = self.make()
        set_partition(broker, "t", 1, leader=2, replicas=(2, 4), isr=(2,))
        partition = broker.ask(named("t"), 0).topics[0].partitions[1]
        actual = partition.error_code, partition.leader_id, partition.replica_nodes
        assert actual == (ErrorCode.REPLICA_NOT_AVAILABLE, 2, [2])

    def test_partition_without_a_leader_is_an_error(self) -> None:
        broker = self.make()
        set_partition(broker, "t", 1, leader=-1, isr=(2,))
        partition = broker.ask(named("t"), 12).topics[0].partitions[1]
        assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert (partition.replica_nodes, partition.offline_replicas) == ([2, 1], [])

    def test_shared_response_is_not_shared_between_listeners(self) -> None:
        broker = self.make()
        for number in range(40):  # More topics than responses that are encoded for each client.
            create_topic(broker, f"other{number}")
        everything = MetadataRequest(topics=None)
        here = broker.ask(everything, 12)
        inside = broker.ask(everything, 12, connection=connection("INSIDE"))
        assert [node.node_id for node in here.brokers] == [1, 2]
        assert [node.node_id for node in inside.brokers] == [1, 2, 3]
        add_brokers(broker)
        assert [node.node_id for node in broker.ask(everything, 12).brokers] == [1]


class TestAddress:
    """The broker's address in responses."""

    def address(self, broker: SimBroker, **fields: Any) -> tuple[str, int]:
        answer = broker.ask(named(), 9, connection=connection(**fields))
        [node] = answer.brokers
        return node.host, node.port

    def test_address_is_the_one_the_client_connected_to(self) -> None:
        broker = make()
        assert self.address(broker, local_address=("10.0.0.5", 19092)) == ("10.0.0.5", 19092)
        assert self.address(broker, local_address=("::1", 9092)) == ("::1", 9092)

    def test_ipv4_client_of_dual_stack_socket_gets_an_ipv4_address(self) -> None:
        assert self.address(make(), local_address=("::ffff:10.0.0.5", 9092)) == ("10.0.0.5", 9092)

    def test_advertised_address_is_chosen_by_listener_name(self) -> None:
        broker = make(
            listeners=("IN://:9092", "OUT://:9093"),
            advertised_listeners=("OUT://broker.example:443",),
            listener_security_protocol_map="IN:PLAINTEXT,OUT:PLAINTEXT",
        )
        assert self.address(broker, listener_name="OUT") == ("broker.example", 443)
        assert self.address(broker, listener_name="IN") == ("192.0.2.1", 9092)

    def test_advertised_port_0_is_the_bound_port(self) -> None:
        broker = make(
            listeners=("PLAINTEXT://:0",), advertised_listeners=("PLAINTEXT://broker.example:0",)
        )
        address = self.address(broker, local_address=("10.0.0.5", 40123))
        assert address == ("broker.example", 40123)


class TestAuthorizedOperations:
    """KIP-430: all operations are authorized, because ACLs are not enforced yet."""

    def test_operations_are_included_on_request(self) -> None:
        request = named("t", include_topic_authorized_operations=True)
        request.include_cluster_authorized_operations = True
        answer = make().ask(request, 8)
        assert answer.topics[0].topic_authorized_operations == 3576
        assert answer.cluster_authorized_operations == 8096

    def test_operations_are_absent_by_default(self) -> None:
        answer = make().ask(named("t"), 8)
        absent = -(2**31)
        assert answer.topics[0].topic_authorized_operations == absent
        assert answer.cluster_authorized_operations == absent


def test_partition_of_failed_directory_has_no_leader() -> None:
    broker = make()
    broker.broker.replica_manager.partition("t", 1).log.go_offline()
    [topic] = broker.ask(named("t"), 9).topics
    actual = [(p.error_code, p.leader_id, p.offline_replicas) for p in topic.partitions]
    assert actual == [(0, 1, []), (ErrorCode.LEADER_NOT_AVAILABLE, -1, [1])]


def test_leader_epochs_rise_with_every_start() -> None:
    broker = make()
    assert broker.ask(named("t"), 9).topics[0].partitions[0].leader_epoch == 0
    again = broker.restart()
    assert again.ask(named("t"), 9).topics[0].partitions[0].leader_epoch == 1


def test_described_partitions_can_be_used_immediately() -> None:
    broker = make()
    for name in ("a", "b", "c"):
        [topic] = broker.ask(named(name), 9).topics
        for partition in topic.partitions:
            key = TopicPartition(name, partition.partition_index)
            assert broker.broker.log_manager.get(key) is not None


def test_advertised_address_and_first_data_request_are_reported() -> None:
    broker = make()
    addresses: list[tuple[str, int]] = []
    working: list[str] = []
    broker.broker.on_address_advertised = lambda client, host, port: addresses.append((host, port))
    broker.broker.on_client_works = lambda client: working.append(client.listener_name)
    broker.ask(named("t"), 9)
    assert addresses == [("192.0.2.1", 9092)]
    assert working == [], "Metadata is not a data request"
    client = connection()
    for _ in range(2):
        broker.ask(ListOffsetsRequest(), 5, connection=client)
    assert working == [client.listener_name], "once per connection"


# -- many topics -------------------------------------------------------------------------------

MANY = 40


def many() -> SimBroker:
    broker = make()
    for number in range(MANY):
        create_topic(broker, f"many-{number:03}", 8)
    return broker


def test_all_topics_are_encoded_once_for_concurrent_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = many()
    encoded: list[ApiMessage] = []
    encode = MetadataResponse.encode_in_slices

    def counted(self: MetadataResponse, *args: Any) -> Any:
        encoded.append(self)
        return encode(self, *args)

    monkeypatch.setattr(MetadataResponse, "encode_in_slices", counted)
    asked = [broker.begin(MetadataRequest(topics=None), 9) for _ in range(20)]
    asked[0].cancel()  # The client whose request started the encoding disconnects.
    broker.settle()
    responses = [one.response() for one in asked[1:]]
    assert len(encoded) == 1
    assert all(one == responses[0] for one in responses)
    names = [topic.name for topic in responses[0].topics]
    assert names == sorted(names)
    assert len([name for name in names if name.startswith("many-")]) == MANY
    broker.ask(MetadataRequest(topics=None), 9)
    assert len(encoded) == 1
    broker.ask(MetadataRequest(topics=None), 8)  # Another version is another response.
    assert len(encoded) == 2


def test_change_is_seen_by_the_next_request_for_all_topics() -> None:
    broker = many()
    earlier = broker.begin(MetadataRequest(topics=None), 9)
    create_topic(broker, "new")
    later = broker.begin(MetadataRequest(topics=None), 9)
    broker.settle()
    assert "new" not in {topic.name for topic in earlier.response().topics}
    assert "new" in {topic.name for topic in later.response().topics}
    broker.ask(DeleteTopicsRequest(topic_names=["new"]), 5)
    assert "new" not in {topic.name for topic in broker.ask(MetadataRequest(topics=None), 9).topics}
    broker.broker.log_manager.storage_failed(LOG_DIR, OSError("broken"))
    broker.settle()
    codes = {
        partition.error_code
        for topic in broker.ask(MetadataRequest(topics=None), 9).topics
        for partition in topic.partitions
    }
    assert codes == {ErrorCode.LEADER_NOT_AVAILABLE}


def test_address_in_a_shared_response_is_that_of_each_client() -> None:
    broker = many()
    by_another = connection(local_address=("198.51.100.7", 9999))
    for one, host in ((None, "192.0.2.1"), (by_another, "198.51.100.7")):
        response = broker.ask(MetadataRequest(topics=None), 9, connection=one)
        assert [node.host for node in response.brokers] == [host]


def test_many_topics_by_name_are_answered_once_each() -> None:
    broker = many()
    names = [f"many-{number:03}" for number in range(MANY)]
    unknown = [f"unknown-{number}" for number in range(100)]
    asked = named(*names, *unknown, *names, allow_auto_topic_creation=False)
    topics = broker.ask(asked, 9).topics
    assert [topic.name for topic in topics] == [*names, *unknown]
    assert [topic.error_code for topic in topics[:MANY]] == [0] * MANY
    assert {topic.error_code for topic in topics[MANY:]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
