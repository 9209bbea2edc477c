"""Writing the rows of one task: each row of an Arrow batch becomes a record of a topic.

Runs in the Python workers, with a producer of worker_producers.py. A task succeeds only after the
brokers have acknowledged all its records. A failed task is repeated by Spark, so that delivery is
at least once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, repeat
from operator import itemgetter
from time import time
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from plog.error_base import PlogError
from plog.records.codec import NO_OFFSET, Header, RecordFields

if TYPE_CHECKING:
    import pyarrow

_Place: TypeAlias = tuple[str, int | None]
"""Topic and partition."""

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
        for (name, partition), records in _records(batch, topic, row_filter):
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
) -> Iterable[tuple[_Place, Sequence[RecordFields]]]:
    """Return the records of the rows by topic and partition; those of a partition keep their order.

    A partition of None is that of the record's key.
    """
    # Rows have no timestamp, as in the connector, so the records get the time at which they are
    # sent.
    now_ms = int(time() * 1000)
    values, keys = _values(batch, "value"), _values(batch, "key")
    headers = _headers(batch)
    if topic is not None and row_filter is None and "partition" not in batch.schema.names:
        # In the usual case, the rows need not be sorted.
        fields = zip(repeat(NO_OFFSET), repeat(now_ms), keys, values, headers, strict=False)
        return [((topic, None), list(fields))]
    rows = zip(
        _row_topics(batch, topic), _values(batch, "partition"), keys, values, headers, strict=False
    )
    found: list[tuple[_Place, RecordFields]] = []
    for name, partition, key, value, pairs in rows:
        if row_filter is not None:
            marked = row_filter.headers_to_write(name, value, key, partition, pairs)
            if marked is None:
                continue
            pairs = marked
        found.append(((name, partition), (NO_OFFSET, now_ms, key, value, pairs)))
    return _runs(found) if _has_both(batch) else _groups(found)


def _has_both(batch: pyarrow.RecordBatch) -> bool:
    """Return whether some rows have a partition and others have none."""
    if "partition" not in batch.schema.names:
        return False
    return bool(0 < batch.column("partition").null_count < batch.num_rows)


def _groups(
    found: Iterable[tuple[_Place, RecordFields]],
) -> Iterable[tuple[_Place, Sequence[RecordFields]]]:
    groups: dict[_Place, list[RecordFields]] = {}
    for place, record in found:
        groups.setdefault(place, []).append(record)
    return groups.items()


def _runs(
    found: Iterable[tuple[_Place, RecordFields]],
) -> Iterable[tuple[_Place, Sequence[RecordFields]]]:
    """Keep the order of all rows, because a key may select a partition that other rows name."""
    for place, run in groupby(found, key=itemgetter(0)):
        yield place, [record for _, record in run]


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
