"""The admin client's engine on blocking sockets, without a reactor, against a real broker.

Nothing here is specific to plog: the tests also pass against Apache Kafka, which
``PLOG_TEST_BOOTSTRAP`` can name.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from plog.client.admin.acls import Acl, AclFilter
from plog.client.admin.brokers import FeatureUpdate
from plog.client.admin.core import AdminCore
from plog.client.admin.quotas import USER, QuotaEntity
from plog.client.admin.records import HIGH_WATERMARK
from plog.client.admin.scram_credentials import ScramDeletion, ScramMechanism, ScramUpsertion
from plog.client.admin.values import (
    AlterConfig,
    ConfigResource,
    GroupState,
    MemberToRemove,
    OffsetSpec,
)
from plog.client.network.cluster import Cluster
from plog.client.network.socket_network import SocketNetwork, run_blocking
from plog.client.settings import AdminSettings
from plog.client.simple import SimpleClient
from plog.client.values import OffsetAndMetadata
from plog.enums import AclOperation, AclResourceType, AlterOperation, ConfigSource, ElectionType
from plog.errors import (
    ElectionNotNeeded,
    ErrorCode,
    GroupIdNotFound,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidTopicException,
    InvalidUpdateVersion,
    KafkaError,
    NonEmptyGroup,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    ResourceNotFound,
    TopicAlreadyExists,
    UnknownMemberId,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from plog.records.codec import Record
from plog.types import TopicPartition
from plog.wire.api_keys import ApiKey
from plogd.testing.broker_process import BrokerProcess
from tests.helpers.eventually import eventually
from tests.helpers.group.raw_group import RawMember

T = TypeVar("T")


class Admin:
    """The admin engine, and `run`, which drives its coroutines."""

    def __init__(self, bootstrap_servers: str) -> None:
        settings = AdminSettings.from_options(
            bootstrap_servers=bootstrap_servers, default_api_timeout_ms=20_000
        )
        self.cluster = Cluster(SocketNetwork(client_id="admin-core"), settings)
        self.core = AdminCore(self.cluster)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` to its end; return its result or raise its error."""
        return run_blocking(coroutine)


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Admin]:
    """The engine, connected to the shared broker."""
    admin = Admin(broker.bootstrap_servers)
    yield admin
    admin.run(admin.cluster.close())


@pytest.fixture
def filled(admin: Admin, topic: str, broker: BrokerProcess) -> str:
    """A topic with 2 partitions; the first has 3 records."""
    _create(admin, topic, 2)
    host, _, port = broker.bootstrap_servers.rpartition(":")
    with SimpleClient(host, int(port)) as client:
        eventually(lambda: _produced(client, topic), "a leader that accepts records")
    return topic


def _produced(client: SimpleClient, topic: str) -> bool:
    """Produce 3 records; return False if Kafka's broker does not know yet that it leads."""
    records = [Record(value=b"x", timestamp=1_000 * (n + 1)) for n in range(3)]
    try:
        client.produce(topic, 0, records)
    except NotLeaderOrFollower:
        return False
    return True


def _create(admin: Admin, topic: str, partitions: int = 1, **configs: str) -> None:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    admin.run(admin.core.create_topic(topic, partitions, 1, configs=named))
    eventually(
        lambda: len(_partitions(admin, topic)) == partitions, f"{partitions} partitions of {topic}"
    )


def _partitions(admin: Admin, topic: str) -> list[int]:
    """Return the partitions of `topic` that have leaders."""
    try:
        described = admin.run(admin.core.describe_topic(topic))
    except UnknownTopicOrPartition:
        return []
    return [p.partition for p in described.partitions if p.leader is not None]


# -- topics -----------------------------------------------------------------------------------


