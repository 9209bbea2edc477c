"""plog's znodes compared with those of Apache Kafka 3.9 in ZooKeeper mode, in both directions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from plog import Admin
from plog.client.admin.acls import Acl as AdminAcl
from plog.client.admin.acls import AclFilter
from plog.client.admin.quotas import QuotaEntity as AdminQuotaEntity
from plog.client.admin.scram_credentials import ScramMechanism, ScramUpsertion
from plog.client.admin.values import ConfigResource, NewTopic
from plog.enums import AclOperation, AclPatternType, AclPermission, AclResourceType
from plog.scram import ScramMechanism as Mechanism
from plog.scram import salted_password
from plogd.metadata.store import (
    ABSENT,
    BrokerRegistration,
    Change,
    Endpoint,
    Key,
    PartitionValue,
    ProducerIdsValue,
    TopicValue,
    Written,
)
from plogd.quota import QuotaEntity, quota_key
from plogd.security.acl import Acl, ResourcePattern, acl_key
from plogd.security.scram import credential_of
from tests.helpers.eventually import eventually
from tests.helpers.programs.kafka_server import KafkaServer, ZooKeeperServer, kafka_jars
from tests.helpers.real_zookeeper import RealZooKeeperSite

VERSION = "3.9.1"
USER = "CN=al ice,O=\u00e9/x*~"
SALT = b"salt of the user"
# Kafka changes these at each start, or they are random.
CHANGING = {"timestamp", "topic_id", "id"}
TOPIC_CONFIG = {"retention.ms": "3600000", "cleanup.policy": "compact"}
QUOTAS: list[tuple[dict[str, str | None], dict[str, float]]] = [
    ({"user": USER}, {"producer_byte_rate": 1024.0, "request_percentage": 12.5}),
    ({"user": None}, {"consumer_byte_rate": 5e9}),
    ({"client_id": "app"}, {"controller_mutation_rate": 2.5e7}),
    ({"user": USER, "client_id": None}, {"request_percentage": 0.0001}),
    ({"ip": "127.0.0.1"}, {"connection_creation_rate": 100.0}),
]
RULES = [
    (AclResourceType.TOPIC, "t", AclPatternType.LITERAL, AclOperation.DESCRIBE_CONFIGS),
    (AclResourceType.TRANSACTIONAL_ID, "pay", AclPatternType.PREFIXED, AclOperation.WRITE),
]


def _server(jars: Path, folder: Path, zookeeper: str) -> KafkaServer:
    settings = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:ANONYMOUS",
        "broker.rack": "r1",
    }
    return KafkaServer(jars, folder, zookeeper=zookeeper, settings=settings)


@dataclass
class Kafka:
    """A running Kafka with its ZooKeeper."""

    jars: Path
    zookeeper: ZooKeeperServer
    server: KafkaServer
    folder: Path


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A Kafka in the chroot /kafka."""
    jars = kafka_jars(VERSION)
    folder = tmp_path_factory.mktemp("kafka-znodes")
    zookeeper = ZooKeeperServer(jars, folder / "zookeeper")
    zookeeper.start()
    server = _server(jars, folder / "kafka", f"{zookeeper.hosts}/kafka")
    try:
        server.start()
        yield Kafka(jars, zookeeper, server, folder)
    finally:
        server.kill()
        zookeeper.kill()


def _znodes(hosts: str) -> dict[str, bytes]:
    """Return the data of all znodes."""
    client = KazooClient(hosts=hosts)
    client.start()

    def walk(path: str) -> Iterator[tuple[str, bytes]]:
        data, _ = client.get(path)
        yield path, data or b""
        for name in sorted(client.get_children(path)):
            yield from walk(f"{path.rstrip('/')}/{name}")

    try:
        return dict(walk("/"))
    finally:
        client.stop()
        client.close()


def _write_with_kafka(server: KafkaServer) -> None:
    """Create everything through Kafka's own APIs."""
    with Admin(bootstrap_servers=server.bootstrap_servers) as admin:
        topic = NewTopic("t", assignments={0: [1], 1: [1]}, configs=TOPIC_CONFIG)
        admin.create_topics([topic]).raise_first()
        admin.create_topics([NewTopic("plain", assignments={0: [1]})]).raise_first()
        for node_id in (1, None):
            admin.alter_config(ConfigResource.broker(node_id), {"log.cleaner.threads": "2"})
        for names, quotas in QUOTAS:
            admin.alter_client_quotas({AdminQuotaEntity.of(**names): quotas}).raise_first()
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            upsertion = ScramUpsertion(user=USER, mechanism=mechanism, password="p", salt=SALT)
            admin.alter_user_scram_credentials([upsertion]).raise_first()
        for kind, name, pattern, operation in RULES:
            rule = AdminAcl(
                resource_type=kind,
                resource_name=name,
                pattern_type=pattern,
                principal="User:alice",
                operation=operation,
            )
            admin.create_acls([rule]).raise_first()


