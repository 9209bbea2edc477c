"""plogd/tools/dump/decoders.py: keys and values as text, and internal topics as Kafka's JSON."""

from __future__ import annotations

import pytest

from plog.cli.options import UsageError
from plog.errors import PlogError
from plog.records.codec import Record
from plog.wire.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedPartitions,
    encode_subscription,
)
from plog.wire.internal.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_key,
    encode_value,
)
from plog.wire.internal.kraft_records import FenceBrokerRecord
from plog.wire.internal.metadata_records import TopicRecord, encode_metadata_record
from plog.wire.internal.remote_log_records import RemotePartitionDeleteMetadataRecord
from plog.wire.internal.share_records import SharePartitionKey, ShareUpdateValue, StateBatch
from plogd.tools.dump.decoders import STRING_DECODER, choose_decoder, decoder_class

OFFSETS = choose_decoder("offsets_decoder", STRING_DECODER, STRING_DECODER)
TRANSACTIONS = choose_decoder("transaction_log_decoder", STRING_DECODER, STRING_DECODER)
METADATA = choose_decoder("cluster_metadata_decoder", STRING_DECODER, STRING_DECODER)


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("org.apache.kafka.tools.api.StringDecoder", b"\xc3\xa4\xff", "ä\ufffd"),
        ("kafka.serializer.StringDecoder", b"a", "a"),
        ("IntegerDecoder", b"\xff\xff\xff\xfe", "-2"),
        ("org.apache.kafka.tools.api.LongDecoder", bytes(7) + b"\x09", "9"),
        ("org.apache.kafka.tools.api.DefaultDecoder", b"\x00\xff", "00ff"),
    ],
)
def test_decoder_class_decodes_bytes(name: str, data: bytes, text: str) -> None:
    assert decoder_class(name)(data) == text


def test_decoder_rejects_short_number_and_unknown_package() -> None:
    with pytest.raises(PlogError, match="LongDecoder needs 8 bytes, but the data is 3 bytes long"):
        decoder_class("LongDecoder")(b"123")
    with pytest.raises(UsageError, match="choose one of StringDecoder"):
        decoder_class("com.example.StringDecoder")


def test_committed_offset_is_decoded_to_json() -> None:
    key = encode_key(OffsetCommitKey(group="g", topic="t", partition=2))
    value = encode_value(OffsetCommitValue(offset=5, metadata="m", commit_timestamp=9))
    assert OFFSETS(Record(key=key, value=value)) == (
        '{"type":"1","data":{"group":"g","topic":"t","partition":2}}',
        '{"version":"3","data":{"offset":5,"leaderEpoch":-1,"metadata":"m","commitTimestamp":9}}',
    )
    assert OFFSETS(Record(key=key, value=None))[1] == "<DELETE>"


def _group(protocol_type: str) -> Record:
    subscription = ConsumerProtocolSubscription(topics=["t"], generation_id=4)
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[OwnedPartitions(topic="t", partitions=[0, 1])]
    )
    member = MemberMetadata(
        member_id="m",
        client_id="c",
        client_host="/127.0.0.1",
        subscription=encode_subscription(subscription, 2),
        assignment=b"\x00\x01" + assignment.encode(1),
    )
    value = GroupMetadataValue(protocol_type=protocol_type, members=[member])
    return Record(key=encode_key(GroupMetadataKey(group="g")), value=encode_value(value))


def test_subscription_and_assignment_of_consumer_are_decoded() -> None:
    key, value = OFFSETS(_group("consumer"))
    assert key == '{"type":"2","data":{"group":"g"}}'
    assert value is not None
    assert (
        '"subscription":{"topics":["t"],"userData":null,"ownedPartitions":[],"generationId":4},'
        '"assignment":{"assignedPartitions":[{"topic":"t","partitions":[0,1]}],"userData":null}'
    ) in value


def test_subscription_of_another_protocol_stays_bytes() -> None:
    _, value = OFFSETS(_group("connect"))
    assert value is not None
    assert '"subscription":"AAI' in value


def test_invalid_subscription_stays_bytes() -> None:
    record = _group("consumer")
    member = MemberMetadata(member_id="m", subscription=b"\x00", assignment=b"\x00\x00\x00")
    value = GroupMetadataValue(protocol_type="consumer", members=[member])
    _, shown = OFFSETS(record._replace(value=encode_value(value)))
    assert shown is not None
    assert '"subscription":"AA==","assignment":"AAAA"' in shown


