"""plog/cli/delete_records.py against a simulated broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plog.cli.delete_records import configure
from tests.helpers.sim.sim_broker import create_topic
from tests.unit.cli.conftest import CliSite, Output


class DeleteRecords:
    """The tool with a file of offsets."""

    def __init__(self, site: CliSite, path: Path) -> None:
        self._tool = site.tool(configure)
        self._path = path

    def __call__(self, document: object, *words: str) -> Output:
        text = document if isinstance(document, str) else json.dumps(document)
        self._path.write_text(text)
        return self._tool("--offset-json-file", self._path, *words)


@pytest.fixture
def delete_records(site: CliSite, tmp_path: Path) -> DeleteRecords:
    """The tool, connected to a broker with a topic of five records."""
    create_topic(site.broker, "orders", 2)
    site.broker.produce("orders", b"1", b"2", b"3", b"4", b"5")
    return DeleteRecords(site, tmp_path / "offsets.json")


def _row(offset: int, partition: int = 0, topic: str = "orders") -> dict[str, object]:
    return {"topic": topic, "partition": partition, "offset": offset}


def test_records_below_the_offsets_are_deleted(
    site: CliSite, delete_records: DeleteRecords
) -> None:
    result = delete_records({"partitions": [_row(3), _row(-1, 1)], "version": 1})
    assert result.code == 0
    assert result.lines == [
        "Executing records delete operation",
        "Records delete operation completed:",
        "partition: orders-0\tlow_watermark: 3",
        "partition: orders-1\tlow_watermark: 0",
    ]
    assert site.broker.log("orders").log_start_offset == 3


def test_failed_partitions_are_printed(delete_records: DeleteRecords) -> None:
    result = delete_records({"partitions": [_row(9), _row(2, 1, "none")]})
    assert result.code == 1
    assert [line.split("\t")[0] for line in result.lines[2:]] == [
        "partition: orders-0",
        "partition: none-1",
    ]
    assert all("\terror: " in line for line in result.lines[2:])


def test_json_contains_the_new_start_offsets(delete_records: DeleteRecords) -> None:
    result = delete_records({"partitions": [_row(2)]}, "--json")
    assert json.loads(result.out) == [
        {"topic": "orders", "partition": 0, "low_watermark": 2, "error": None}
    ]


@pytest.mark.parametrize(
    ("document", "error"),
    [
        ("{", "line 1, column 2: Expecting property name"),
        ("[]", "not a JSON object"),
        ({"partitions": [{"topic": "t"}]}, "partitions[0] has no field 'partition'"),
        ({"partitions": [_row(1)], "version": 2}, "version 2 is not supported"),
        ({"partitions": [_row(-2)]}, "partitions[0].offset is less than -1"),
        ({"partitions": [_row(1), _row(2)]}, "partitions lists partitions twice: orders-0"),
    ],
)
def test_invalid_file_is_an_error(
    delete_records: DeleteRecords, document: object, error: str
) -> None:
    result = delete_records(document)
    assert result.code == 1
    assert error in result.err
