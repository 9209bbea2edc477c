"""plogd/tools/metadata/metadata_tree.py: the tree built from records, in Kafka's layout."""

from __future__ import annotations

from typing import Any

import pytest

from plog.wire.internal.kraft_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ClearElrRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FenceBrokerRecord,
    NoOpRecord,
    RegisterControllerRecord,
    RemoveDelegationTokenRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from plog.wire.internal.metadata_records import (
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntityData,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from plogd.tools.metadata.metadata_tree import MetadataTree

TOPIC_ID = bytes(range(16))
ID_TEXT = "AAECAwQFBgcICQoLDA0ODw"
TOPIC = TopicRecord(name="orders", topic_id=TOPIC_ID)
PARTITION = PartitionRecord(
    partition_id=0, topic_id=TOPIC_ID, replicas=[1, 2], isr=[1], leader=1, leader_epoch=4,
    partition_epoch=0, eligible_leader_replicas=[2],
)  # fmt: skip


def image(*records: MetadataRecord, from_plog: bool = False) -> dict[str, Any]:
    """Return the tree's ``image`` after all records."""
    tree = MetadataTree(from_plog=from_plog)
    for record in records:
        tree.replay(record)
    found = tree.root("offset 3", "1.0")["image"]
    assert isinstance(found, dict)
    return found


def _broker(**fields: Any) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(broker_id=1, broker_epoch=5, fenced=False, **fields)


def test_empty_tree_has_kafkas_branches() -> None:
    root = MetadataTree(from_plog=True).root("offset -1", "1.0")
    assert root["local"] == {"version": "1.0"}
    assert sorted(image()) == [
        "acls", "clientQuotas", "cluster", "configs", "delegationToken", "features",
        "producerIds", "provenance", "scram", "topics",
    ]  # fmt: skip
    assert image()["provenance"] == "offset 3"


def test_topic_is_listed_by_name_and_by_id() -> None:
    topics = image(TOPIC, PARTITION)["topics"]
    assert topics["byName"]["orders"] is topics["byId"][ID_TEXT]
    assert topics["byName"]["orders"]["id"] == ID_TEXT
    assert topics["byName"]["orders"]["name"] == "orders"
    assert str(topics["byName"]["orders"]["0"]) == (
        "PartitionRegistration(replicas=[1, 2], directories=[AAAAAAAAAAAAAAAAAAAAAA, "
        "AAAAAAAAAAAAAAAAAAAAAA], isr=[1], removingReplicas=[], addingReplicas=[], elr=[2], "
        "lastKnownElr=[], leader=1, leaderRecoveryState=RECOVERED, leaderEpoch=4, "
        "partitionEpoch=0)"
    )


def test_removed_topic_disappears_from_all_directories() -> None:
    setting = ConfigRecord(resource_type=2, resource_name="orders", name="a", value="b")
    found = image(TOPIC, PARTITION, setting, RemoveTopicRecord(topic_id=TOPIC_ID))
    assert found["topics"] == {"byId": {}, "byName": {}}
    assert found["configs"] == {}


def test_partition_change_leaves_absent_fields_unchanged() -> None:
    change = PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=[2], leader=2)
    again = PartitionChangeRecord(
        partition_id=0, topic_id=TOPIC_ID, replicas=[2, 3], removing_replicas=[2],
        adding_replicas=[3], directories=[bytes(16)] * 2, eligible_leader_replicas=[],
        last_known_elr=[1], leader_recovery_state=1,
    )  # fmt: skip
    text = str(image(TOPIC, PARTITION, change, again)["topics"]["byName"]["orders"]["0"])
    assert "replicas=[2, 3]" in text
    assert "isr=[2], removingReplicas=[2], addingReplicas=[3], elr=[], lastKnownElr=[1]" in text
    assert text.endswith(
        "leader=2, leaderRecoveryState=RECOVERING, leaderEpoch=5, partitionEpoch=2)"
    )


@pytest.mark.parametrize("name", ["", "orders"])
def test_clear_elr_record_clears_eligible_leaders(name: str) -> None:
    clear = ClearElrRecord(topic_name=name)
    text = str(image(TOPIC, PARTITION, clear, clear)["topics"]["byName"]["orders"]["0"])
    assert "elr=[]" in text
    assert text.endswith("partitionEpoch=1)")


@pytest.mark.parametrize(("from_plog", "epoch"), [(True, 5), (False, 4)])
def test_broker_start_adds_leader_epoch_only_in_plogs_log(from_plog: bool, epoch: int) -> None:
    found = image(TOPIC, PARTITION, _broker(), from_plog=from_plog)
    assert f"leaderEpoch={epoch}" in str(found["topics"]["byName"]["orders"]["0"])


def test_broker_is_displayed_in_one_line() -> None:
    record = _broker(
        rack="r1",
        end_points=[
            BrokerEndpoint(name="SSL", host="b", port=9093, security_protocol=1),
            BrokerEndpoint(name="PLAIN", host="a", port=9092),
        ],
        features=[BrokerFeature(name="f", min_supported_version=1, max_supported_version=3)],
    )
    assert str(image(record)["cluster"]["brokers"]["1"]) == (
        "BrokerRegistration(id=1, epoch=5, incarnationId=AAAAAAAAAAAAAAAAAAAAAA, "
        "listeners=[Endpoint(listenerName='PLAIN', securityProtocol=PLAINTEXT, host='a', "
        "port=9092), Endpoint(listenerName='SSL', securityProtocol=SSL, host='b', port=9093)], "
        "supportedFeatures={f: 1-3}, rack=Optional[r1], fenced=false, inControlledShutdown=false,"
        " isMigratingZkBroker=false, directories=[], cordonedDirectories=null)"
    )


