"""Three brokers on a real ZooKeeper: replication, failover, and other people's clients."""

from __future__ import annotations

import json
import shutil

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ClusterMetadata, NewTopic
from kazoo.client import KazooClient

from plogd.testing.broker_process import BrokerProcess
from tests.cluster.clients import admin, consume, produce
from tests.cluster.conftest import StartBroker
from tests.helpers.eventually import TIMEOUT_S, eventually

IDS = (1, 2, 3)


class Cluster:
    """The brokers by id; clients connect to those that run."""

    def __init__(self, make_broker: StartBroker) -> None:
        self.brokers: dict[int, BrokerProcess] = {
            one: make_broker(
                f"b{one}",
                node_id=str(one),
                offsets_topic_replication_factor="3",
                default_replication_factor="3",
            )
            for one in IDS
        }
        for broker in self.brokers.values():
            broker.start()
        eventually(lambda: set(self.described().brokers) == set(IDS), "all brokers")

    @property
    def running(self) -> dict[int, BrokerProcess]:
        """The brokers whose processes run."""
        return {one: broker for one, broker in self.brokers.items() if broker.is_running}

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the running brokers."""
        return ",".join(broker.bootstrap_servers for broker in self.running.values())

    def described(self) -> ClusterMetadata:
        """Return the metadata that clients see."""
        return admin(self).list_topics(timeout=TIMEOUT_S)

    def create(self, name: str, partitions: int = 1, **config: str) -> None:
        """Create a topic with three replicas."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        client = admin(self)
        [future] = client.create_topics([NewTopic(name, partitions, 3, config=settings)]).values()
        future.result(TIMEOUT_S)

    def leader(self, topic: str) -> int:
        """Return the leader of partition 0, or -1 if it has no leader."""
        leader: int = self.described().topics[topic].partitions[0].leader
        return leader

    def isr(self, topic: str) -> set[int]:
        """Return the ISR of partition 0."""
        return set(self.described().topics[topic].partitions[0].isrs)


@pytest.fixture
def cluster(make_broker: StartBroker) -> Cluster:
    """Three brokers and the topic ``clicks``."""
    cluster = Cluster(make_broker)
    cluster.create("clicks")
    return cluster


def test_records_survive_the_leader(cluster: Cluster, znodes: KazooClient) -> None:
    produce(cluster, "clicks", b"1", b"2")
    assert consume(cluster, "clicks", "g", 2) == [b"1", b"2"]
    old = cluster.leader("clicks")
    cluster.brokers[old].kill()
    eventually(lambda: cluster.leader("clicks") not in (old, -1), "another leader")
    produce(cluster, "clicks", b"3")
    # The group's committed offset is on the remaining brokers, too.
    assert consume(cluster, "clicks", "g", 1) == [b"3"]
    state = json.loads(znodes.get("/brokers/topics/clicks/partitions/0/state")[0])
    assert old not in state["isr"]
    cluster.brokers[old].start()
    eventually(lambda: cluster.isr("clicks") == set(IDS), "the old leader is in sync")
    produce(cluster, "clicks", b"4")
    assert consume(cluster, "clicks", "g", 1) == [b"4"]


def test_records_survive_the_death_of_all_brokers(cluster: Cluster) -> None:
    values = [b"%d" % number for number in range(100)]
    produce(cluster, "clicks", *values)
    for broker in cluster.brokers.values():
        broker.kill()
    for broker in cluster.brokers.values():
        broker.start()
    eventually(lambda: cluster.isr("clicks") == set(IDS), "all replicas are in sync")
    produce(cluster, "clicks", b"100")
    assert consume(cluster, "clicks", "g", 101) == [*values, b"100"]


def test_another_broker_becomes_the_controller(cluster: Cluster, znodes: KazooClient) -> None:
    def controller() -> int:
        if znodes.exists("/controller") is None:
            return -1
        number: int = json.loads(znodes.get("/controller")[0])["brokerid"]
        return number

    old = controller()
    cluster.brokers[old].kill()
    eventually(lambda: controller() not in (old, -1), "another controller")

    def is_created() -> bool:
        try:
            cluster.create("more", 4)
        except KafkaException:  # Clients learn the new controller with their next metadata.
            return False
        return True

    # Two brokers cannot hold three replicas.
    assert not is_created()
    cluster.brokers[old].start()
    eventually(is_created, "a topic")
    produce(cluster, "more", b"1")
    znodes.delete("/controller")
    eventually(lambda: controller() != -1, "a controller")
    produce(cluster, "more", b"2")


def test_too_few_replicas_in_sync_reject_records(cluster: Cluster) -> None:
    cluster.create("safe", min_insync_replicas="2")
    produce(cluster, "safe", b"1")
    leader = cluster.leader("safe")
    for one in set(IDS) - {leader}:
        cluster.brokers[one].kill()
    eventually(lambda: cluster.isr("safe") == {leader}, "the leader is alone")
    with pytest.raises(KafkaException) as rejected:
        produce(cluster, "safe", b"2", message_timeout_ms=3000)
    # The producer repeats the request until its timeout.
    assert rejected.value.args[0].code() == KafkaError._MSG_TIMED_OUT


def test_leader_that_returns_at_once_with_an_empty_disk_loses_no_record(cluster: Cluster) -> None:
    values = [b"%d" % number for number in range(100)]
    produce(cluster, "clicks", *values)
    wiped = cluster.leader("clicks")
    cluster.brokers[wiped].kill()
    shutil.rmtree(cluster.brokers[wiped].data_dir)
    # Within the session timeout, so the znodes still say that it is in sync.
    cluster.brokers[wiped].start()
    eventually(lambda: cluster.isr("clicks") == set(IDS), "all replicas are in sync")
    produce(cluster, "clicks", b"100")
    assert consume(cluster, "clicks", "g", 101) == [*values, b"100"]


def test_first_broker_to_return_has_an_empty_disk(cluster: Cluster, znodes: KazooClient) -> None:
    values = [b"%d" % number for number in range(100)]
    produce(cluster, "clicks", *values)
    wiped = cluster.leader("clicks")
    for broker in cluster.brokers.values():
        broker.kill()
    shutil.rmtree(cluster.brokers[wiped].data_dir)
    cluster.brokers[wiped].start()

    def leader() -> int:
        state = json.loads(znodes.get("/brokers/topics/clicks/partitions/0/state")[0])
        number: int = state["leader"]
        return number

    # It becomes the controller, and is soon the only live broker.
    eventually(lambda: leader() == -1, "no leader")
    for one, broker in cluster.brokers.items():
        if one != wiped:
            broker.start()
    eventually(lambda: cluster.isr("clicks") == set(IDS), "all replicas are in sync")
    produce(cluster, "clicks", b"100")
    assert consume(cluster, "clicks", "g", 101) == [*values, b"100"]
