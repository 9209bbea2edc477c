"""plog/spark/jobs/search_index/shard_writing.py: a task that is repeated changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from plog.search.index_folder import IndexLayout, open_index, shard_path
from plog.search.index_search import search_index
from plog.search.search_error import SearchError
from plog.spark.jobs.search_index.shard_writing import ShardWriting

pyarrow = pytest.importorskip("pyarrow")

if TYPE_CHECKING:
    from pyarrow import RecordBatch

LAYOUT = IndexLayout(columns=("text",), shards=2)


def row(offset: int, text: str | None, *, is_dead: bool = False) -> dict[str, Any]:
    place = {"topic": "t", "partition": 0, "offset": offset, "timestamp_ms": offset - 1}
    return {"shard": offset % 2, **place, "texts": [text], "is_dead": is_dead}


def batches(*rows: dict[str, Any]) -> Iterator[RecordBatch]:
    """Yield batches of two rows."""
    for start in range(0, len(rows), 2):
        yield pyarrow.RecordBatch.from_pylist(list(rows[start : start + 2]))


def written(folder: Path, *rows: dict[str, Any]) -> dict[str, int]:
    """Run a task with rows, and return its counts."""
    [found] = ShardWriting(folder, LAYOUT)(batches(*rows))
    [counts] = found.to_pylist()
    return dict(counts)


def test_rows_of_a_repeated_task_are_found_once(tmp_path: Path) -> None:
    open_index(tmp_path, ["text"], shards=2, tokenizer=None)
    rows = [row(0, "a word"), row(1, "word"), row(2, None), row(3, None, is_dead=True)]
    for _ in range(2):
        assert written(tmp_path, *rows) == {"indexed": 2, "empty": 1, "dead": 1}
    found = search_index(tmp_path, "word", limit=9)
    assert {(one.offset, one.timestamp_ms) for one in found} == {(0, None), (1, 0)}
    assert len(found) == 2


def test_task_that_fails_keeps_the_batches_before(tmp_path: Path) -> None:
    open_index(tmp_path, ["text"], shards=2, tokenizer=None)
    shard_path(tmp_path, 1).mkdir()
    rows = [row(0, "word"), row(2, "word"), row(3, "word")]
    with pytest.raises(SearchError, match=r"shard-001\.sqlite: it cannot be opened"):
        written(tmp_path, *rows)
    assert len(search_index_of_shard(tmp_path)) == 2
    shard_path(tmp_path, 1).rmdir()
    written(tmp_path, *rows)
    assert len(search_index(tmp_path, "word", limit=9)) == 3


def search_index_of_shard(folder: Path) -> list[int]:
    """Return what the first shard contains."""
    other = shard_path(folder, 1)
    other.rmdir()
    found = [one.offset for one in search_index(folder, "word", limit=9)]
    other.mkdir()
    return found


def test_task_without_rows_writes_nothing(tmp_path: Path) -> None:
    assert written(tmp_path) == {"indexed": 0, "empty": 0, "dead": 0}
    assert list(tmp_path.iterdir()) == []
