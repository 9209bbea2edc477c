"""The records of Kafka's transaction coordinator."""

from __future__ import annotations

from plog.wire.internal.transaction_records import (
    TRANSACTION_MESSAGES,
    TransactionLogKey,
    TransactionLogValue,
    TransactionPartitions,
)
from plog.wire.schema import Message
from tests.unit.wire.filled import every_version, filled


@every_version(TRANSACTION_MESSAGES)
def test_record_survives_round_trip(message_type: type[Message], version: int) -> None:
    record = filled(message_type, version, 4)
    assert message_type.decode(record.encode(version), version) == record


def test_encoded_records_equal_kafkas() -> None:
    assert TransactionLogKey(transactional_id="tx").encode(0).hex() == "00027478"
    value = TransactionLogValue(
        producer_id=7,
        producer_epoch=1,
        transaction_timeout_ms=60000,
        transaction_status=1,
        transaction_partitions=[TransactionPartitions(topic="t", partition_ids=[0])],
        transaction_last_update_timestamp_ms=2,
        transaction_start_timestamp_ms=1,
    )
    assert value.encode(0).hex(" ", 4) == bytes.fromhex(
        "0000000000000007 0001 0000ea60 01 00000001 0001 74 00000001 00000000"
        "0000000000000002 0000000000000001"
    ).hex(" ", 4)
