"""`search_index`: find the records of an index that match a query, the best first."""

from __future__ import annotations

import heapq
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from plog.search.index_folder import read_layout, shard_path
from plog.search.search_error import SearchError
from plog.search.shard import has_records, shard_errors

LOCK_TIMEOUT_S: Final = 10
# The score of FTS5 is lower for better matches. Sorted by `rank` alone, FTS5 creates snippets only
# for the rows that it returns. A snippet has up to 12 words.
_SEARCH: Final = """
SELECT rank, rowid, snippet(texts, -1, '[', ']', '…', 12)
FROM texts WHERE texts MATCH ? ORDER BY rank LIMIT ?
"""
_RECORD: Final = """
SELECT topic, "partition", "offset", timestamp_ms FROM records WHERE number = ?
"""


class Match(NamedTuple):
    """A record that matches a query; of two records, the better one has the lower score."""

    score: float
    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    snippet: str
    """The part of the text with the words of the query, which are in brackets."""


def search_index(
    folder: Path, query: str, *, limit: int, lock_timeout_s: float = LOCK_TIMEOUT_S
) -> list[Match]:
    """Return up to `limit` matches, the best first.

    A score is computed from the frequencies of words in the shard of the record. Raises SearchError
    for a folder that is not an index, for a wrong query, and if a shard cannot be read.
    """
    # FTS5 has internal commands that start with an asterisk.
    if query.lstrip().startswith("*"):
        raise SearchError(f"cannot search for {query!r}: start with a word, such as disk*")
    layout = read_layout(folder)
    found = (
        match
        for number in range(layout.shards)
        for match in _search_shard(shard_path(folder, number), query, limit, lock_timeout_s)
    )
    return heapq.nsmallest(limit, found)


def _search_shard(path: Path, query: str, limit: int, lock_timeout_s: float) -> list[Match]:
    # No record has been added to a shard without a file.
    if not path.exists():
        return []
    # If a writer was killed, SQLite first removes its changes, which needs write access. It opens
    # a file that is write-protected for reading only.
    url = f"file:{quote(os.fspath(path.absolute()))}?mode=rw"
    with (
        shard_errors(path, "read"),
        closing(sqlite3.connect(url, uri=True, timeout=lock_timeout_s)) as connection,
    ):
        # One transaction, so that a writer changes nothing between the queries.
        connection.execute("BEGIN")
        if not has_records(connection):
            return []
        found = []
        for score, number, snippet in _matching(connection, query, limit):
            [(topic, partition, offset, time_ms)] = connection.execute(_RECORD, (number,))
            found.append(Match(score, topic, partition, offset, time_ms, snippet))
        return found


def _matching(
    connection: sqlite3.Connection, query: str, limit: int
) -> list[tuple[float, int, str]]:
    """Return score, number and snippet of records. Raises SearchError for a wrong query."""
    try:
        return connection.execute(_SEARCH, (query, limit)).fetchall()
    except sqlite3.OperationalError as error:
        # Other codes are problems of the shard.
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        raise SearchError(
            f"cannot search for {query!r}: {error}; put words with other characters than"
            ' letters and digits in double quotes, such as "e-mail"'
        ) from None
