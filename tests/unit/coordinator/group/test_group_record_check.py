"""Which records clients may write to `__consumer_offsets`."""

from __future__ import annotations

import pytest

from plog.errors import InvalidRecord
from plog.wire.internal.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_key,
    encode_value,
)
from plogd.coordinator.group.group_records import check_group_record


def group(*member_ids: str, protocol: str | None = "range", leader: str | None = None) -> bytes:
    members = [
        MemberMetadata(
            member_id=member_id,
            group_instance_id=None if len(member_ids) < 3 else "static",
            client_id="c",
            client_host="h",
            session_timeout=10_000,
            subscription=b"",
            assignment=b"",
        )
        for member_id in member_ids
    ]
    value = encode_value(
        GroupMetadataValue(
            protocol_type="consumer",
            generation=1,
            protocol=protocol,
            leader=leader,
            members=members,
        )
    )
    assert value is not None
    return value


GROUP = encode_key(GroupMetadataKey(group="g"))
OFFSET = encode_key(OffsetCommitKey(group="g", topic="t", partition=0))
COMMIT = encode_value(OffsetCommitValue(offset=1, metadata="", commit_timestamp=0))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (OFFSET, COMMIT),
        (OFFSET, None),
        (GROUP, group()),
        (GROUP, group("a", "b", leader="b")),
        (GROUP, group("a", "b", leader="z")),
        (GROUP, None),
    ],
)
def test_record_of_the_coordinator_is_accepted(key: bytes, value: bytes | None) -> None:
    check_group_record(key, value)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, COMMIT, "has no version"),
        (b"\0\1\0\1gxx", b"\0\1garbage", "not a record of the group coordinator"),
        (OFFSET, b"", "has no version"),
        (OFFSET, b"\0\x63", "no version 99"),
        (OFFSET + b"x", COMMIT, "not a record"),
        (OFFSET, group(), "not a record"),
        (b"\0\3\0\1g", b"\0\0", "group protocol"),
        (GROUP, group("a", "a"), "the same id"),
        (GROUP, group("a", "b", "c"), "the same id"),
        (GROUP, group("a", protocol=None), "no protocol"),
    ],
)
def test_record_that_cannot_be_replayed_is_refused(
    key: bytes | None, value: bytes | None, reason: str
) -> None:
    with pytest.raises(InvalidRecord, match=reason):
        check_group_record(key, value)