def test_topic_is_created_described_extended_and_deleted(admin: Admin, topic: str) -> None:
    created = admin.run(admin.core.create_topic(topic, 3, configs={"retention.ms": "60000"}))
    assert (created.partitions, created.replication_factor) == (3, 1)
    assert created.configs is not None
    assert created.configs["retention.ms"].source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert created.topic_id is not None
    eventually(lambda: _partitions(admin, topic) == [0, 1, 2], "three partitions")
    assert admin.run(admin.core.describe_topic(created.topic_id)).name == topic
    assert topic in admin.run(admin.core.list_topics())
    admin.run(admin.core.create_partitions({topic: 5})).raise_first()
    eventually(lambda: len(_partitions(admin, topic)) == 5, "five partitions")
    with pytest.raises(InvalidPartitions):
        admin.run(admin.core.create_partitions({topic: 4})).get(topic)
    admin.run(admin.core.delete_topic(created.topic_id))
    eventually(lambda: topic not in admin.run(admin.core.list_topics()), "deletion")
    deleted_topics = admin.run(admin.core.delete_topics([topic, created.topic_id]))
    assert isinstance(deleted_topics[topic], UnknownTopicOrPartition)
    assert isinstance(deleted_topics[created.topic_id], UnknownTopicId)


def test_invalid_topics_are_refused(admin: Admin, new_topic: Callable[[], str]) -> None:
    there, many, odd = new_topic(), new_topic(), new_topic()
    _create(admin, there)
    errors: dict[str, type[KafkaError]] = {}
    for name, arguments in (
        (there, {}),
        ("no/name", {}),
        (many, {"replication_factor": 99}),
        (odd, {"configs": {"retention.ms": "soon"}}),
    ):
        with pytest.raises(KafkaError) as caught:
            admin.run(admin.core.create_topic(name, **arguments))
        errors[name] = caught.type
    assert errors == {
        there: TopicAlreadyExists,
        "no/name": InvalidTopicException,
        many: InvalidReplicationFactor,
        odd: InvalidConfig,
    }


def test_topics_are_described_in_pages(admin: Admin, new_topic: Callable[[], str]) -> None:
    names = [new_topic() for _ in range(3)]
    for partitions, name in enumerate(names, 1):
        _create(admin, name, partitions)
    described = admin.run(admin.core.describe_topics([*names, "missing"], page_partitions=2))
    assert [len(described.get(name).partitions) for name in names] == [1, 2, 3]
    assert isinstance(described["missing"], UnknownTopicOrPartition)
    every = admin.run(admin.core.describe_topics(include_authorized_operations=True))
    operations = every.get(names[0]).authorized_operations
    assert operations is not None
    assert AclOperation.READ in operations


# -- settings ---------------------------------------------------------------------------------


def test_topic_settings_are_changed_and_reset(admin: Admin, topic: str) -> None:
    _create(admin, topic, cleanup_policy="delete")
    resource = ConfigResource.topic(topic)

    def entries() -> dict[str, str | None]:
        return {x.name: x.value for x in admin.run(admin.core.describe_config(resource)).values()}

    changes = [
        AlterConfig("retention.ms", "60000"),
        AlterConfig("cleanup.policy", "compact", AlterOperation.APPEND),
    ]
    admin.run(admin.core.incremental_alter_configs({resource: changes})).raise_first()
    eventually(lambda: entries()["retention.ms"] == "60000", "the new retention")
    assert entries()["cleanup.policy"] == "delete,compact"
    admin.run(admin.core.alter_config(resource, {"retention.ms": None}))
    eventually(lambda: entries()["retention.ms"] == "604800000", "the old retention")
    with pytest.raises(InvalidConfig):
        admin.run(admin.core.alter_config(resource, {"retention.ms": "soon"}, validate_only=True))


def test_broker_settings_are_described_and_validated(admin: Admin) -> None:
    [node_id] = admin.run(admin.core.describe_cluster()).brokers
    described = admin.run(
        admin.core.describe_configs(
            [ConfigResource.broker(node_id)],
            names=["log.retention.ms", "node.id"],
            include_synonyms=True,
            include_documentation=True,
        )
    ).get(ConfigResource.broker(node_id))
    assert set(described) == {"log.retention.ms", "node.id"}
    assert described["node.id"].is_read_only
    assert described["node.id"].documentation
    assert described["node.id"].value == str(node_id)


# -- records ----------------------------------------------------------------------------------


