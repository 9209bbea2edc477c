"""plogd/tools/storage/zookeeper_state.py: the state that znodes of Kafka 3.9 describe."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from plog.types import uuid_to_text
from plogd.tools.storage.zookeeper_state import ZooKeeperUnusable, read_state, read_znodes
from tests.helpers.programs.kafka_data import CLUSTER_ID, topic_id

CLICKS = topic_id(1)


def _znodes(**more: Any) -> dict[str, bytes]:
    values: dict[str, Any] = {
        "/cluster/id": {"version": "1", "id": CLUSTER_ID},
        "/brokers/ids": None,
        "/brokers/topics": None,
        "/brokers/topics/clicks": {
            "version": 3,
            "topic_id": uuid_to_text(CLICKS),
            "partitions": {"10": [7, 8], "2": [8, 7]},
        },
        "/brokers/topics/clicks/partitions": None,
        "/brokers/topics/clicks/partitions/2/state": {
            "controller_epoch": 1, "leader": 8, "version": 1, "leader_epoch": 4, "isr": [8],
        },
        "/config/topics/clicks": {"version": 1, "config": {"retention.ms": "5"}},
        "/config/topics/gone": {"version": 1, "config": {"retention.ms": "5"}},
        "/config/brokers/<default>": {"version": 1, "config": {"log.retention.ms": "9"}},
        "/config/brokers/7": {"version": 1, "config": {}},
        "/latest_producer_id_block": {
            "version": 1, "broker": 7, "block_start": "1000", "block_end": "1999",
        },
        **{path.replace("__", "/"): value for path, value in more.items()},
    }  # fmt: skip
    return {
        path: b"" if value is None else json.dumps(value).encode() for path, value in values.items()
    }


def test_state_contains_topics_settings_and_producer_ids() -> None:
    state = read_state(_znodes(), cluster_id=CLUSTER_ID, node_id=7)
    topic = state.topics["clicks"]
    assert topic.topic_id == CLICKS
    assert list(topic.partitions) == [2, 10]
    assert topic.partitions[2].replicas == (8, 7)
    assert topic.partitions[2].isr == (8,)
    assert topic.partitions[2].leader_epoch == 4
    assert topic.partitions[10].isr == ()
    assert state.topic_configs == {"clicks": {"retention.ms": "5"}}
    assert state.broker_configs == {"": {"log.retention.ms": "9"}}
    assert state.next_producer_id == 2000
    assert state.may_hold_old_formats
    assert state.has_topic_configs


def test_topic_id_and_producer_ids_are_optional() -> None:
    znodes = _znodes(__brokers__topics__old={"version": 1, "partitions": {"0": [7]}})
    del znodes["/latest_producer_id_block"]
    state = read_state(znodes, cluster_id=CLUSTER_ID, node_id=7)
    assert state.topics["old"].topic_id is None
    assert state.next_producer_id is None


def test_topic_being_deleted_is_skipped() -> None:
    znodes = {**_znodes(), "/admin/delete_topics/clicks": b""}
    assert read_state(znodes, cluster_id=CLUSTER_ID, node_id=7).topics == {}


def test_unsupported_entities_are_counted() -> None:
    scram = {"config": {"SCRAM-SHA-256": "salt=…"}}
    quota = {"config": {"producer_byte_rate": "1"}}
    znodes = {
        **_znodes(),
        "/config/users": b"",
        "/config/users/alice": json.dumps(scram).encode(),
        "/config/users/bob": json.dumps(quota).encode(),
        "/config/clients/c": json.dumps(quota).encode(),
        "/config/clients/none": json.dumps({"config": {}}).encode(),
        "/kafka-acl/Topic/clicks": json.dumps({"version": 1, "acls": [{}, {}]}).encode(),
        "/delegation_token/tokens/t": b"{}",
    }
    assert read_state(znodes, cluster_id=CLUSTER_ID, node_id=7).not_imported == {
        "SCRAM users": 1,
        "client quotas": 2,
        "ACLs": 2,
        "delegation tokens": 1,
    }


def test_zookeeper_of_another_cluster_is_rejected() -> None:
    with pytest.raises(ZooKeeperUnusable, match="correct --zookeeper"):
        read_state(_znodes(), cluster_id="another", node_id=7)


def test_registered_broker_is_rejected_as_running() -> None:
    znodes = {**_znodes(), "/brokers/ids/7": b"{}"}
    with pytest.raises(ZooKeeperUnusable, match="broker 7 is registered"):
        read_state(znodes, cluster_id=CLUSTER_ID, node_id=7)


@pytest.mark.parametrize("content", [b"{", b'{"partitions": 3}', b'{"topic_id": "x"}'])
def test_error_names_undecodable_znode(content: bytes) -> None:
    znodes = {**_znodes(), "/brokers/topics/clicks": content}
    with pytest.raises(ZooKeeperUnusable, match="/brokers/topics/clicks"):
        read_state(znodes, cluster_id=CLUSTER_ID, node_id=7)


def test_missing_kazoo_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kazoo.client", None)
    with pytest.raises(ZooKeeperUnusable, match="kazoo is not installed; install Debian's python3"):
        read_znodes("host:1")