def _key(names: dict[str, str | None]) -> Key:
    return quota_key(QuotaEntity(**{kind: name or "" for kind, name in names.items()}))


def _changes() -> tuple[list[Change], list[Change]]:
    """Return what `_write_with_kafka` creates: the controller's changes, and the others."""
    of_controller: list[Change] = []
    for number, (name, partitions) in enumerate((("t", 2), ("plain", 1)), 2):
        topic = TopicValue(
            topic_id=number.to_bytes(16, "big"), assignments={n: (1,) for n in range(partitions)}
        )
        of_controller.append(Change(key=("topic", name), value=topic, expected=ABSENT))
        state = PartitionValue(leader=1, leader_epoch=0, isr=(1,), partition_epoch=0)
        of_controller += [
            Change(key=("partition", name, n), value=state, expected=ABSENT)
            for n in range(partitions)
        ]
    values: list[tuple[Key, Any]] = [
        (("config", "topic", "t"), TOPIC_CONFIG),
        (("config", "broker", "1"), {"log.cleaner.threads": "2"}),
        (("config", "broker", ""), {"log.cleaner.threads": "2"}),
        *((_key(names), quotas) for names, quotas in QUOTAS),
    ]
    for mechanism in Mechanism:
        salted = salted_password(mechanism, b"p", salt=SALT, iterations=4096)
        credential = credential_of(mechanism, salt=SALT, salted_password=salted, iterations=4096)
        values.append((("scram", USER, int(mechanism)), credential))
    values += [(acl_key(rule), rule) for rule in _rules()]
    return of_controller, [Change(key=key, value=value, expected=ABSENT) for key, value in values]


def _rules() -> list[Acl]:
    return [
        Acl(
            pattern=ResourcePattern(resource_type=kind, name=name, pattern_type=pattern),
            principal="User:alice",
            host="*",
            operation=operation,
            permission=AclPermission.ALLOW,
        )
        for kind, name, pattern, operation in RULES
    ]


def _registration(server: KafkaServer) -> BrokerRegistration:
    host, _, port = server.bootstrap_servers.partition(":")
    endpoint = Endpoint(name="PLAINTEXT", host=host, port=int(port), security_protocol="PLAINTEXT")
    return BrokerRegistration(
        broker_id=1, incarnation_id=bytes(16), endpoints=(endpoint,), rack="r1"
    )


def _write_with_plog(site: RealZooKeeperSite, server: KafkaServer) -> None:
    of_controller, others = _changes()
    site.settle(site.store.cluster_id("AAAAAAAAAAAAAAAAAAAAAw"))
    site.settle(site.store.register_broker(_registration(server)))
    term = site.settle(site.store.campaign())
    for changes, in_term in ((of_controller, term), (others, None)):
        outcomes = site.settle(site.store.write(changes, in_term))
        assert all(isinstance(one, Written) for one in outcomes), outcomes


def _comparable(path: str, data: bytes) -> Any:
    try:
        value = json.loads(data)
    except ValueError:
        return data
    if not isinstance(value, dict):
        return value
    value = {name: "changes" if name in CHANGING else x for name, x in value.items()}
    if path.startswith("/config/"):
        # A Java hash table, whose order is arbitrary.
        value["config"] = dict(sorted(value.get("config", {}).items()))
    return value


