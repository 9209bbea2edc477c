"""plog/cli/search.py: the output of a search, and its errors in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plog.cli.main import run
from plog.search.index_folder import open_index, shard_of, shard_path
from plog.search.shard import IndexedRecord, Shard


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """An index with two records."""
    folder = tmp_path / "index"
    layout = open_index(folder, ["text"], shards=2, tokenizer=None)
    for topic, offset, at_ms, text in (
        ("logs", 7, 1_767_268_800_000, "the disk\n is full\x1b[2J"),
        ("logs", 8, None, "full of disk and disk"),
    ):
        path = shard_path(folder, shard_of(topic, 0, offset, 2))
        with Shard.opened(path, layout) as shard:
            shard.put([IndexedRecord(topic, 0, offset, at_ms, (text,))])
    return folder


def test_matches_are_lines(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["search", str(index), "disk full"]) == 0
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "logs\t0\t7\t2026-01-01T12:00:00.000Z\tthe [disk] is [full]?[2J",
        "logs\t0\t8\t-\t[full] of [disk] and [disk]",
    ]
    assert run(["search", str(index), "disk", "--limit", "1"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert run(["search", str(index), "nothing"]) == 0
    assert capsys.readouterr().out == ""


def test_json_contains_times_in_ms(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["search", str(index), "is", "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)
    assert found.pop("score") > 0
    assert found == {
        "topic": "logs",
        "partition": 0,
        "offset": 7,
        "timestamp": 1_767_268_800_000,
        "snippet": "the disk\n [is] full\x1b[2J",
    }


def test_error_is_one_line(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        ([str(index), "a-b"], "cannot search for 'a-b': no such column: b; put words"),
        ([str(index.parent), "a"], "it is not a search index; create one with plog spark"),
        ([str(index / "no"), "a"], "there is no such folder"),
    ):
        assert run(["search", *words]) == 1
        error = capsys.readouterr().err
        assert message in error
        assert len(error.splitlines()) == 1
