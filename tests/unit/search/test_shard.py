"""plog/search/shard.py: a record is in its shard once, whatever interrupts the writer."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from plog.search.index_folder import IndexLayout
from plog.search.search_error import SearchError
from plog.search.shard import IndexedRecord, Shard

LAYOUT = IndexLayout(columns=("title", "body"))
KILLED = """
import os, signal, sys
from pathlib import Path
from plog.search.index_folder import IndexLayout
from plog.search.shard import IndexedRecord, Shard

def records():
    for offset in range(3000):
        yield IndexedRecord("t", 0, offset, None, ("title", f"word{offset} " * 50))
    os.kill(os.getpid(), signal.SIGKILL)

with Shard.opened(Path(sys.argv[1]), IndexLayout(columns=("title", "body"))) as shard:
    # The changes do not fit, so that the file contains some of them before the transaction ends.
    shard.connection.execute("PRAGMA cache_size = -100")
    shard.put(records())
"""


def record(offset: int, body: str | None, topic: str = "t") -> IndexedRecord:
    return IndexedRecord(topic, 0, offset, 1000 + offset, ("title", body))


def contents(path: Path, query: str = "title") -> list[tuple[int, str | None]]:
    """Return offset and body of the records that match, and check the index of words."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO texts (texts) VALUES ('integrity-check')")
        return connection.execute(
            'SELECT "offset", body FROM texts JOIN records ON number = texts.rowid'
            ' WHERE texts MATCH ? ORDER BY "offset"',
            (query,),
        ).fetchall()


def test_repeated_records_replace_themselves(tmp_path: Path) -> None:
    path = tmp_path / "shard"
    with Shard.opened(path, LAYOUT) as shard:
        shard.put([record(0, "a"), record(1, "b"), record(0, "again", topic="u")])
        shard.put([record(1, "b"), record(2, None)])
    # A recreated topic has other records at the same offsets.
    with Shard.opened(path, LAYOUT) as shard:
        shard.put([record(1, "new")])
    assert contents(path) == [(0, "a"), (0, "again"), (1, "new"), (2, None)]
    assert contents(path, "b") == []
    assert contents(path, "body:new") == [(1, "new")]


def test_killed_writer_leaves_no_record_of_its_transaction(tmp_path: Path) -> None:
    path = tmp_path / "shard"
    with Shard.opened(path, LAYOUT) as shard:
        shard.put([record(7, "kept")])
    done = subprocess.run(
        [sys.executable, "-c", KILLED, path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        timeout=120,
    )
    assert done.returncode == -signal.SIGKILL
    assert path.with_name("shard-journal").stat().st_size > 0
    assert path.stat().st_size > 1 << 20
    with Shard.opened(path, LAYOUT) as shard:
        shard.put([record(8, "added")])
    assert contents(path) == [(7, "kept"), (8, "added")]


def test_failing_transaction_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "shard"
    with Shard.opened(path, LAYOUT) as shard:
        with pytest.raises(RuntimeError, match="the task fails"):
            shard.put(record(0, "a") if n == 0 else failing() for n in range(2))
        shard.put([record(1, "b")])
    assert contents(path) == [(1, "b")]


def failing() -> IndexedRecord:
    raise RuntimeError("the task fails")


def test_writers_of_one_shard_exclude_each_other(tmp_path: Path) -> None:
    path = tmp_path / "shard"
    with Shard.opened(path, LAYOUT) as one:
        one.connection.execute("BEGIN IMMEDIATE")
        with (
            Shard.opened(path, LAYOUT, lock_timeout_s=0) as other,
            pytest.raises(SearchError, match="another process is writing it; try again later"),
        ):
            other.put([record(0, "a")])
        one.connection.execute("ROLLBACK")


@pytest.mark.parametrize("stem", ["folder", "text"])
def test_file_of_another_kind_is_reported(tmp_path: Path, stem: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("not a database" * 100)
    with pytest.raises(SearchError, match=rf"cannot write .*/{stem}: it "):
        Shard.opened(tmp_path / stem, LAYOUT)
