"""plog/cli/console/record_formatters.py: the output for each record."""

from __future__ import annotations

import json

import pytest

from plog.cli.console.record_formatters import (
    DefaultFormatter,
    JsonFormatter,
    LoggingFormatter,
    NoOpFormatter,
    find_formatter,
)
from plog.cli.options import UsageError
from plog.client.values import ConsumerRecord
from plog.records.batch import TimestampType

RECORD = ConsumerRecord(
    "t", 3, 7, 12, TimestampType.CREATE_TIME, b"k", b"v\xff", (("a", b"1"), ("b", None)), 5
)
EMPTY = RECORD._replace(timestamp=-1, key=None, value=None, headers=(), leader_epoch=-1)
ALL = {
    f"print.{part}": "true"
    for part in ("timestamp", "partition", "offset", "epoch", "headers", "key")
}


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, b"v\xff\n"),
        (ALL, b"CreateTime:12\tPartition:3\tOffset:7\tEpoch:5\ta:1,b:null\tk\tv\xff\n"),
        ({"print.key": "true", "key.separator": "", "line.separator": ""}, b"kv\xff"),
        ({"print.key": " TRUE ", "print.value": "no"}, b"k\n"),
        ({"print.value": "false"}, b""),
        ({"print.headers": "true", "headers.separator": ";", "null.literal": "-"},
         b"a:1;b:-\tv\xff\n"),
        ({"value.deserializer": "StringDeserializer"}, "v\ufffd\n".encode()),
        ({"print.headers": "true", "headers.deserializer": "StringDeserializer"},
         b"a:1,b:null\tv\xff\n"),
    ],
)  # fmt: skip
def test_requested_parts_are_printed(properties: dict[str, str], expected: bytes) -> None:
    assert DefaultFormatter(properties).format(RECORD) == expected


def test_missing_parts_are_printed_as_placeholders() -> None:
    expected = b"NO_TIMESTAMP\tPartition:3\tOffset:7\tEpoch:NOT_PRESENT\tNO_HEADERS\tnull\tnull\n"
    assert DefaultFormatter(ALL).format(EMPTY) == expected
    assert DefaultFormatter({"null.literal": ""}).format(EMPTY) == b"\n"


def test_json_contains_all_parts() -> None:
    assert json.loads(JsonFormatter({}).format(RECORD)) == {
        "topic": "t",
        "partition": 3,
        "offset": 7,
        "timestamp": 12,
        "timestamp_type": "CreateTime",
        "leader_epoch": 5,
        "headers": [["a", "1"], ["b", None]],
        "key": "k",
        "value": {"base64": "dv8="},
    }
    assert json.loads(JsonFormatter({}).format(EMPTY))["value"] is None


def test_logging_formatter_also_prints_to_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert LoggingFormatter({}).format(RECORD) == b"v\xff\n"
    assert LoggingFormatter({}).format(EMPTY) == b"null\n"
    assert capsys.readouterr().err.splitlines() == [
        "CreateTime:12, key:k, value:v\ufffd",
        "key:null value:null",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "NoOpMessageFormatter",
        "kafka.tools.NoOpMessageFormatter",
        "org.apache.kafka.tools.consumer.NoOpMessageFormatter",
    ],
)
def test_formatter_is_found_by_old_and_new_class_names(name: str) -> None:
    assert find_formatter(name) is NoOpFormatter
    assert NoOpFormatter({}).format(RECORD) == b""
    older = "kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter"
    assert find_formatter(older) is find_formatter("OffsetsMessageFormatter")


def test_unknown_name_is_an_error() -> None:
    with pytest.raises(UsageError, match="unknown formatter Mine"):
        find_formatter("Mine")
    with pytest.raises(UsageError, match=r"unknown formatter property print\.all"):
        DefaultFormatter({"print.all": "true"})
    with pytest.raises(UsageError, match="unknown deserializer Mine"):
        DefaultFormatter({"value.deserializer": "Mine"})
    with pytest.raises(UsageError, match="does not accept formatter properties"):
        JsonFormatter({"print.key": "true"})
    DefaultFormatter({"value.deserializer.encoding": "UTF-8"})