def test_record_of_unknown_type_is_skipped() -> None:
    assert OFFSETS(Record(offset=7, key=b"\x00\x63rest")) == (
        "Unknown record type 99 at offset 7, skipping.",
        None,
    )


@pytest.mark.parametrize(
    "record",
    [
        Record(offset=7, key=b"\x00"),
        Record(offset=7, key=b"\x00\x01\x00"),
        Record(offset=7, key=b"\x00\x02\x00\x01g", value=b"\x00\x63"),
        Record(offset=7, key=b"\x00\x02\x00\x01g", value=b"\x00"),
    ],
)
def test_undecodable_record_becomes_an_error_line(record: Record) -> None:
    key, value = OFFSETS(record)
    assert key is not None
    assert key.startswith("Error at offset 7, skipping. ")
    assert value is None


def test_record_without_key_is_rejected() -> None:
    with pytest.raises(PlogError, match="at offset 7: it does not have a key"):
        OFFSETS(Record(offset=7, value=b""))


def test_transaction_record_is_decoded_to_json() -> None:
    key = bytes.fromhex("0000 0002 7478")
    value = bytes.fromhex(
        "0000 0000000000000007 0001 0000ea60 00 ffffffff 0000000000000002 ffffffffffffffff"
    )
    assert TRANSACTIONS(Record(key=key, value=value)) == (
        '{"type":"0","data":{"transactionalId":"tx"}}',
        '{"version":"0","data":{"producerId":7,"producerEpoch":1,"transactionTimeoutMs":60000,'
        '"transactionStatus":0,"transactionPartitions":null,'
        '"transactionLastUpdateTimestampMs":2,"transactionStartTimestampMs":-1}}',
    )


def test_metadata_record_is_decoded_to_json_with_its_type() -> None:
    topic = TopicRecord(name="t", topic_id=bytes(16))
    assert METADATA(Record(value=encode_metadata_record(topic, 0))) == (
        None,
        '{"type":"TOPIC_RECORD","version":0,"data":{"name":"t",'
        '"topicId":"AAAAAAAAAAAAAAAAAAAAAA"}}',
    )
    _, fenced = METADATA(Record(value=encode_metadata_record(FenceBrokerRecord(id=1), 0)))
    assert fenced is not None
    assert fenced.startswith('{"type":"FENCE_BROKER_RECORD"')
    _, broken = METADATA(Record(offset=3, value=b"\x01"))
    assert broken is not None
    assert broken.startswith("Error at 3, skipping. ")


def test_share_group_state_is_decoded_to_json() -> None:
    shares = choose_decoder("share_group_state_decoder", STRING_DECODER, STRING_DECODER)
    key = SharePartitionKey(group_id="g", topic_id=bytes(16), partition=2).encode(0)
    value = ShareUpdateValue(
        snapshot_epoch=1,
        leader_epoch=3,
        start_offset=-1,
        state_batches=[StateBatch(first_offset=5, last_offset=6, delivery_count=7)],
    )
    record = Record(key=b"\0\1" + key, value=b"\0\0" + value.encode(0))
    assert shares(record) == (
        '{"type":"1","data":{"groupId":"g","topicId":"AAAAAAAAAAAAAAAAAAAAAA","partition":2}}',
        '{"version":"0","data":{"snapshotEpoch":1,"leaderEpoch":3,"startOffset":-1,'
        '"stateBatches":[{"firstOffset":5,"lastOffset":6,"deliveryState":0,"deliveryCount":7}]}}',
    )
    assert shares(Record(key=b"\0\1" + key, value=None))[1] == "<DELETE>"


def test_remote_log_metadata_is_decoded_to_text() -> None:
    remote = choose_decoder("remote_log_metadata_decoder", STRING_DECODER, STRING_DECODER)
    record = RemotePartitionDeleteMetadataRecord(broker_id=1)
    key, text = remote(Record(value=encode_metadata_record(record, 0)))
    assert key is None
    assert text is not None
    assert text.startswith("RemotePartitionDeleteMetadata{topicPartition=")
    assert remote(Record(offset=3, value=None)) == (
        None,
        "Error at offset 3, skipping. a metadata record of 0 bytes is truncated",
    )
