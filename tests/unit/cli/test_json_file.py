"""plog/cli/json_file.py: errors name the file, the place in it, and the expected form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from plog.cli.json_file import JsonValue, read_json_file
from plog.cli.options import UsageError
from plog.types import TopicPartition

FORM = '{"partitions": [...]}'


def _partitions(read: Callable[[str], JsonValue], text: str) -> list[TopicPartition]:
    return [row.topic_partition() for row in read(text).field("partitions").elements()]


@pytest.fixture
def read(tmp_path: Path) -> Callable[[str], JsonValue]:
    path = tmp_path / "moves.json"

    def read_text(text: str) -> JsonValue:
        path.write_text(text)
        return read_json_file(str(path), FORM)

    return read_text


def test_values_are_read(read: Callable[[str], JsonValue]) -> None:
    root = read('{"version": 1, "partitions": [{"topic": "a", "partition": 2}]}')
    [row] = root.field("partitions").elements()
    assert row.topic_partition() == TopicPartition("a", 2)
    assert row.optional_field("replicas") is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"partitions": [}', ", line 1, column 17: Expecting value; the file must look like {"),
        ("\n\n]", ", line 3, column 1: Expecting value; the file must look like {"),
        ("[]", ": not a JSON object; the file must look like {"),
        ("{}", ": 'partitions' is missing; the file must look like {"),
        ('{"version": 2}', ": version 2 is not supported; use version 1"),
        ('{"version": "1"}', ": version is not a whole number; the file"),
        ('{"partitions": 5}', ": partitions is not a list; the file"),
        ('{"partitions": ["a"]}', ": partitions[0] is not an object; the file"),
        ('{"partitions": [{"topic": 5}]}', ": partitions[0].topic is not a string; the file"),
        ('{"partitions": [{"topic": "a"}]}', ": partitions[0] has no field 'partition'; the file"),
        (
            '{"partitions": [{"topic": "a", "partition": true}]}',
            ": partitions[0].partition is not a whole number; the file",
        ),
        (
            '{"partitions": [{"topic": "a", "partition": -1}]}',
            ": partitions[0].partition is less than 0; the file",
        ),
    ],
)
def test_error_names_the_file_and_the_place(
    read: Callable[[str], JsonValue], text: str, problem: str
) -> None:
    with pytest.raises(UsageError) as caught:
        _partitions(read, text)
    message = str(caught.value)
    assert "moves.json" in message
    assert problem in message
    assert message.startswith("cannot read /")


def test_file_that_is_not_utf8_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "moves.json"
    path.write_bytes(b'{"topic": "\xff"}')
    with pytest.raises(UsageError, match=r"moves.json: it is not encoded in UTF-8"):
        read_json_file(str(path), FORM)