def test_broker_state_changes_are_applied() -> None:
    change = BrokerRegistrationChangeRecord(broker_id=1, fenced=1, in_controlled_shutdown=1)
    text = str(image(_broker(), change)["cluster"]["brokers"]["1"])
    assert "fenced=true, inControlledShutdown=true" in text
    text = str(image(_broker(), FenceBrokerRecord(id=1))["cluster"]["brokers"]["1"])
    assert "fenced=true" in text
    change = BrokerRegistrationChangeRecord(broker_id=1, cordoned_log_dirs=[bytes(16)])
    text = str(image(_broker(), change)["cluster"]["brokers"]["1"])
    assert text.endswith("cordonedDirectories=[AAAAAAAAAAAAAAAAAAAAAA])")
    records = (_broker(), FenceBrokerRecord(id=1), UnfenceBrokerRecord(id=1))
    assert "fenced=false" in str(image(*records)["cluster"]["brokers"]["1"])
    assert image(_broker(), UnregisterBrokerRecord(broker_id=1))["cluster"]["brokers"] == {}


def test_controllers_are_displayed() -> None:
    text = image(RegisterControllerRecord(controller_id=3))["cluster"]["controllers"]["3"]
    assert text.startswith("ControllerRegistration(id=3, ")


def test_settings_are_listed_by_resource() -> None:
    found = image(
        ConfigRecord(resource_type=4, resource_name="", name="a", value="1"),
        ConfigRecord(resource_type=4, resource_name="7", name="b", value="2"),
        ConfigRecord(resource_type=2, resource_name="t", name="c", value="3"),
        ConfigRecord(resource_type=2, resource_name="t", name="c", value=None),
    )
    assert found["configs"] == {"BROKER": {"a": "1"}, "BROKER:7": {"b": "2"}}


def test_features_and_producer_ids_are_displayed() -> None:
    found = image(
        FeatureLevelRecord(name="metadata.version", feature_level=11),
        FeatureLevelRecord(name="group.version", feature_level=1),
        FeatureLevelRecord(name="gone", feature_level=1),
        FeatureLevelRecord(name="gone", feature_level=0),
        ProducerIdsRecord(next_producer_id=2000),
        NoOpRecord(),
    )
    assert found["features"] == {"metadataVersion": "3.5-IV2", "finalized_group.version": 1}
    assert found["producerIds"] == {"nextProducerId": 2000}
    assert image(FeatureLevelRecord(name="metadata.version", feature_level=999))["features"] == {
        "metadataVersion": "999"
    }


def test_quotas_are_listed_by_entity() -> None:
    def quota(remove: bool = False, **names: str | None) -> ClientQuotaRecord:
        entity = [
            QuotaEntityData(entity_type=kind.replace("_", "-"), entity_name=name)
            for kind, name in names.items()
        ]
        return ClientQuotaRecord(entity=entity, key="rate", value=1024.0, remove=remove)

    found = image(quota(user="a(b)", client_id=None), quota(ip="::1"), quota(ip="::1", remove=True))
    assert found["clientQuotas"] == {"clientId(<default>)_user(a\\(b\\))": {"rate": "1024.0"}}


def test_credentials_are_displayed_without_secrets() -> None:
    acl = AccessControlEntryRecord(
        id=TOPIC_ID, resource_type=2, resource_name="t", pattern_type=3, principal="User:a",
        host="*", operation=3, permission_type=99,
    )  # fmt: skip
    scram = UserScramCredentialRecord(name="a", mechanism=1, salt=b"secret", iterations=4096)
    token = DelegationTokenRecord(token_id="t1", owner="User:a")
    found = image(acl, scram, token)
    assert found["acls"]["byId"] == {
        ID_TEXT: "StandardAcl[resourceType=TOPIC, resourceName=t, patternType=LITERAL, "
        "principal=User:a, host=*, operation=READ, permissionType=UNKNOWN(99)]"
    }
    assert found["scram"]["SCRAM-SHA-256"] == {
        "a": "ScramCredentialData(salt=[redacted], storedKey=[redacted], serverKey=[redacted],"
        " iterations=4096)"
    }
    assert found["delegationToken"]["t1"].startswith("DelegationTokenDatatokenId=t1(owner=User:a(")
    found = image(
        acl, scram, token,
        RemoveAccessControlEntryRecord(id=TOPIC_ID),
        RemoveUserScramCredentialRecord(name="a", mechanism=1),
        RemoveDelegationTokenRecord(token_id="t1"),
    )  # fmt: skip
    assert (found["acls"], found["scram"]["SCRAM-SHA-256"]) == ({"byId": {}}, {})
    assert found["delegationToken"] == {}


def test_metadata_transaction_takes_effect_at_its_end_record() -> None:
    begin = BeginTransactionRecord()
    assert image(begin, TOPIC)["topics"]["byName"] == {}
    assert image(begin, TOPIC, AbortTransactionRecord(), NoOpRecord())["topics"]["byName"] == {}
    assert list(image(begin, TOPIC, EndTransactionRecord())["topics"]["byName"]) == ["orders"]


def test_record_about_unknown_entity_raises_key_error() -> None:
    with pytest.raises(KeyError):
        image(PARTITION)