def test_znodes_are_those_that_kafka_writes(kafka: Kafka) -> None:
    _write_with_kafka(kafka.server)
    hosts = f"{kafka.zookeeper.hosts}/kafka"
    path = "/brokers/topics/plain/partitions/0/state"
    eventually(lambda: path in _znodes(hosts), "a leader of the topic")
    of_kafka = _znodes(hosts)
    site = RealZooKeeperSite(f"{kafka.zookeeper.hosts}/plog")
    try:
        _write_with_plog(site, kafka.server)
        of_plog = _znodes(site.hosts)
    finally:
        site.close()
    # The same writes in another order, and a znode for KRaft migrations.
    sequential = ("/config/changes/", "/kafka-acl-changes/", "/kafka-acl-extended-changes/")
    paths = {
        name: {x for x in znodes if not x.startswith(sequential)}
        for name, znodes in (("kafka", of_kafka), ("plog", of_plog))
    }
    assert paths["plog"] == paths["kafka"] - {"/migration"}
    differences = {
        path: (of_kafka[path], of_plog[path])
        for path in paths["plog"]
        if _comparable(path, of_kafka[path]) != _comparable(path, of_plog[path])
    }
    assert differences == {}
    # Operators and scripts know this line, so its bytes are Kafka's.
    assert of_plog[path] == of_kafka[path]
    for folder in sequential:
        notifications = [
            {data for x, data in znodes.items() if x.startswith(folder)}
            for znodes in (of_kafka, of_plog)
        ]
        # Kafka's brokers read the settings of a new topic in any case.
        notifications[1].discard(b'{"version":2,"entity_path":"topics/t"}')
        assert notifications[0] == notifications[1], folder


def test_plog_reads_what_kafka_has_written(kafka: Kafka) -> None:
    site = RealZooKeeperSite(f"{kafka.zookeeper.hosts}/kafka", broker_id=2)
    try:
        assert site.store.damaged == {}
        site.until(lambda: site.store.controller_id == 1)
        for change in _changes()[1]:
            assert site.store.get(change.key)[0] == change.value, change.key
        # What plog changes, the running Kafka shows, because of the notifications.
        with Admin(bootstrap_servers=kafka.server.bootstrap_servers) as admin:
            resource = ConfigResource.topic("t")
            key: Key = ("config", "topic", "t")
            change = Change(
                key=key,
                value={**TOPIC_CONFIG, "segment.ms": "12345"},
                expected=site.store.get(key)[1],
            )
            assert isinstance(site.settle(site.store.write([change]))[0], Written)
            eventually(
                lambda: admin.describe_configs([resource])[resource]["segment.ms"].value == "12345",
                "the setting in Kafka",
            )
            # And the other way round.
            admin.alter_config(resource, {"segment.ms": "54321"})
            site.until(lambda: site.store.get(key)[0]["segment.ms"] == "54321")
            rule = _rules()[0]
            removal = Change(
                key=acl_key(rule), value=None, expected=site.store.get(acl_key(rule))[1]
            )
            site.settle(site.store.write([removal]))
            eventually(
                lambda: len(admin.describe_acls(AclFilter(principal="User:alice"))) == 1,
                "the removal of the rule in Kafka",
            )
    finally:
        site.close()


def test_kafka_reads_what_plog_has_written(kafka: Kafka) -> None:
    hosts = f"{kafka.zookeeper.hosts}/back"
    server = _server(kafka.jars, kafka.folder / "back", hosts)
    site = RealZooKeeperSite(hosts)
    _write_with_plog(site, server)
    ids = ProducerIdsValue(broker_id=1, broker_epoch=-1, next_producer_id=7000)
    site.settle(site.store.write([Change(key=("producer_ids",), value=ids, expected=ABSENT)]))
    site.close()
    server.start()
    try:
        with Admin(bootstrap_servers=server.bootstrap_servers) as admin:
            described = eventually(
                lambda: admin.describe_topics(["t"]).values_by_key.get("t"), "the topic in Kafka"
            )
            assert [len(x.isr) for x in described.partitions] == [1, 1]
            resource = ConfigResource.topic("t")
            configs = admin.describe_configs([resource])[resource]
            assert {name: configs[name].value for name in TOPIC_CONFIG} == TOPIC_CONFIG
            quotas = admin.describe_client_quotas()
            assert quotas == {AdminQuotaEntity.of(**names): x for names, x in QUOTAS}
            users = admin.describe_user_scram_credentials([USER])
            assert len(users[USER]) == 2
            found = admin.describe_acls(AclFilter(principal="User:alice"))
            assert {(x.resource_type, x.resource_name, x.operation) for x in found} == {
                (kind, name, operation) for kind, name, _, operation in RULES
            }
        znodes = _znodes(hosts)
        assert int(znodes["/controller_epoch"]) == 2
        block = json.loads(znodes["/latest_producer_id_block"])
        assert int(block["block_end"]) == 6999
    finally:
        server.kill()
