"""Conversion of groups to records and back, and the check of records from clients."""

from __future__ import annotations

from typing import Any

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
from plogd.coordinator.group.group import EMPTY, PREPARING_REBALANCE, STABLE, Group
from plogd.coordinator.group.group_records import (
    check_group_record,
    group_from_record,
    group_record,
    group_tombstone,
    new_group_record,
)
from plogd.coordinator.group.member import Member, MemberProtocol
from tests.helpers.group.group_shard import subscription


def member(member_id: str, instance: str | None = None) -> Member:
    return Member(
        member_id=member_id,
        group_instance_id=instance,
        client_id="client",
        client_host="/192.0.2.7",
        rebalance_timeout_ms=60_000,
        session_timeout_ms=10_000,
        protocols=(MemberProtocol("sticky", b"?"), MemberProtocol("range", subscription("t"))),
    )


def stable_group() -> Group:
    group = Group("g", state=PREPARING_REBALANCE, state_since_ms=1, generation_id=6)
    group.add(member("a"), "consumer")
    group.add(member("b", "i"), "consumer")
    group.begin_generation(77)
    group.protocol_name = "range"
    group.transition_to(STABLE, 78)
    return group


def record_of(group: Group) -> GroupMetadataValue:
    record = group_record(group, {"a": b"1", "b": b"2"})
    assert record.key == GroupMetadataKey(group="g")
    value: Any = record.value
    return GroupMetadataValue.decode(value.encode(3), 3)


def test_group_survives_a_round_trip() -> None:
    group = group_from_record("g", record_of(stable_group()))
    assert (group.state, group.state_since_ms, group.generation_id) == (STABLE, 78, 7)
    assert (group.protocol_type, group.protocol_name) == ("consumer", "range")
    assert group.leader_id == "a"
    assert group.subscribed_topics == {"t"}
    a, b = group.members.values()
    assert (a.member_id, a.group_instance_id, a.assignment) == ("a", None, b"1")
    assert (b.member_id, b.group_instance_id, b.assignment) == ("b", "i", b"2")
    assert (b.client_id, b.client_host) == ("client", "/192.0.2.7")
    assert (b.rebalance_timeout_ms, b.session_timeout_ms) == (60_000, 10_000)
    assert b.protocols == (MemberProtocol("range", subscription("t")),)
    assert not b.is_new
    assert group.static_member_id("i") == "b"
    assert group.supports("consumer", ["range"])


def test_loaded_group_is_written_unchanged() -> None:
    value = record_of(stable_group())
    assert record_of(group_from_record("g", value)) == value


def test_empty_group_survives_a_round_trip() -> None:
    group = stable_group()
    group.remove("a")
    group.remove("b")
    group.transition_to(PREPARING_REBALANCE, 80)
    group.begin_generation(81)
    loaded = group_from_record("g", record_of(group))
    assert (loaded.state, loaded.empty_since, loaded.generation_id) == (EMPTY, 81, 8)
    assert (loaded.protocol_type, loaded.protocol_name, loaded.leader_id) == (
        "consumer",
        None,
        None,
    )
    assert loaded.subscribed_topics == frozenset()


def test_record_of_a_new_group_is_empty() -> None:
    value: Any = new_group_record(Group("g", state_since_ms=5)).value
    assert value == GroupMetadataValue(
        protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=5
    )
    loaded = group_from_record("g", value)
    assert (loaded.state, loaded.protocol_type, loaded.generation_id) == (EMPTY, None, 0)


def test_records_before_kafka_2_1_have_no_timestamp_and_one_timeout() -> None:
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader="a",
        members=[MemberMetadata(member_id="a", session_timeout=9, rebalance_timeout=-1)],
    )
    group = group_from_record("g", value)
    assert group.state_since_ms is None
    assert group.members["a"].rebalance_timeout_ms == 9
    assert record_of_timestamp(group) == -1


def record_of_timestamp(group: Group) -> int:
    value: Any = group_record(group, {"a": b""}).value
    timestamp: int = value.current_state_timestamp
    return timestamp


def test_tombstone_has_no_value() -> None:
    record = group_tombstone("g")
    assert (record.key, record.value) == (GroupMetadataKey(group="g"), None)


def test_first_member_leads_a_loaded_group_whose_leader_is_missing() -> None:
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader="gone",
        members=[
            MemberMetadata(
                member_id=member_id,
                client_id="c",
                client_host="h",
                session_timeout=10_000,
                subscription=b"",
                assignment=b"",
            )
            for member_id in ("a", "b")
        ],
    )
    assert group_from_record("g", value).leader_id == "a"


# -- records from clients ---------------------------------------------------------------------


def group_value(
    *member_ids: str, protocol: str | None = "range", leader: str | None = None
) -> bytes:
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
        (GROUP, group_value()),
        (GROUP, group_value("a", "b", leader="b")),
        (GROUP, group_value("a", "b", leader="z")),
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
        (OFFSET, group_value(), "not a record"),
        (b"\0\3\0\1g", b"\0\0", "group protocol"),
        (GROUP, group_value("a", "a"), "the same id"),
        (GROUP, group_value("a", "b", "c"), "the same id"),
        (GROUP, group_value("a", protocol=None), "no protocol"),
    ],
)
def test_record_that_cannot_be_replayed_is_refused(
    key: bytes | None, value: bytes | None, reason: str
) -> None:
    with pytest.raises(InvalidRecord, match=reason):
        check_group_record(key, value)
