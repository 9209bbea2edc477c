"""plog/wire/as_json.py: messages as the JSON that Kafka's tools print."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plog.wire.as_json import as_json, compact_json, java_double
from plog.wire.internal.metadata_records import PartitionChangeRecord, PartitionRecord, TopicRecord
from plog.wire.internal.raft_records import Voter, VotersRecord
from plog.wire.schema import Message, Struct
from tests.unit.wire.filled import MESSAGES, every_version, filled

TOPIC_ID = bytes(range(16))


def test_fields_are_in_declared_order() -> None:
    record = PartitionRecord(topic_id=TOPIC_ID, replicas=[1], isr=[1], leader=1, directories=[])
    assert compact_json(as_json(record, 0)) == (
        '{"partitionId":-1,"topicId":"AAECAwQFBgcICQoLDA0ODw","replicas":[1],"isr":[1],'
        '"removingReplicas":[],"addingReplicas":[],"leader":1,"leaderEpoch":-1,'
        '"partitionEpoch":-1}'
    )
    assert list(as_json(record, 1))[-1] == "directories"


def test_tagged_field_with_default_is_left_out() -> None:
    assert "leader" not in as_json(PartitionChangeRecord(), 0)
    assert as_json(PartitionChangeRecord(leader=-1, isr=[]), 0)["isr"] == []
    assert as_json(PartitionChangeRecord(leader=-1), 0)["leader"] == -1


def test_nested_struct_becomes_object() -> None:
    voters = as_json(VotersRecord(voters=[Voter(voter_id=3)]), 0)["voters"]
    assert isinstance(voters, list)
    assert voters[0] == {
        "voterId": 3,
        "voterDirectoryId": "AAAAAAAAAAAAAAAAAAAAAA",
        "endpoints": [],
        "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 0},
    }


@every_version(MESSAGES)
def test_every_message_converts_to_json(message_type: type[Message], version: int) -> None:
    message = filled(message_type, version, 3)
    shown = json.loads(compact_json(as_json(message, version)))
    assert len(shown) == sum(item.versions.has(version) for item in message_type.fields)


def test_text_is_escaped_as_java_does() -> None:
    assert compact_json(as_json(TopicRecord(name='a"\\\n\x1bä\x7f/', topic_id=TOPIC_ID), 0)) == (
        '{"name":"a\\"\\\\\\n\\u001Bä\x7f/","topicId":"AAECAwQFBgcICQoLDA0ODw"}'
    )
    # Backslashes before text that only looks like an escape.
    assert compact_json("\\u001b") == '"\\\\u001b"'


@given(st.text())
def test_text_survives_round_trip(text: str) -> None:
    assert json.loads(compact_json(text)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.5, "-0.5"),
        (0.001, "0.001"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (-1.5e-7, "-1.5E-7"),
        (0.00012, "1.2E-4"),
        (123456789012345680000.0, "1.2345678901234568E20"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (float("nan"), "NaN"),
    ],
)
def test_numbers_are_written_as_java_does(value: float, text: str) -> None:
    assert java_double(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_number_survives_round_trip(value: float) -> None:
    assert float(java_double(value)) == value


def test_struct_without_fields_becomes_empty_object() -> None:
    class Nothing(Struct):
        """A struct without fields."""

    assert compact_json(as_json(Nothing(), 0)) == "{}"
