"""`ShardWriting`: a task's function, which adds rows to the shards of an index.

Spark may run a task again, even while an earlier attempt is still running. Both attempts then write
the same records, one after another, and the second has no effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from plog.search.index_folder import IndexLayout, shard_path
from plog.search.shard import IndexedRecord, Shard

if TYPE_CHECKING:
    import pyarrow

NO_TIMESTAMP: Final = -1
INPUT: Final = ("shard", "topic", "partition", "offset", "timestamp_ms", "texts", "is_dead")
"""The columns of the rows; `texts` is an array with the texts of the index's columns."""
COUNTS: Final = ("indexed", "empty", "dead")
"""The columns of the result: numbers of records with a text, without one, and not decoded."""


@dataclass(frozen=True, slots=True)
class ShardWriting:
    """Adds rows to the index in `folder`, each batch and shard in one transaction."""

    folder: Path
    layout: IndexLayout

    def __call__(self, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        """Add all batches of a task, and yield their counts. Raises SearchError."""
        import pyarrow

        indexed = empty = dead = 0
        with ExitStack() as stack:
            shards: dict[int, Shard] = {}
            for batch in batches:
                usable, without_text, letters = _divided(batch.to_pylist())
                empty, dead = empty + without_text, dead + letters
                for number, records in usable.items():
                    # A shard is opened with its first record, so that a task without rows creates
                    # no file.
                    if number not in shards:
                        path = shard_path(self.folder, number)
                        shards[number] = stack.enter_context(Shard.opened(path, self.layout))
                    shards[number].put(records)
                    indexed += len(records)
        # Counts are returned only after all records are committed.
        counts = [pyarrow.array([number], "int64") for number in (indexed, empty, dead)]
        yield pyarrow.RecordBatch.from_arrays(counts, names=list(COUNTS))


def _divided(
    rows: Sequence[dict[str, Any]],
) -> tuple[dict[int, list[IndexedRecord]], int, int]:
    """Return the records with a text, by shard, and the numbers of the others and dead letters."""
    found: dict[int, list[IndexedRecord]] = {}
    empty = dead = 0
    for row in rows:
        texts = tuple(row["texts"])
        if row["is_dead"]:
            dead += 1
        elif all(text is None for text in texts):
            empty += 1
        else:
            # Spark shows a record without a timestamp 1 ms before 1970.
            at_ms = None if row["timestamp_ms"] == NO_TIMESTAMP else row["timestamp_ms"]
            record = IndexedRecord(row["topic"], row["partition"], row["offset"], at_ms, texts)
            found.setdefault(row["shard"], []).append(record)
    return found, empty, dead
