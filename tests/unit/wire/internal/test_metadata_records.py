"""The records of the metadata log and their frame; other tests check the fields."""

from __future__ import annotations

import pytest

from plog.wire.internal.metadata_records import (
    METADATA_RECORDS,
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntityData,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from plog.wire.schema import WireError
from tests.unit.wire.filled import every_version, filled

TOPIC_ID = bytes(range(16))
TOPIC_ID_HEX = TOPIC_ID.hex()


@every_version(METADATA_RECORDS)
def test_record_survives_round_trip(message_type: type[MetadataRecord], version: int) -> None:
    record = filled(message_type, version, 9)
    assert decode_metadata_record(encode_metadata_record(record, version)) == record


@pytest.mark.parametrize(
    ("record", "version", "encoded"),
    [
        (TopicRecord(name="foo", topic_id=TOPIC_ID), 0, f"010200 04666f6f {TOPIC_ID_HEX} 00"),
        (RemoveTopicRecord(topic_id=TOPIC_ID), 0, f"010900 {TOPIC_ID_HEX} 00"),
        (FeatureLevelRecord(name="f", feature_level=7), 0, "010c00 0266 0007 00"),
        (
            ConfigRecord(resource_type=2, resource_name="t", name="a", value=None),
            0,
            "010400 02 0274 0261 00 00",
        ),
        (
            ProducerIdsRecord(broker_id=1, broker_epoch=2, next_producer_id=1000),
            0,
            "010f00 00000001 0000000000000002 00000000000003e8 00",
        ),
        (
            PartitionRecord(
                partition_id=0,
                topic_id=TOPIC_ID,
                replicas=[1],
                isr=[1],
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                directories=[bytes(16)],
            ),
            1,
            f"010301 00000000 {TOPIC_ID_HEX} 02 00000001 02 00000001 01 01"
            f"00000001 00000000 00000000 02 {bytes(16).hex()} 00",
        ),
        (
            RegisterBrokerRecord(
                broker_id=1,
                incarnation_id=TOPIC_ID,
                broker_epoch=5,
                end_points=[BrokerEndpoint(name="P", host="h", port=65535)],
                rack=None,
                fenced=False,
            ),
            0,
            f"010000 00000001 {TOPIC_ID_HEX} 000000000000000502 0250 0268 ffff 0000 00 01 00 00 00",
        ),
        (
            BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=-1),
            1,
            "011101 00000001 0000000000000005 01 00 01 ff",
        ),
        (
            AccessControlEntryRecord(
                id=TOPIC_ID,
                resource_type=2,
                resource_name="t",
                pattern_type=3,
                principal="U:a",
                host="*",
                operation=4,
                permission_type=3,
            ),
            0,
            f"011200 {TOPIC_ID_HEX} 02 0274 03 04553a61 022a 04 03 00",
        ),
        (RemoveAccessControlEntryRecord(id=TOPIC_ID), 0, f"011300 {TOPIC_ID_HEX} 00"),
        (
            ClientQuotaRecord(
                entity=[QuotaEntityData(entity_type="user", entity_name=None)], key="k", value=1.5
            ),
            0,
            "010e00 02 0575736572 00 00 026b 3ff8000000000000 00 00",
        ),
        (
            UserScramCredentialRecord(
                name="a",
                mechanism=1,
                salt=b"s",
                stored_key=b"k",
                server_key=b"v",
                iterations=4096,
            ),
            0,
            "010b00 0261 01 0273 026b 0276 00001000 00",
        ),
        (RemoveUserScramCredentialRecord(name="a", mechanism=2), 0, "011600 0261 02 00"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, MetadataRecord) else "",
)
def test_encoded_record_equals_kafkas(record: MetadataRecord, version: int, encoded: str) -> None:
    assert encode_metadata_record(record, version) == bytes.fromhex(encoded)
    assert decode_metadata_record(bytes.fromhex(encoded)) == record


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("", "0 bytes is truncated"),
        ("0102", "2 bytes is truncated"),
        ("000200", "key 2, frame version 0"),
        ("020200", "key 2, frame version 2"),
        ("016300", "key 99, frame version 1"),
        ("010201", "TopicRecord has no version 1"),
        (f"010900 {TOPIC_ID_HEX} 00 ff", "1 extra bytes follow the RemoveTopicRecord"),
        (f"010900 {TOPIC_ID_HEX}", "cannot decode RemoveTopicRecord version 0"),
    ],
)
def test_invalid_record_is_rejected(data: str, problem: str) -> None:
    with pytest.raises(WireError, match=problem):
        decode_metadata_record(bytes.fromhex(data))


def test_record_keys_are_unique() -> None:
    keys = [record.record_key for record in METADATA_RECORDS]
    assert len(set(keys)) == len(keys)


def test_repr_hides_credentials() -> None:
    record = UserScramCredentialRecord(
        name="a", salt=b"salt", stored_key=b"key1", server_key=b"key2"
    )
    assert "salt" not in repr(record)
    assert "key1" not in repr(record)
    assert "key2" not in repr(record)
