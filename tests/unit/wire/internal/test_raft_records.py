"""The control records of a KRaft log."""

from __future__ import annotations

import pytest

from plog.records.control import ControlType
from plog.wire.internal.raft_records import RAFT_RECORDS, LeaderChangeMessage, decode_raft_record
from plog.wire.schema import Message, WireError
from tests.unit.wire.filled import every_version, filled


@every_version(tuple(RAFT_RECORDS.values()))
def test_record_and_version_survive_round_trip(message_type: type[Message], version: int) -> None:
    [kind] = [number for number, record in RAFT_RECORDS.items() if record is message_type]
    record = filled(message_type, version, 5)
    record.version = version  # type: ignore[attr-defined]  # each of them has it
    assert decode_raft_record(kind, record.encode(version)) == (record, version)


def test_record_types_are_control_types() -> None:
    assert [ControlType(number).name for number in RAFT_RECORDS] == [
        "LEADER_CHANGE",
        "SNAPSHOT_HEADER",
        "SNAPSHOT_FOOTER",
        "KRAFT_VERSION",
        "KRAFT_VOTERS",
    ]


def test_encoded_leader_change_equals_kafkas() -> None:
    value = bytes.fromhex("0000 00000007 02 00000007 00 01 00")
    message, version = decode_raft_record(ControlType.LEADER_CHANGE, value)
    assert isinstance(message, LeaderChangeMessage)
    assert (message.leader_id, [voter.voter_id for voter in message.voters]) == (7, [7])
    assert version == 0


@pytest.mark.parametrize("value", [None, b"", b"\x00", b"\x00\x09", b"\xff\xff"])
def test_invalid_record_is_rejected(value: bytes | None) -> None:
    with pytest.raises(WireError, match="LeaderChangeMessage"):
        decode_raft_record(ControlType.LEADER_CHANGE, value)
