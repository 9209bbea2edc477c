"""ACLs and SCRAM users of confluent-kafka's admin client, and clients that exceed their quotas."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.programs.confluent import (
    TIMEOUT_S,
    admin,
    admin_client,
    confluent_kafka,
    consumer,
    create_topic,
    produce,
)
from tests.helpers.programs.kafka_tools import KafkaTools

KafkaError = confluent_kafka.KafkaError


def _acl(name: str, **fields: Any) -> Any:
    values = {
        "restype": admin.ResourceType.TOPIC,
        "resource_pattern_type": admin.ResourcePatternType.LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": admin.AclOperation.READ,
        "permission_type": admin.AclPermissionType.ALLOW,
    }
    return admin.AclBinding(name=name, **(values | fields))


def _filter(name: str | None, pattern_type: Any) -> Any:
    return admin.AclBindingFilter(
        admin.ResourceType.TOPIC,
        name,
        pattern_type,
        None,
        None,
        admin.AclOperation.ANY,
        admin.AclPermissionType.ANY,
    )


def test_acls_are_created_described_and_deleted(own_broker: BrokerProcess) -> None:
    client = admin_client(own_broker.bootstrap_servers)
    pattern = admin.ResourcePatternType
    acls = [
        _acl("payments"),
        _acl("pay", resource_pattern_type=pattern.PREFIXED, host="192.0.2.1"),
        _acl("other", permission_type=admin.AclPermissionType.DENY),
    ]
    for future in client.create_acls([*acls]).values():
        future.result(TIMEOUT_S)
    matching = _filter("payments", pattern.MATCH)
    assert sorted(client.describe_acls(matching).result(TIMEOUT_S)) == sorted(acls[:2])

    # They survive a kill of the broker.
    own_broker.kill()
    own_broker.restart()
    client = admin_client(own_broker.bootstrap_servers)
    [deleted] = client.delete_acls([matching]).values()
    assert sorted(deleted.result(TIMEOUT_S)) == sorted(acls[:2])
    left = client.describe_acls(_filter(None, pattern.ANY)).result(TIMEOUT_S)
    assert left == [acls[2]]


def test_invalid_acl_is_refused(broker: BrokerProcess) -> None:
    client = admin_client(broker.bootstrap_servers)
    [refused] = client.create_acls([_acl("t", principal="nobody")]).values()
    with pytest.raises(confluent_kafka.KafkaException) as error:
        refused.result(TIMEOUT_S)
    assert error.value.args[0].code() == KafkaError.INVALID_REQUEST


def test_scram_users_are_set_described_and_removed(own_broker: BrokerProcess) -> None:
    client = admin_client(own_broker.bootstrap_servers)
    sha_512 = admin.ScramMechanism.SCRAM_SHA_512
    info = admin.ScramCredentialInfo(sha_512, 8192)
    upsertion = admin.UserScramCredentialUpsertion("alice", info, b"pencil", b"a salt")
    for future in client.alter_user_scram_credentials([upsertion]).values():
        future.result(TIMEOUT_S)

    own_broker.kill()
    own_broker.restart()
    client = admin_client(own_broker.bootstrap_servers)
    described = client.describe_user_scram_credentials().result(TIMEOUT_S)
    [credential] = described["alice"].scram_credential_infos
    assert (credential.mechanism, credential.iterations) == (sha_512, 8192)
    assert "pencil" not in own_broker.log_text()

    deletion = admin.UserScramCredentialDeletion("alice", sha_512)
    for future in client.alter_user_scram_credentials([deletion]).values():
        future.result(TIMEOUT_S)
    description = client.describe_user_scram_credentials(["alice"])["alice"]
    with pytest.raises(confluent_kafka.KafkaException) as error:
        description.result(TIMEOUT_S)
    assert error.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND


@pytest.fixture
def set_quota(kafka_tools: KafkaTools, own_broker: BrokerProcess) -> Callable[[str, int], None]:
    """A function that sets a quota of the client id "over" on this test's broker."""

    def set_one(name: str, value: int) -> None:
        kafka_tools.run(
            "ConfigCommand", "--bootstrap-server", own_broker.bootstrap_servers, "--alter",
            "--entity-type", "clients", "--entity-name", "over", "--add-config", f"{name}={value}",
        )  # fmt: skip

    return set_one


def test_producer_over_its_quota_is_throttled_and_loses_nothing(
    own_broker: BrokerProcess, set_quota: Callable[[str, int], None]
) -> None:
    set_quota("producer_byte_rate", 50_000)
    throttled: list[Any] = []
    config = {"client.id": "over", "throttle_cb": throttled.append}
    # 600 kB in a window of ten seconds exceed the quota by a fifth: a delay of two seconds.
    messages = [{"value": b"x" * 300_000, "partition": 0} for _ in range(2)]
    errors = produce(own_broker.bootstrap_servers, "t", messages, config)
    assert errors == [None, None]
    assert throttled
    assert max(event.throttle_time for event in throttled) > 0.5
    throttled.clear()
    config["client.id"] = "other"
    assert produce(own_broker.bootstrap_servers, "t", messages, config) == [None, None]
    assert throttled == []


def test_consumer_over_its_quota_is_throttled(
    own_broker: BrokerProcess, set_quota: Callable[[str, int], None]
) -> None:
    create_topic(own_broker.bootstrap_servers, "t")
    produce(own_broker.bootstrap_servers, "t", [{"value": b"x" * 300_000} for _ in range(8)])
    set_quota("consumer_byte_rate", 75_000)
    throttled: list[Any] = []
    settings = {"client_id": "over", "throttle_cb": throttled.append}
    with consumer(own_broker.bootstrap_servers, **settings) as client:
        client.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        received = 0
        deadline = time.monotonic() + TIMEOUT_S
        while not throttled:
            assert time.monotonic() < deadline, "the consumer was never throttled"
            message = client.poll(0.1)
            received += message is not None and message.error() is None
    assert 0 < received < 8, "only records within the quota may arrive"
    assert throttled[0].throttle_time > 0.5
