"""The names of folders and files in a warehouse. Pure.

| path | |
|---|---|
| ``TOPIC/date=2026-01-02/hour=03/*.parquet`` | the records of an hour, in UTC |
| ``_dead_letters/TOPIC/*.parquet`` | values that could not be decoded |
| ``.plog/state.json``, ``.plog/batches/*.json`` | see warehouse_state.py |
| ``.plog/staging/`` | files of the current batch that are not published yet |
| ``.plog/merge.json``, ``.plog/merge/`` | see hour_merge.py |
| ``.plog/columns/TOPIC.json`` | see table_columns.py |

Spark, Arrow and Hive ignore names that start with a dot or an underscore.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

DEAD_LETTERS: Final = "_dead_letters"
DATA_SUFFIX: Final = ".parquet"


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The paths in the warehouse `root`."""

    root: Path

    @property
    def state(self) -> Path:
        """Return the file of the state."""
        return self._own / "state.json"

    @property
    def batches(self) -> Path:
        """Return the folder with a manifest for each batch."""
        return self._own / "batches"

    @property
    def staging(self) -> Path:
        """Return the folder into which tasks write."""
        # It is below the root, because a rename cannot move a file to another file system.
        return self._own / "staging"

    @property
    def merge_manifest(self) -> Path:
        """Return the file that describes the current merge."""
        return self._own / "merge.json"

    @property
    def merge_folder(self) -> Path:
        """Return the folder in which a merge prepares an hour."""
        return self._own / "merge"

    @property
    def columns(self) -> Path:
        """Return the folder with the columns of each topic."""
        return self._own / "columns"

    @property
    def _own(self) -> Path:
        return self.root / ".plog"

    def topic(self, topic: str) -> Path:
        """Return the folder of a topic."""
        return self.root / folder_name(topic)

    def columns_of(self, topic: str) -> Path:
        """Return the file with the columns of a topic."""
        return self.columns / f"{folder_name(topic)}.json"

    def batch(self, batch_id: int) -> Path:
        """Return the manifest of a batch."""
        return self.batches / f"{batch_id}.json"

    def staged(self, topic: str) -> Path:
        """Return the folder into which tasks write the rows of a topic."""
        return self.staging / folder_name(topic)

    def staged_dead_letters(self, topic: str) -> Path:
        """Return the folder into which tasks write the dead letters of a topic."""
        return self.staging / DEAD_LETTERS / folder_name(topic)


def folder_name(topic: str) -> str:
    """Return the name of a topic's folder, which readers must not ignore.

    >>> folder_name("clicks"), folder_name("_plog_audit")
    ('clicks', '%5Fplog_audit')
    """
    # No topic has a name with a percent sign, so the names of folders stay distinct.
    if topic[:1] in ("_", "."):
        return f"%{ord(topic[0]):02X}{topic[1:]}"
    return topic


def batch_file_name(query: str, batch_id: int, number: int) -> str:
    """Return the name of a file of a batch.

    >>> batch_file_name("q1", 7, 0)
    'part-q1-0000000007-000.parquet'
    """
    # With leading zeros, the names sort in the order of the batches.
    return f"part-{query}-{batch_id:010d}-{number:03d}{DATA_SUFFIX}"


def is_data(name: str) -> bool:
    """Return whether readers take a file for a part of the table."""
    return name.endswith(DATA_SUFFIX) and not name.startswith((".", "_"))