def test_offsets_are_listed_and_records_deleted(admin: Admin, filled: str) -> None:
    first, second = TopicPartition(filled, 0), TopicPartition(filled, 1)

    def offsets(spec: OffsetSpec | int) -> list[int]:
        listed = admin.run(admin.core.list_offsets({first: spec, second: spec})).raise_first()
        return [listed[first].offset, listed[second].offset]

    assert offsets(OffsetSpec.EARLIEST) == [0, 0]
    assert offsets(OffsetSpec.LATEST) == [3, 0]
    assert offsets(OffsetSpec.MAX_TIMESTAMP) == [2, -1]
    assert offsets(1_500) == [1, -1]
    deleted = admin.run(admin.core.delete_records({first: 2, second: HIGH_WATERMARK}))
    assert deleted == {first: 2, second: 0}
    assert offsets(OffsetSpec.EARLIEST) == [2, 0]
    with pytest.raises(OffsetOutOfRange):
        admin.run(admin.core.delete_records({first: 9})).get(first)
    missing = TopicPartition("missing", 0)
    with pytest.raises(UnknownTopicOrPartition, match="topic missing does not exist"):
        admin.run(admin.core.list_offsets({missing: OffsetSpec.LATEST})).get(missing)
    assert admin.run(admin.core.describe_producers([first])) == {first: ()}


# -- groups -----------------------------------------------------------------------------------


def test_group_with_a_member_is_described(admin: Admin, topic: str, broker: BrokerProcess) -> None:
    member = RawMember(broker.bootstrap_servers, topic)
    admin.run(admin.core.list_group_offsets([topic]))  # The coordinator is available.
    member.send_join()
    member.joined()
    assert member.sync({member.member_id: b"all"}).error_code == 0
    listed = admin.run(admin.core.list_groups(states=[GroupState.STABLE]))[topic]
    assert (listed.state, listed.protocol_type) == (GroupState.STABLE, "raw")
    group = admin.run(admin.core.describe_group(topic, include_authorized_operations=True))
    [described_member] = group.members
    assert (
        described_member.member_id,
        described_member.client_id,
        described_member.raw_assignment,
    ) == (
        member.member_id,
        "raw",
        b"all",
    )
    assert group.authorized_operations is not None
    assert AclOperation.DELETE in group.authorized_operations
    assert f"{group.coordinator.host}:{group.coordinator.port}" == broker.bootstrap_servers
    with pytest.raises(NonEmptyGroup):
        admin.run(admin.core.delete_group(topic))
    removed = admin.run(admin.core.remove_members(topic, [MemberToRemove("x"), "y"]))
    assert [type(error) for error in removed.errors.values()] == [UnknownMemberId, UnknownMemberId]
    assert admin.run(admin.core.remove_members(topic)).raise_first() == {
        MemberToRemove(member.member_id): None
    }
    member.connection.close()
    with pytest.raises(GroupIdNotFound):
        admin.run(admin.core.describe_group(f"{topic}-unknown"))


def test_group_offsets_are_altered_and_deleted(
    admin: Admin, filled: str, broker: BrokerProcess
) -> None:
    first, second = TopicPartition(filled, 0), TopicPartition(filled, 1)
    offsets = {first: 1, second: OffsetAndMetadata(0, "why")}
    assert admin.run(admin.core.alter_group_offsets(filled, offsets)).errors == {}
    assert admin.run(admin.core.group_offsets(filled)) == {
        first: OffsetAndMetadata(1),
        second: OffsetAndMetadata(0, "why"),
    }
    assert admin.run(admin.core.describe_group(filled)).state is GroupState.EMPTY
    assert admin.run(admin.core.delete_group_offsets(filled, [first])) == {first: None}
    assert admin.run(admin.core.group_offsets(filled, [first, second])) == {
        first: None,
        second: OffsetAndMetadata(0, "why"),
    }
    member = RawMember(broker.bootstrap_servers, filled)
    member.send_join()
    member.joined()
    assert member.sync({member.member_id: b""}).error_code == 0
    with pytest.raises(NonEmptyGroup, match="has members"):
        admin.run(admin.core.alter_group_offsets(filled, {first: 1})).get(first)
    admin.run(admin.core.remove_members(filled)).raise_first()
    admin.run(admin.core.delete_group(filled))
    assert filled not in admin.run(admin.core.list_groups())
    member.connection.close()


# -- the cluster ------------------------------------------------------------------------------


