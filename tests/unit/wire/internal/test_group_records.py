"""The records of `__consumer_offsets`, compared with bytes of Kafka 4.3.1's own serializer."""

from __future__ import annotations

from typing import Any

import pytest

from plog.wire.internal.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    decode,
    encode_key,
    encode_value,
)
from plog.wire.schema import WireError

TOPIC_ID = bytes.fromhex("00000000000000010000000000000002")
OFFSET_KEY = OffsetCommitKey(group="grün", topic="t", partition=7)
OFFSET_KEY_BYTES = "000100056772c3bc6e00017400000007"
GROUP_KEY = GroupMetadataKey(group="g")
GROUP_KEY_BYTES = "0002000167"

OFFSET_VALUES = [
    ("0000000000000000002a00016d00000000000003e8", {}),
    ("0001000000000000002a00016d00000000000003e800000000000007d0", {"expire_timestamp": 2000}),
    ("0002000000000000002a00016d00000000000003e8", {}),
    ("0003000000000000002a0000000500016d00000000000003e8", {"leader_epoch": 5}),
    (
        f"0004000000000000002a00000005026d00000000000003e8010010{TOPIC_ID.hex()}",
        {"leader_epoch": 5, "topic_id": TOPIC_ID},
    ),
]
HEAD = "0008636f6e73756d657200000003000572616e676500026d31"
GROUP_VALUES = [
    f"0000{HEAD}0000000100026d3100016300022f680000002d0000000101000000020203",
    f"0001{HEAD}0000000100026d3100016300022f680000012c0000002d0000000101000000020203",
    f"0002{HEAD}00000000000003e80000000100026d3100016300022f680000012c0000002d0000000101"
    "000000020203",
    f"0003{HEAD}00000000000003e80000000100026d3100016900016300022f680000012c0000002d00000001"
    "01000000020203",
    "000409636f6e73756d6572000000030672616e6765036d3100000000000003e802036d3102690263032f68"
    "0000012c0000002d02010302030000",
]


def group_value(version: int) -> GroupMetadataValue:
    return GroupMetadataValue(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader="m1",
        current_state_timestamp=1000 if version >= 2 else -1,
        members=[
            MemberMetadata(
                member_id="m1",
                group_instance_id="i" if version >= 3 else None,
                client_id="c",
                client_host="/h",
                rebalance_timeout=300 if version >= 1 else -1,
                session_timeout=45,
                subscription=b"\1",
                assignment=b"\2\3",
            )
        ],
    )


@pytest.mark.parametrize(("data", "fields"), OFFSET_VALUES)
def test_committed_offset_is_decoded_in_every_version(data: str, fields: dict[str, Any]) -> None:
    record = decode(bytes.fromhex(OFFSET_KEY_BYTES), bytes.fromhex(data))
    value = OffsetCommitValue(offset=42, metadata="m", commit_timestamp=1000, **fields)
    assert record == (OFFSET_KEY, value)


@pytest.mark.parametrize("version", range(5))
def test_group_is_decoded_in_every_version(version: int) -> None:
    record = decode(bytes.fromhex(GROUP_KEY_BYTES), bytes.fromhex(GROUP_VALUES[version]))
    assert record == (GROUP_KEY, group_value(version))


def test_old_offset_key_is_decoded() -> None:
    old = "0000" + OFFSET_KEY_BYTES[4:]
    assert decode(bytes.fromhex(old), None) == (OFFSET_KEY, None)


def test_encoded_keys_equal_kafkas() -> None:
    assert encode_key(OFFSET_KEY).hex() == OFFSET_KEY_BYTES
    assert encode_key(GROUP_KEY).hex() == GROUP_KEY_BYTES


def test_values_are_encoded_in_kafkas_version() -> None:
    value = OffsetCommitValue(offset=42, leader_epoch=5, metadata="m", commit_timestamp=1000)
    written = encode_value(value)
    assert written is not None and written.hex() == OFFSET_VALUES[3][0]
    value.expire_timestamp = 2000  # Only version 1 has it; that version has no epoch.
    written = encode_value(value)
    assert written is not None and written.hex() == OFFSET_VALUES[1][0]
    written = encode_value(group_value(3))
    assert written is not None and written.hex() == GROUP_VALUES[3]
    assert encode_value(None) is None


@pytest.mark.parametrize("version", [3, 6, 9, 17, 32767, -1])
def test_records_of_other_protocols_are_skipped(version: int) -> None:
    key = version.to_bytes(2, "big", signed=True) + b"whatever"
    assert decode(key, b"") is None
    assert decode(key, None) is None


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        (None, None, "a key of 0 bytes has no version"),
        ("00", None, "a key of 1 bytes has no version"),
        (OFFSET_KEY_BYTES + "00", None, "1 extra bytes follow the OffsetCommitKey"),
        (OFFSET_KEY_BYTES[:-2], None, "cannot decode OffsetCommitKey version 1"),
        (OFFSET_KEY_BYTES, "", "a value of 0 bytes has no version"),
        (OFFSET_KEY_BYTES, "0005", "OffsetCommitValue has no version 5"),
        (OFFSET_KEY_BYTES, "ffff", "OffsetCommitValue has no version -1"),
        (GROUP_KEY_BYTES, GROUP_VALUES[3] + "00", "1 extra bytes follow the GroupMetadataValue"),
        (GROUP_KEY_BYTES, "0009", "GroupMetadataValue has no version 9"),
    ],
)
def test_invalid_record_is_rejected(key: str | None, value: str | None, problem: str) -> None:
    with pytest.raises(WireError, match=problem):
        decode(
            None if key is None else bytes.fromhex(key),
            None if value is None else bytes.fromhex(value),
        )


def test_string_that_format_cannot_represent_is_rejected() -> None:
    with pytest.raises(WireError):
        encode_value(OffsetCommitValue(metadata="x" * 40_000))
    with pytest.raises(WireError):
        encode_key(OffsetCommitKey(group="x" * 40_000))
