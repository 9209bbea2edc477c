"""`Shard`: a SQLite database with a part of the records of an index.

A record is in a shard at most once: its topic, partition and offset are a unique key. Each call of
`put` is one transaction, so that a writer that is killed leaves all of its records or none. Other
processes can read a shard while it is written. Several writers of one shard wait for each other.

The journal is a rollback journal: unlike a write-ahead log, it works when the hosts of a cluster
write a shared disk in turn, and when readers cannot write to the folder.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from plog.search.index_folder import TOKENIZERS, IndexLayout
from plog.search.search_error import SearchError

LOCK_TIMEOUT_S: Final = 60
_VERSION: Final = 1
# Changes that do not fit are written before the transaction ends, which locks out readers.
_CACHE_KIB: Final = 32_768
"""The memory for changes."""


class IndexedRecord(NamedTuple):
    """A record with the texts of the index's columns; None is a missing text."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    texts: tuple[str | None, ...]


@dataclass(slots=True)
class Shard:
    """A shard that is open for writing; use it as a context manager."""

    path: Path
    connection: sqlite3.Connection
    put_texts: str
    """The statement that adds or replaces the texts of a record."""

    @classmethod
    def opened(
        cls, path: Path, layout: IndexLayout, *, lock_timeout_s: float = LOCK_TIMEOUT_S
    ) -> Shard:
        """Open a shard, and create it if it does not exist. Raises SearchError."""
        with shard_errors(path, "write"):
            # Otherwise, Python would begin transactions itself, without IMMEDIATE.
            connection = sqlite3.connect(path, timeout=lock_timeout_s, isolation_level=None)
            try:
                # Emptying the journal is cheaper than deleting it, which also changes the folder.
                connection.execute("PRAGMA journal_mode = TRUNCATE")
                # Spark does not repeat a batch that it has committed, so its records must survive a
                # power failure.
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
                _create_tables(connection, layout)
            except BaseException:
                connection.close()
                raise
        names = ", ".join(map(_quoted, layout.columns))
        places = ", ".join("?" for _ in layout.columns)
        return cls(path, connection, _PUT_TEXTS.format(names, places))

    def put(self, records: Iterable[IndexedRecord]) -> None:
        """Add records in one transaction; they replace those with the same offset.

        Raises SearchError.
        """
        with shard_errors(self.path, "write"), _transaction(self.connection) as cursor:
            for topic, partition, offset, timestamp_ms, texts in records:
                [(number,)] = cursor.execute(_PUT_RECORD, (topic, partition, offset, timestamp_ms))
                cursor.execute(self.put_texts, (number, *texts))

    def close(self) -> None:
        """Close the files."""
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


_CREATE_RECORDS: Final = """
CREATE TABLE records (
    number INTEGER PRIMARY KEY,
    topic TEXT NOT NULL,
    "partition" INTEGER NOT NULL,
    "offset" INTEGER NOT NULL,
    timestamp_ms INTEGER,
    UNIQUE (topic, "partition", "offset")
)
"""
# REPLACE would give the record another number, and its old texts would remain. DO NOTHING would
# return no number.
_PUT_RECORD: Final = """
INSERT INTO records (topic, "partition", "offset", timestamp_ms) VALUES (?, ?, ?, ?)
ON CONFLICT (topic, "partition", "offset") DO UPDATE SET timestamp_ms = excluded.timestamp_ms
RETURNING number
"""
_PUT_TEXTS: Final = "INSERT OR REPLACE INTO texts (rowid, {}) VALUES (?, {})"


def has_records(connection: sqlite3.Connection) -> bool:
    """Return whether the tables exist; a writer may have been killed before it created them."""
    [(version,)] = connection.execute("PRAGMA user_version").fetchall()
    return bool(version == _VERSION)


def _create_tables(connection: sqlite3.Connection, layout: IndexLayout) -> None:
    if has_records(connection):
        return
    with _transaction(connection) as cursor:
        # Another writer may have created them in the meantime.
        if has_records(connection):
            return
        columns = ", ".join(map(_quoted, layout.columns))
        tokenizer = TOKENIZERS[layout.tokenizer]
        cursor.execute(_CREATE_RECORDS)
        cursor.execute(f"CREATE VIRTUAL TABLE texts USING fts5({columns}, tokenize='{tokenizer}')")
        # In the same transaction, so that a shard with this version has both tables.
        cursor.execute(f"PRAGMA user_version = {_VERSION}")


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Cursor]:
    # Without IMMEDIATE, a transaction that reads first fails instead of waiting for a lock.
    cursor = connection.execute("BEGIN IMMEDIATE")
    try:
        yield cursor
    except BaseException:
        # SQLite itself rolls back after some errors, such as a full disk.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_REMEDIES: Final[Sequence[tuple[int, str]]] = (
    (sqlite3.SQLITE_BUSY, "another process is writing it; try again later"),
    (sqlite3.SQLITE_NOTADB, "it is not a SQLite database; restore the folder from a backup"),
    (sqlite3.SQLITE_CORRUPT, "it is damaged; restore the folder from a backup"),
    (sqlite3.SQLITE_FULL, "the disk is full; free some space"),
    (
        sqlite3.SQLITE_READONLY,
        "it cannot be changed; if its writer was killed, run the job again, or search as a user"
        " with write access",
    ),
    (sqlite3.SQLITE_CANTOPEN, "it cannot be opened; check its permissions"),
)


@contextmanager
def shard_errors(path: Path, action: str) -> Iterator[None]:
    """Raise SearchError for errors of SQLite; `action` is a verb such as "read"."""
    try:
        yield
    except sqlite3.Error as error:
        if "fts5" in str(error) and "no such module" in str(error):
            raise SearchError(
                f"cannot {action} {path}: this Python's SQLite has no FTS5; use another Python"
            ) from None
        # The lower bits are the primary code.
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        remedy = dict(_REMEDIES).get(code)
        raise SearchError(f"cannot {action} {path}: {remedy or error}") from None
