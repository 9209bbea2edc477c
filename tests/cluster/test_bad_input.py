"""Wrong settings, znodes and requests: a clear error, and everything else is served.

test_one_broker.py has the tests of a ZooKeeper that is away, and of two brokers with one id.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from kazoo.client import KazooClient

from plog.errors import ErrorCode
from plog.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from plogd.testing.broker_process import BrokerFailed, BrokerProcess
from tests.cluster.clients import admin, consume, create, create_on, produce
from tests.cluster.conftest import StartBroker
from tests.fault.peers import Peer
from tests.helpers.eventually import TIMEOUT_S, eventually

STATE = "/brokers/topics/{}/partitions/0/state"


def refusal(broker: BrokerProcess) -> str:
    """Return why the broker does not start."""
    with pytest.raises(BrokerFailed, match=r"exited with code 1"):
        broker.start()
    [line] = re.findall(r"cannot start: .*", broker.log_text())
    return str(line)


def leaders(broker: BrokerProcess) -> dict[str, int]:
    """Return the leader of partition 0 of each topic that clients see."""
    topics = admin(broker).list_topics(timeout=TIMEOUT_S).topics
    return {name: topic.partitions[0].leader for name, topic in topics.items()}


def test_directories_of_another_cluster_are_refused(make_broker: StartBroker, connect: str) -> None:
    with make_broker() as broker:
        create(broker, "clicks")
        produce(broker, "clicks", b"1")
    other = make_broker("other", zookeeper_connect=f"{connect}-other")
    with other:
        create(other, "views")
    mixed = make_broker(
        "mixed", zookeeper_connect=f"{connect}-other", log_dirs=str(broker.data_dir)
    )
    text = refusal(mixed)
    assert "log.dirs belong to cluster" in text
    assert text.endswith("correct zookeeper.connect or log.dirs")
    with broker:
        assert consume(broker, "clicks", "g", 1) == [b"1"]


def test_chroot_of_another_program_is_refused(
    make_broker: StartBroker, znodes: KazooClient
) -> None:
    chroot, znodes.chroot = znodes.chroot, ""
    znodes.create(f"{chroot}/cluster/id", b"\x00hbase", makepath=True)
    znodes.chroot = chroot
    text = refusal(make_broker())
    assert "cannot decode the znode /cluster/id" in text
    assert znodes.get("/cluster/id")[0] == b"\x00hbase"


def test_chroot_of_a_kraft_controller_is_refused(
    make_broker: StartBroker, znodes: KazooClient
) -> None:
    with make_broker() as broker:
        create(broker, "clicks")
    znodes.create("/migration", b'{"version":0,"kraft_controller_id":3000}')
    again = make_broker()
    text = refusal(again)
    assert "a KRaft controller has taken over its znodes; set another chroot" in text
    assert znodes.exists("/controller") is None


@pytest.mark.parametrize("path", ["/brokers/topics/bad", STATE.format("bad")])
def test_topic_with_a_damaged_znode_is_offline_and_others_are_served(
    make_broker: StartBroker, znodes: KazooClient, path: str
) -> None:
    with make_broker() as broker:
        create(broker, "bad")
        create(broker, "good")
        produce(broker, "bad", b"kept")
        produce(broker, "good", b"1")
    sound = znodes.get(path)[0]
    znodes.set(path, sound[: len(sound) // 2])
    with broker:
        assert consume(broker, "good", "g", 1) == [b"1"]
        assert f"cannot decode the znode {path}" in broker.log_text()
        assert "bad" not in leaders(broker)
    znodes.set(path, sound)
    with broker:
        assert consume(broker, "bad", "g", 1) == [b"kept"]


def test_replicas_on_unknown_brokers_have_no_leader_until_they_exist(
    make_broker: StartBroker, znodes: KazooClient
) -> None:
    with make_broker() as broker:
        for name in ("alone", "shared", "good"):
            create(broker, name)
            produce(broker, name, b"1")
    for name, replicas in (("alone", [9]), ("shared", [9, 1])):
        topic = json.loads(znodes.get(f"/brokers/topics/{name}")[0])
        topic["partitions"]["0"] = replicas
        znodes.set(f"/brokers/topics/{name}", json.dumps(topic).encode())
    state = json.loads(znodes.get(STATE.format("alone"))[0])
    znodes.set(STATE.format("alone"), json.dumps({**state, "leader": 9, "isr": [9]}).encode())
    with broker:
        expected = {"alone": -1, "shared": 1, "good": 1}
        eventually(lambda: expected.items() <= leaders(broker).items(), "leaders")
        produce(broker, "shared", b"2")
        assert consume(broker, "shared", "g", 2) == [b"1", b"2"]
        assert consume(broker, "good", "h", 1) == [b"1"]


def test_topic_cannot_be_created_on_an_unknown_broker(make_broker: StartBroker) -> None:
    with make_broker() as broker:
        with pytest.raises(KafkaException) as rejected:
            create_on(broker, "clicks", 1, 9)
        error = rejected.value.args[0]
        assert error.code() == KafkaError.INVALID_REPLICA_ASSIGNMENT
        assert "unknown brokers: [9]" in error.str()
        create(broker, "views")


def test_control_request_of_a_client_is_rejected(make_broker: StartBroker) -> None:
    broker = make_broker(
        listeners="CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
        listener_security_protocol_map="CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
        inter_broker_listener_name="BROKERS",
    )
    with broker:
        create(broker, "clicks")
        produce(broker, "clicks", b"1")
        state = LeaderAndIsrPartitionState(
            partition_index=0,
            controller_epoch=1000,
            leader=9,
            leader_epoch=1000,
            isr=[9],
            partition_epoch=1000,
            replicas=[9],
        )
        request = LeaderAndIsrRequest(
            controller_id=9,
            controller_epoch=1000,
            broker_epoch=-1,
            topic_states=[LeaderAndIsrTopicState(topic_name="clicks", partition_states=[state])],
        )
        with Peer(broker.addresses[0]) as peer:
            response: Any = peer.request(request, 5)
        assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        produce(broker, "clicks", b"2")
        assert consume(broker, "clicks", "g", 2) == [b"1", b"2"]
