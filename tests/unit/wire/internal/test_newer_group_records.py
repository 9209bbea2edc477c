"""Records of groups that plog does not coordinate."""

from __future__ import annotations

import pytest

from plog.wire.internal.newer_group_records import (
    NEWER_GROUP_MESSAGES,
    NEWER_GROUP_RECORDS,
    AssignedTopicWithEpochs,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMetadataValue,
    MemberKey,
)
from plog.wire.schema import Message
from tests.unit.wire.filled import every_version, filled


@every_version(NEWER_GROUP_MESSAGES)
@pytest.mark.parametrize("nulls", [False, True])
def test_record_survives_round_trip(message_type: type[Message], version: int, nulls: bool) -> None:
    record = filled(message_type, version, 4, nulls=nulls)
    assert message_type.decode(record.encode(version), version) == record


@pytest.mark.parametrize(
    ("record", "encoded"),
    [
        (MemberKey(group_id="g", member_id="m"), "0001 67 0001 6d"),
        (ConsumerGroupMetadataValue(epoch=7), "00000007 00"),
        (
            ConsumerGroupMetadataValue(epoch=7, metadata_hash=1),
            "00000007 01 00 08 0000000000000001",
        ),
        (
            ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=2,
                previous_member_epoch=1,
                assigned_partitions=[AssignedTopicWithEpochs(topic_id=bytes(16), partitions=[3])],
            ),
            f"00000002 00000001 00 02 {'00' * 16} 02 00000003 00 01 00",
        ),
    ],
)
def test_encoded_record_equals_kafkas(record: Message, encoded: str) -> None:
    assert record.encode(0) == bytes.fromhex(encoded)


def test_key_of_each_record_type_is_not_flexible() -> None:
    assert all(key.flexible_from > key.max_version for key, _ in NEWER_GROUP_RECORDS.values())
    assert not {0, 1, 2} & set(NEWER_GROUP_RECORDS)
