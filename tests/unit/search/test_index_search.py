"""plog/search/index_search.py: matches of all shards, the best first, and wrong queries."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from plog.search.index_folder import IndexLayout, open_index, shard_of, shard_path
from plog.search.index_search import search_index
from plog.search.search_error import SearchError
from plog.search.shard import IndexedRecord, Shard


def fill(folder: Path, *bodies: str | None, tokenizer: str = "words") -> IndexLayout:
    """Create an index with records of one partition."""
    layout = open_index(folder, ["body", "note"], shards=3, tokenizer=tokenizer)
    for number in range(layout.shards):
        with Shard.opened(shard_path(folder, number), layout) as shard:
            shard.put(
                IndexedRecord("t", 0, offset, None, (body, "note"))
                for offset, body in enumerate(bodies)
                if shard_of("t", 0, offset, layout.shards) == number
            )
    return layout


def offsets(folder: Path, query: str, limit: int = 100) -> list[int]:
    return [match.offset for match in search_index(folder, query, limit=limit)]


def test_matches_of_all_shards_are_ranked(tmp_path: Path) -> None:
    bodies = [f"filler {'word ' * (number % 5)}" for number in range(60)]
    fill(tmp_path, *bodies, "a needle " + "in a haystack " * 9, "needle", None)
    shards = {shard_of("t", 0, offset, 3) for offset in range(60)}
    assert shards == {0, 1, 2}
    assert offsets(tmp_path, "needle") == [61, 60]
    assert offsets(tmp_path, "needle", limit=1) == [61]
    assert len(offsets(tmp_path, "word", limit=30)) == 30
    assert sorted(offsets(tmp_path, "note")) == list(range(63))
    scores = [match.score for match in search_index(tmp_path, "word", limit=48)]
    assert scores == sorted(scores)


def test_query_has_the_syntax_of_fts5(tmp_path: Path) -> None:
    fill(tmp_path, "the disk is full", "full of disks", "Disk e-mail", None)
    assert sorted(offsets(tmp_path, "disk")) == [0, 2]
    assert offsets(tmp_path, '"disk is full"') == [0]
    assert sorted(offsets(tmp_path, "disk*")) == [0, 1, 2]
    assert offsets(tmp_path, "disk NOT full") == [2]
    assert offsets(tmp_path, "note:disk") == []
    assert offsets(tmp_path, '"e-mail"') == [2]
    [match] = search_index(tmp_path, "body:full disk", limit=9)
    assert match.snippet == "the [disk] is [full]"


@pytest.mark.parametrize(("tokenizer", "query"), [("stems", "run"), ("trigrams", "unnin")])
def test_tokenizer_finds_other_forms(tmp_path: Path, tokenizer: str, query: str) -> None:
    fill(tmp_path, "running", tokenizer=tokenizer)
    assert offsets(tmp_path, query) == [0]


@pytest.mark.parametrize("query", ["", "e-mail", '"open', "(a", "missing:a", "AND"])
def test_wrong_query_is_one_clear_error(tmp_path: Path, query: str) -> None:
    fill(tmp_path, "a")
    with pytest.raises(SearchError, match=r"cannot search for .*; put words with other") as raised:
        search_index(tmp_path, query, limit=1)
    assert "\n" not in str(raised.value)


def test_shards_without_records_match_nothing(tmp_path: Path) -> None:
    open_index(tmp_path, ["text"], shards=2, tokenizer=None)
    # A writer was killed after it had created the file.
    shard_path(tmp_path, 1).touch()
    assert offsets(tmp_path, "word") == []


def test_search_reads_while_a_writer_has_not_committed(tmp_path: Path) -> None:
    fill(tmp_path, *["word"] * 9)
    with closing(sqlite3.connect(shard_path(tmp_path, 0), isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("DELETE FROM texts")
        assert len(offsets(tmp_path, "word")) == 9
        writer.execute("ROLLBACK")
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(SearchError, match="another process is writing it; try again later"):
            search_index(tmp_path, "word", limit=9, lock_timeout_s=0)


def test_damaged_shard_is_reported(tmp_path: Path) -> None:
    fill(tmp_path, "word")
    shard_path(tmp_path, 1).write_bytes(b"x" * 5000)
    with pytest.raises(SearchError, match=r"shard-001\.sqlite: it is not a SQLite database"):
        search_index(tmp_path, "word", limit=1)


def test_query_that_starts_with_an_asterisk_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, "disk full")
    for query in ("*id", " *reads", "*"):
        with pytest.raises(SearchError, match=r"start with a word"):
            offsets(tmp_path, query)