def test_cluster_api_versions_and_features_are_described(
    admin: Admin, broker: BrokerProcess
) -> None:
    cluster = admin.run(admin.core.describe_cluster(include_fenced=True))
    assert cluster.controller is not None
    assert f"{cluster.controller.host}:{cluster.controller.port}" == broker.bootstrap_servers
    assert not cluster.controller.is_fenced
    [versions] = admin.run(admin.core.api_versions()).raise_first().values()
    assert versions.apis[ApiKey.METADATA].highest >= 12
    features = admin.run(admin.core.describe_features())
    assert features.finalized["metadata.version"].highest > 0
    level = features.finalized["metadata.version"].highest
    too_high = {"metadata.version": FeatureUpdate(level + 500)}
    with pytest.raises(InvalidUpdateVersion):
        admin.run(admin.core.update_features(too_high, validate_only=True)).get("metadata.version")


def test_log_directories_are_described(admin: Admin, filled: str) -> None:
    [directories] = admin.run(admin.core.describe_log_dirs()).raise_first().values()
    [directory] = directories.values()
    replica = directory.replicas[TopicPartition(filled, 0)]
    assert replica.size_bytes > 0
    assert (replica.is_future, directory.error) == (False, None)
    assert directory.total_bytes is not None
    assert directory.usable_bytes is not None
    assert directory.total_bytes > directory.usable_bytes > 0


def test_elections_and_reassignments_have_results(admin: Admin, topic: str) -> None:
    _create(admin, topic)
    partition = TopicPartition(topic, 0)
    elected = admin.run(admin.core.elect_leaders(ElectionType.PREFERRED, [partition]))
    assert isinstance(elected[partition], ElectionNotNeeded)
    [node_id] = admin.run(admin.core.describe_cluster()).brokers
    moved = admin.run(admin.core.alter_partition_reassignments({partition: [node_id]}))
    assert moved == {partition: None}
    eventually(
        lambda: admin.run(admin.core.list_partition_reassignments()) == {},
        "the end of the reassignment",
    )


# -- quotas, users and access control ---------------------------------------------------------


def test_quotas_are_set_and_removed(admin: Admin, topic: str) -> None:
    entity = QuotaEntity.of(user=topic)
    set_to = {"producer_byte_rate": 5e9}
    assert admin.run(admin.core.alter_client_quotas({entity: set_to})) == {entity: None}
    which = {USER: topic}
    eventually(
        lambda: admin.run(admin.core.describe_client_quotas(which)) == {entity: set_to}, "a quota"
    )
    admin.run(admin.core.alter_client_quotas({entity: {"producer_byte_rate": None}})).raise_first()
    eventually(lambda: admin.run(admin.core.describe_client_quotas(which)) == {}, "no quota")


def test_scram_users_are_set_and_removed(admin: Admin, topic: str) -> None:
    sha_256 = ScramMechanism.SCRAM_SHA_256
    wanted = ScramUpsertion(user=topic, mechanism=sha_256, password="secret")
    assert admin.run(admin.core.alter_user_scram_credentials([wanted])) == {topic: None}

    def mechanisms() -> list[ScramMechanism]:
        described = admin.run(admin.core.describe_user_scram_credentials([topic]))
        return [info.mechanism for info in described.values_by_key.get(topic, ())]

    eventually(lambda: mechanisms() == [sha_256], "a credential")
    deletion = ScramDeletion(user=topic, mechanism=sha_256)
    admin.run(admin.core.alter_user_scram_credentials([deletion])).raise_first()
    with pytest.raises(ResourceNotFound):
        admin.run(admin.core.alter_user_scram_credentials([deletion])).get(topic)


def test_acls_are_created_and_deleted(admin: Admin, topic: str) -> None:
    acl = Acl(
        resource_type=AclResourceType.TOPIC,
        resource_name=topic,
        principal="User:alice",
        operation=AclOperation.READ,
    )
    of_topic = AclFilter(resource_name=topic)
    try:
        admin.run(admin.core.create_acls([acl])).raise_first()
    except KafkaError as error:
        if error.code != ErrorCode.SECURITY_DISABLED:
            raise
        pytest.skip("Kafka stores ACLs only if it has an authorizer")
    eventually(lambda: admin.run(admin.core.describe_acls(of_topic)) == [acl], "the ACL")
    assert admin.run(admin.core.delete_acls([of_topic])) == {of_topic: {acl: None}}
    eventually(lambda: admin.run(admin.core.describe_acls(of_topic)) == [], "no ACL")
