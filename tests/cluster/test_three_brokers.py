"""Three brokers on a real ZooKeeper: replication, failover, and other people's clients."""

from __future__ import annotations

import json
import shutil

import pytest
from confluent_kafka import KafkaError, KafkaException
from kazoo.exceptions import NoNodeError

from tests.cluster.clients import consume, produce
from tests.cluster.three_brokers import IDS, Cluster
from tests.helpers.eventually import eventually


def test_records_survive_the_leader(cluster: Cluster) -> None:
    topic = cluster.new_topic()
    produce(cluster, topic, b"1", b"2")
    assert consume(cluster, topic, topic, 2) == [b"1", b"2"]
    old = cluster.leader(topic)
    cluster.brokers[old].kill()
    eventually(lambda: cluster.leader(topic) not in (old, -1), "another leader")
    produce(cluster, topic, b"3")
    # The group's committed offset is on the remaining brokers, too.
    assert consume(cluster, topic, topic, 1) == [b"3"]
    assert old not in cluster.state(topic)["isr"]
    cluster.brokers[old].start()
    eventually(lambda: cluster.isr(topic) == set(IDS), "the old leader is in sync")
    produce(cluster, topic, b"4")
    assert consume(cluster, topic, topic, 1) == [b"4"]


def test_records_survive_the_death_of_all_brokers(cluster: Cluster) -> None:
    topic = cluster.new_topic()
    values = [b"%d" % number for number in range(100)]
    produce(cluster, topic, *values)
    for broker in cluster.brokers.values():
        broker.kill()
    cluster.start(*IDS)
    eventually(lambda: cluster.isr(topic) == set(IDS), "all replicas are in sync")
    produce(cluster, topic, b"100")
    assert consume(cluster, topic, topic, 101) == [*values, b"100"]


def test_another_broker_becomes_the_controller(cluster: Cluster) -> None:
    def controller() -> int:
        try:
            number: int = json.loads(cluster.znodes.get("/controller")[0])["brokerid"]
        except NoNodeError:
            return -1
        return number

    old = controller()
    cluster.brokers[old].kill()
    eventually(lambda: controller() not in (old, -1), "another controller")

    def create() -> str:
        try:
            return cluster.new_topic(4)
        except KafkaException:  # The controller learns of the broker when it has registered.
            return ""

    # Two brokers cannot hold three replicas.
    assert create() == ""
    cluster.brokers[old].start()
    topic = eventually(create, "a topic")
    produce(cluster, topic, b"1")
    cluster.znodes.delete("/controller")
    eventually(lambda: controller() != -1, "a controller")
    produce(cluster, topic, b"2")


def test_too_few_replicas_in_sync_reject_records(cluster: Cluster) -> None:
    topic = cluster.new_topic(min_insync_replicas="2")
    produce(cluster, topic, b"1")
    leader = cluster.leader(topic)
    for one in set(IDS) - {leader}:
        cluster.brokers[one].kill()
    eventually(lambda: cluster.isr(topic) == {leader}, "the leader is alone")
    with pytest.raises(KafkaException) as rejected:
        produce(cluster, topic, b"2", message_timeout_ms=3000)
    # The producer repeats the request until its timeout.
    assert rejected.value.args[0].code() == KafkaError._MSG_TIMED_OUT


def test_leader_that_returns_at_once_with_an_empty_disk_loses_no_record(cluster: Cluster) -> None:
    topic = cluster.new_topic()
    values = [b"%d" % number for number in range(100)]
    produce(cluster, topic, *values)
    wiped = cluster.leader(topic)
    cluster.brokers[wiped].kill()
    shutil.rmtree(cluster.brokers[wiped].data_dir)
    # Within the session timeout, so the znodes still say that it is in sync.
    cluster.brokers[wiped].start()
    eventually(lambda: cluster.isr(topic) == set(IDS), "all replicas are in sync")
    produce(cluster, topic, b"100")
    assert consume(cluster, topic, topic, 101) == [*values, b"100"]


def test_first_broker_to_return_has_an_empty_disk(cluster: Cluster) -> None:
    topic = cluster.new_topic()
    values = [b"%d" % number for number in range(100)]
    produce(cluster, topic, *values)
    wiped = cluster.leader(topic)
    for broker in cluster.brokers.values():
        broker.kill()
    shutil.rmtree(cluster.brokers[wiped].data_dir)
    cluster.brokers[wiped].start()
    # It becomes the controller, and is soon the only live broker.
    eventually(lambda: cluster.state(topic)["leader"] == -1, "no leader")
    cluster.start(*(one for one in IDS if one != wiped))
    eventually(lambda: cluster.isr(topic) == set(IDS), "all replicas are in sync")
    produce(cluster, topic, b"100")
    assert consume(cluster, topic, topic, 101) == [*values, b"100"]
