"""plog/cli/console/coordinator_formatters.py: coordinator records as JSON."""

from __future__ import annotations

import json

import pytest

from plog.cli.console.coordinator_formatters import COORDINATOR_FORMATTERS
from plog.client.values import ConsumerRecord
from plog.error_base import PlogError
from plog.records.batch import TimestampType
from plog.wire.internal.group_records import GroupMetadataKey, OffsetCommitKey

OFFSETS = COORDINATOR_FORMATTERS["OffsetsMessageFormatter"]({})
GROUPS = COORDINATOR_FORMATTERS["GroupMetadataMessageFormatter"]({})


def _record(key: bytes | None, value: bytes | None = None) -> ConsumerRecord:
    kind = TimestampType.CREATE_TIME
    return ConsumerRecord("__consumer_offsets", 0, 5, 0, kind, key, value, (), 0)


def test_formatter_prints_only_its_record_types() -> None:
    commit = _record(b"\0\1" + OffsetCommitKey(group="g", topic="t", partition=3).encode(1))
    assert json.loads(OFFSETS.format(commit)) == {
        "key": {"type": 1, "data": {"group": "g", "topic": "t", "partition": 3}},
        "value": None,
    }
    assert GROUPS.format(commit) == b""
    group = _record(b"\0\2" + GroupMetadataKey(group="g").encode(2))
    assert json.loads(GROUPS.format(group))["key"]["data"] == {"group": "g"}
    assert OFFSETS.format(group) == b""


def test_invalid_coordinator_record_is_an_error() -> None:
    assert OFFSETS.format(_record(None)) == b""
    with pytest.raises(PlogError, match="so a coordinator did not write it"):
        OFFSETS.format(_record(b"x"))
    with pytest.raises(PlogError):
        OFFSETS.format(_record(b"\0\1short"))
    key = b"\0\1" + OffsetCommitKey(group="g", topic="t", partition=3).encode(1)
    with pytest.raises(PlogError, match="unknown version 99"):
        OFFSETS.format(_record(key, b"\0\x63"))
