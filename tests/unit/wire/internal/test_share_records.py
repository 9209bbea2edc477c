"""The records of Kafka's share coordinator."""

from __future__ import annotations

from plog.wire.internal.share_records import (
    SHARE_MESSAGES,
    SHARE_RECORDS,
    SharePartitionKey,
    ShareSnapshotValue,
    StateBatch,
)
from plog.wire.schema import Message
from tests.unit.wire.filled import every_version, filled


@every_version(SHARE_MESSAGES)
def test_record_survives_round_trip(message_type: type[Message], version: int) -> None:
    record = filled(message_type, version, 4)
    assert message_type.decode(record.encode(version), version) == record


def test_encoded_records_equal_kafkas() -> None:
    key = SharePartitionKey(group_id="g", topic_id=bytes(15) + b"\x01", partition=2)
    assert key.encode(0) == bytes.fromhex(f"0001 67 {'00' * 15}01 00000002")
    value = ShareSnapshotValue(
        snapshot_epoch=1,
        leader_epoch=3,
        start_offset=4,
        state_batches=[StateBatch(first_offset=5, last_offset=6, delivery_count=7)],
    )
    assert value.encode(0) == bytes.fromhex(
        "00000001 00000000 00000003 0000000000000004" + "00" * 16 + "02"
        "0000000000000005 0000000000000006 00 0007 00 00"
    )
    assert set(SHARE_RECORDS) == {0, 1}
