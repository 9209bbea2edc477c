"""Writing the rows of one task: each row of an Arrow batch becomes a record of a topic.

Runs in the Python workers, with a producer of worker_producers.py. A task succeeds only after the
brokers have acknowledged all its records. A failed task is repeated by Spark, so that delivery is
at least once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from time import time
from typing import TYPE_CHECKING, Any, Protocol

from plog.error_base import PlogError
from plog.records.codec import NO_OFFSET, Header, RecordFields

if TYPE_CHECKING:
    import pyarrow

# Arrow converts the column without a copy; str.encode would run for each row.
_BINARY_TYPES = {"string": "binary", "large_string": "large_binary"}


class RecordSender(Protocol):
    """What a task needs of `BulkSender`."""

    def send_all(
        self,
        topic: str,
        partition: int | None,
        records: Sequence[RecordFields],
        on_failure: Callable[[Exception], object],
    ) -> None:
        """Send records; `on_failure` is called with an error for each batch that failed."""
        ...

    def flush(self) -> None:
        """Wait until all records are delivered or have failed."""
        ...


class RowFilter(Protocol):
    """Marks the records of a task, and omits rows that are already written."""

    def prepare(self, topics: Iterable[str]) -> None:
        """Make ready for rows of `topics`."""
        ...

    def headers_to_write(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        headers: Sequence[Header],
    ) -> Sequence[Header] | None:
        """Return the headers of the record, or None to omit the row."""
        ...


class RowError(PlogError):
    """A row cannot be written as a record."""


def write_rows(
    producer: RecordSender,
    batches: Iterable[pyarrow.RecordBatch],
    topic: str | None,
    row_filter: RowFilter | None = None,
) -> int:
    """Write all rows and return their number; a `topic` replaces the column of that name.

    The number includes rows that `row_filter` omits. Raises RowError, the errors of `send`, or the
    error of the first record that failed.
    """
    # The client's thread appends to the list, which needs no lock.
    errors: list[Exception] = []
    count = 0
    for batch in batches:
        if row_filter is not None:
            row_filter.prepare(_topics(batch, topic))
        for (name, partition), records in _records(batch, topic, row_filter).items():
            producer.send_all(name, partition, records, errors.append)
        count += batch.num_rows
        # A long task ends soon after the first failure.
        if errors:
            raise errors[0]
    # Records of the last batches may still fail.
    producer.flush()
    if errors:
        raise errors[0]
    return count


def _topics(batch: pyarrow.RecordBatch, topic: str | None) -> set[str]:
    if topic is not None:
        return {topic} if batch.num_rows else set()
    # `_row_topics` reports nulls.
    return set(batch.column("topic").drop_null().unique().to_pylist())


def _records(
    batch: pyarrow.RecordBatch, topic: str | None, row_filter: RowFilter | None
) -> Mapping[tuple[str, int | None], Sequence[RecordFields]]:
    """Return the records of the rows, in their order, by topic and partition."""
    # Rows have no timestamp, as in the connector, so the records get the time at which they are
    # sent.
    now_ms = int(time() * 1000)
    values, keys = _values(batch, "value"), _values(batch, "key")
    partitions = _values(batch, "partition")
    headers = _headers(batch)
    if topic is not None and row_filter is None and isinstance(partitions, repeat):
        # In the usual case, the rows need not be sorted.
        fields = zip(repeat(NO_OFFSET), repeat(now_ms), keys, values, headers, strict=False)
        return {(topic, None): list(fields)}
    found: dict[tuple[str, int | None], list[RecordFields]] = {}
    rows = zip(_row_topics(batch, topic), partitions, keys, values, headers, strict=False)
    for name, partition, key, value, pairs in rows:
        if row_filter is not None:
            marked = row_filter.headers_to_write(name, value, key, partition, pairs)
            if marked is None:
                continue
            pairs = marked
        record = (NO_OFFSET, now_ms, key, value, pairs)
        found.setdefault((name, partition), []).append(record)
    return found


def _row_topics(batch: pyarrow.RecordBatch, topic: str | None) -> Iterable[str]:
    if topic is not None:
        return repeat(topic, batch.num_rows)
    column = batch.column("topic")
    if column.null_count:
        raise RowError(
            "cannot write a row: its topic is null; set the option topic, or remove the row"
        )
    names: list[str] = column.to_pylist()
    return names


def _values(batch: pyarrow.RecordBatch, name: str) -> Iterable[Any]:
    """Return the values of a column, or as many nulls if there is no such column."""
    if name not in batch.schema.names:
        return repeat(None, batch.num_rows)
    column = batch.column(name)
    if name in ("key", "value"):
        column = column.cast(_BINARY_TYPES.get(str(column.type), column.type))
    values: list[Any] = column.to_pylist()
    return values


def _headers(batch: pyarrow.RecordBatch) -> Iterable[Sequence[Header]]:
    """Return the headers of each record."""
    if "headers" not in batch.schema.names:
        return repeat((), batch.num_rows)
    return list(map(_header_pairs, batch.column("headers").to_pylist()))


def _header_pairs(headers: list[dict[str, Any]] | None) -> Sequence[Header]:
    if not headers:
        return ()
    if any(header is None or header["key"] is None for header in headers):
        raise RowError("cannot write a row: the name of a header is null; filter such headers")
    return tuple((header["key"], header["value"]) for header in headers)
