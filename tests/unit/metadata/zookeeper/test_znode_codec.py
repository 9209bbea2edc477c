"""The contents of znodes: what Kafka writes, what is damaged, and what plog writes back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plog.enums import AclOperation, AclPatternType, AclPermission, AclResourceType
from plog.types import ZERO_UUID, TopicPartition, uuid_from_text
from plog.zookeeper.operations import ZnodeStat
from plogd.metadata.store import (
    BrokerRegistration,
    Endpoint,
    Key,
    PartitionValue,
    ProducerIdsValue,
    TopicValue,
)
from plogd.metadata.zookeeper.znode_codec import decode_znode, encode_znode
from plogd.quota import QuotaEntity, quota_key
from plogd.security.acl import Acl, ResourcePattern, acl_key
from plogd.security.scram import ScramCredential

STAT = ZnodeStat(version=7, czxid=42, mzxid=43)
ID = "AAAAAAAAAAAAAAAAAAAAAg"
STATE_PATH = "/brokers/topics/t/partitions/0/state"
USER = "/config/users/CN%3Dal%20ice"
SALT = "c2FsdA=="


def decode(path: str, text: str) -> dict[Key, Any]:
    return decode_znode(path, text.encode(), STAT)


READ: list[tuple[str, str, dict[Key, Any]]] = [
    (
        "/brokers/topics/t",
        '{"removing_replicas":{},"partitions":{"10":[2,1],"2":[1]},"topic_id":"' + ID + '",'
        '"adding_replicas":{"10":[2]},"version":3}',
        {
            ("topic", "t"): TopicValue(
                topic_id=uuid_from_text(ID),
                assignments={2: (1,), 10: (2, 1)},
                adding_replicas={10: (2,)},
            )
        },
    ),
    (
        "/brokers/topics/old",
        '{"version":1,"partitions":{"0":[1]}}',
        {("topic", "old"): TopicValue(topic_id=ZERO_UUID, assignments={0: (1,)})},
    ),
    (
        STATE_PATH,
        '{"controller_epoch":3,"leader":-1,"version":1,"leader_epoch":5,"isr":[2,1],'
        '"leader_recovery_state":1}',
        {
            ("partition", "t", 0): PartitionValue(
                leader=-1, leader_epoch=5, isr=(2, 1), partition_epoch=7, is_recovering=True
            )
        },
    ),
    (
        "/brokers/ids/3",
        '{"features":{},"listener_security_protocol_map":{"IN":"SSL","OUT":"PLAINTEXT"},'
        '"endpoints":["IN://h:1","OUT://[::1]:2"],"jmx_port":-1,"port":2,"host":"::1",'
        '"version":5,"timestamp":"1","rack":"r"}',
        {
            ("broker", 3): BrokerRegistration(
                broker_id=3,
                incarnation_id=ZERO_UUID,
                endpoints=(
                    Endpoint(name="IN", host="h", port=1, security_protocol="SSL"),
                    Endpoint(name="OUT", host="::1", port=2, security_protocol="PLAINTEXT"),
                ),
                rack="r",
                broker_epoch=42,
            )
        },
    ),
    (
        "/brokers/ids/4",
        '{"version":1,"host":"h","port":9092,"jmx_port":9999,"timestamp":"1"}',
        {
            ("broker", 4): BrokerRegistration(
                broker_id=4,
                incarnation_id=ZERO_UUID,
                endpoints=(
                    Endpoint(name="PLAINTEXT", host="h", port=9092, security_protocol="PLAINTEXT"),
                ),
                broker_epoch=42,
            )
        },
    ),
    (
        "/config/topics/t",
        '{"version":1,"config":{"retention.ms":"1","n":2,"b":true}}',
        {("config", "topic", "t"): {"retention.ms": "1", "n": "2", "b": "true"}},
    ),
    ("/config/topics/t", '{"version":1,"config":{}}', {}),
    ("/config/topics/t", "", {}),
    ("/config/brokers/<default>", '{"config":{"a":"b"}}', {("config", "broker", ""): {"a": "b"}}),
    (
        USER,
        '{"version":1,"config":{"SCRAM-SHA-512":"salt=' + SALT + ",stored_key=" + SALT
        + ",server_key=" + SALT + ',iterations=4096","request_percentage":"12.5","x":"y"}}',
        {
            quota_key(QuotaEntity(user="CN=al ice")): {"request_percentage": 12.5},
            ("scram", "CN=al ice", 2): ScramCredential(
                salt=b"salt", stored_key=b"salt", server_key=b"salt", iterations=4096
            ),
        },
    ),
    (
        "/config/users/<default>/clients/<default>",
        '{"version":1,"config":{"producer_byte_rate":"1E9"}}',
        {quota_key(QuotaEntity(user="", client_id="")): {"producer_byte_rate": 1e9}},
    ),
    (
        "/config/clients/c",
        '{"config":{"consumer_byte_rate":"1"}}',
        {quota_key(QuotaEntity(client_id="c")): {"consumer_byte_rate": 1.0}},
    ),
    (
        "/config/ips/%3A%3A1",
        '{"config":{"connection_creation_rate":"5"}}',
        {quota_key(QuotaEntity(ip="::1")): {"connection_creation_rate": 5.0}},
    ),
    ("/latest_producer_id_block", "", {}),
    (
        "/latest_producer_id_block",
        '{"version":1,"broker":2,"block_start":"1000","block_end":"1999"}',
        {
            ("producer_ids",): ProducerIdsValue(
                broker_id=2, broker_epoch=-1, next_producer_id=2000
            )
        },
    ),
    (
        "/feature",
        '{"features":{"f":{"max_version_level":3}},"version":2,"status":1}',
        {("feature", "f"): 3},
    ),
    ("/feature", '{"features":{},"version":1,"status":0}', {}),
    ("/controller", '{"version":1,"brokerid":5,"timestamp":"1"}', {("controller",): 5}),
    ("/admin/delete_topics/t", "", {("delete_topic", "t"): True}),
    (
        "/admin/reassign_partitions",
        '{"version":1,"partitions":[{"topic":"t","partition":1,"replicas":[3]}]}',
        {("reassign_partitions",): {TopicPartition("t", 1): (3,)}},
    ),
    (
        "/log_dir_event_notification/log_dir_event_0000000012",
        '{"version":1,"broker":2,"event":1}',
        {("log_dir_failure", 12): 2},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("path", "text", "values"), READ, ids=lambda x: str(x)[:40])
def test_znode_is_decoded(path: str, text: str, values: dict[Key, Any]) -> None:
    assert decode(path, text) == values


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/brokers/topics/t", ""),
        ("/brokers/topics/t", "[1]"),
        ("/brokers/topics/t", '{"partitions":{}}'),
        ("/brokers/topics/t", '{"partitions":{"x":[1]}}'),
        ("/brokers/topics/t", '{"partitions":{"0":[true]}}'),
        ("/brokers/topics/t", '{"partitions":{"0":1}}'),
        ("/brokers/topics/t", '{"partitions":{"0":[1]},"topic_id":"short"}'),
        ("/brokers/topics/t", '{"partitions":{"0":[1]},"x":NaN}'),
        ("/brokers/topics/t", "[" * 100_000),
        (STATE_PATH, '{"controller_epoch":3,"leader":1,"leader_epoch":5}'),
        (STATE_PATH, '{"controller_epoch":3,"leader":"1","leader_epoch":5,"isr":[1]}'),
        ("/brokers/topics/t/partitions/x/state", "{}"),
        ("/brokers/ids/1", '{"version":0}'),
        ("/brokers/ids/1", '{"version":5,"endpoints":["h:1"]}'),
        ("/brokers/ids/1", '{"version":5,"endpoints":[],"rack":1}'),
        ("/config/topics/t", '{"config":[]}'),
        ("/config/topics/t", '{"config":{"a":null}}'),
        ("/config/clients/c", '{"config":{"producer_byte_rate":"fast"}}'),
        ("/config/clients/c", '{"config":{"producer_byte_rate":"inf"}}'),
        ("/config/clients/%ff", '{"config":{}}'),
        ("/config/unknown/c", '{"config":{}}'),
        ("/latest_producer_id_block", '{"broker":1,"block_end":"9223372036854775808"}'),
        ("/latest_producer_id_block", '{"broker":1,"block_end":5}'),
        ("/feature", '{"version":3,"status":1}'),
        ("/controller", "{}"),
        ("/kafka-acl/Topic/t", '{"version":2,"acls":[]}'),
        ("/kafka-acl/Topic/t", '{"version":1,"acls":[{}]}'),
        ("/kafka-acl/Unknown/t", '{"version":1,"acls":[]}'),
        ("/unknown", "{}"),
    ],
    ids=lambda x: x[:40],
)
def test_damaged_znode_is_an_error(path: str, text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode(path, text)


def test_damaged_credential_is_an_error_without_secrets() -> None:
    with pytest.raises(ValueError, match="SCRAM-SHA-256 is damaged") as caught:
        decode(USER, '{"config":{"SCRAM-SHA-256":"salt=secret,stored_key=?"}}')
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_data_is_decoded_or_damaged(data: bytes) -> None:
    for path in {path for path, _, _ in READ}:
        try:
            decode_znode(path, data, STAT)
        except ValueError:
            pass


class TestAcls:
    """Rules of a resource."""

    PATH = "/kafka-acl-extended/prefixed/TransactionalId/pay"
    PATTERN = ResourcePattern(
        resource_type=AclResourceType.TRANSACTIONAL_ID,
        name="pay",
        pattern_type=AclPatternType.PREFIXED,
    )
    RULE = Acl(
        pattern=PATTERN,
        principal="User:alice",
        host="*",
        operation=AclOperation.DESCRIBE_CONFIGS,
        permission=AclPermission.DENY,
    )

    def test_rules_are_written_and_read(self) -> None:
        data = encode_znode(self.PATH, {acl_key(self.RULE): self.RULE}, None, term=None)
        assert data is not None
        assert json.loads(data) == {
            "version": 1,
            "acls": [
                {
                    "principal": "User:alice",
                    "permissionType": "Deny",
                    "operation": "DescribeConfigs",
                    "host": "*",
                }
            ],
        }
        assert decode(self.PATH, data.decode()) == {acl_key(self.RULE): self.RULE}

    def test_rule_of_a_newer_kafka_is_kept(self) -> None:
        newer = {
            "principal": "User:bob", "permissionType": "Allow", "operation": "Fly", "host": "h",
            "reason": "x",
        }  # fmt: skip
        old = json.dumps({"version": 1, "acls": [newer]}).encode()
        [unknown] = decode(self.PATH, old.decode()).values()
        assert unknown.operation == AclOperation.UNKNOWN
        data = encode_znode(self.PATH, {acl_key(self.RULE): self.RULE}, old, term=None)
        assert json.loads(data or b"")["acls"][0] == newer

    def test_znode_without_rules_is_deleted(self) -> None:
        old = encode_znode(self.PATH, {acl_key(self.RULE): self.RULE}, None, term=None)
        assert encode_znode(self.PATH, {acl_key(self.RULE): None}, old, term=None) is None


class TestEncoding:
    """What plog writes."""

    def test_partition_state_is_the_line_that_operators_know(self) -> None:
        value = PartitionValue(leader=1, leader_epoch=0, isr=(1,), partition_epoch=0)
        data = encode_znode(STATE_PATH, {("partition", "t", 0): value}, None, term=1)
        assert data == b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'

    def test_block_of_producer_ids_starts_after_the_last(self) -> None:
        path = "/latest_producer_id_block"
        old: bytes | None = b""
        for first in (0, 1000):
            value = ProducerIdsValue(broker_id=1, broker_epoch=9, next_producer_id=first + 1000)
            old = encode_znode(path, {("producer_ids",): value}, old, term=None)
            assert json.loads(old or b"") == {
                "version": 1,
                "broker": 1,
                "block_start": str(first),
                "block_end": str(first + 999),
            }

    @pytest.mark.parametrize("key", [("broker", 1), ("controller",), ("feature", "f")])
    def test_read_only_key_is_an_error(self, key: Key) -> None:
        with pytest.raises(ValueError, match="read-only"):
            encode_znode("/x", {key: 1}, None, term=None)

    def test_topic_or_partition_without_term_is_an_error(self) -> None:
        state = PartitionValue(leader=1, leader_epoch=0, isr=(1,), partition_epoch=0)
        topic = TopicValue(topic_id=ZERO_UUID, assignments={0: (1,)})
        changes: list[dict[Key, Any]] = [{("partition", "t", 0): state}, {("topic", "t"): topic}]
        for change in changes:
            with pytest.raises(ValueError, match="only the controller"):
                encode_znode(STATE_PATH, change, None, term=None)
