"""plog/cli/reassign_partitions/reassignment_file.py: documents that are read and written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plog.cli.options import UsageError
from plog.cli.reassign_partitions.reassignment_file import (
    as_json,
    read_reassignments,
    read_topics,
)
from plog.client.admin.values import TopicPartitionReplica
from plog.types import TopicPartition


def _row(**more: object) -> dict[str, object]:
    return {"topic": "t", "partition": 0, "replicas": [1, 2], **more}


def _write(path: Path, **document: object) -> str:
    path.write_text(json.dumps(document))
    return str(path)


def test_replicas_and_directories_are_read(tmp_path: Path) -> None:
    rows = [_row(log_dirs=["any", "/data"]), _row(partition=1)]
    read = read_reassignments(_write(tmp_path / "f", version=1, partitions=rows))
    assert read.replicas == {TopicPartition("t", 0): (1, 2), TopicPartition("t", 1): (1, 2)}
    assert read.log_dirs == {TopicPartitionReplica("t", 0, 2): "/data"}
    assert (read.brokers, read.topics) == ({1, 2}, ["t"])


def test_written_document_can_be_read(tmp_path: Path) -> None:
    replicas = {TopicPartition("t", 1): (3, 1), TopicPartition("a.b", 0): (2,)}
    (tmp_path / "f").write_text(as_json(replicas))
    read = read_reassignments(str(tmp_path / "f"))
    assert (read.replicas, read.log_dirs) == (replicas, {})


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([], "partitions lists no partition"),
        ([_row(), _row()], r"partitions\[1\] repeats partition t-0"),
        ([_row(replicas=[])], r"partitions\[0\].replicas lists no broker"),
        ([_row(replicas=[1, 2, 1])], r"partitions\[0\].replicas lists broker 1 twice"),
        ([_row(replicas=["1"])], r"partitions\[0\].replicas\[0\] is not a whole number"),
        ([_row(log_dirs=["any"])], r"partitions\[0\].log_dirs has 1 directories for 2 replicas"),
    ],
)
def test_invalid_rows_are_named(tmp_path: Path, rows: list[object], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        read_reassignments(_write(tmp_path / "f", partitions=rows))


def test_topics_are_read(tmp_path: Path) -> None:
    topics = [{"topic": "b"}, {"topic": "a"}]
    assert read_topics(_write(tmp_path / "f", topics=topics, version=1)) == ["b", "a"]
    with pytest.raises(UsageError, match="topics lists topic 'b' twice"):
        read_topics(_write(tmp_path / "f", topics=[*topics, topics[0]]))
    with pytest.raises(UsageError, match="topics lists no topic"):
        read_topics(_write(tmp_path / "f", topics=[]))
