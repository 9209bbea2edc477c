"""Writing the rows of one task: each row of an Arrow batch becomes a record of a topic.

Runs in the Python workers, with a producer of worker_producers.py. A task succeeds only after the
brokers have acknowledged all its records. A failed task is repeated by Spark, so that delivery is
at least once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from plog.error_base import PlogError
from plog.records.codec import Header

if TYPE_CHECKING:
    import pyarrow

Row: TypeAlias = tuple[
    str | None, bytes | None, bytes | None, int | None, list[dict[str, Any]] | None
]
"""Topic, value, key, partition and headers."""

# Arrow converts the column without a copy; str.encode would run for each row.
_BINARY_TYPES = {"string": "binary", "large_string": "large_binary"}


class RecordSender(Protocol):
    """What a task needs of `plog.Producer`."""

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        on_delivery: Any = None,
    ) -> object:
        """Send a record; `on_delivery` is called with metadata and None, or None and an error."""
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
    errors: list[BaseException] = []

    def on_delivery(_: object, error: BaseException | None) -> None:
        if error is not None and not errors:
            errors.append(error)

    count = 0
    for batch in batches:
        if row_filter is not None:
            row_filter.prepare(_topics(batch, topic))
        for name, value, key, partition, headers in _rows(batch, topic):
            if name is None:
                raise RowError(
                    "cannot write a row: its topic is null; set the option topic, or remove the row"
                )
            pairs: Sequence[Header] | None = _header_pairs(headers)
            if row_filter is not None:
                pairs = row_filter.headers_to_write(name, value, key, partition, pairs or ())
                if pairs is None:
                    continue
            producer.send(
                name,
                value,
                key,
                partition=partition,
                headers=pairs or (),
                on_delivery=on_delivery,
            )
        count += batch.num_rows
        # A long task ends soon after the first failure.
        if errors:
            raise errors[0]
    producer.flush()
    if errors:
        raise errors[0]
    return count


def _topics(batch: pyarrow.RecordBatch, topic: str | None) -> set[str]:
    if topic is not None:
        return {topic} if batch.num_rows else set()
    return set(batch.column("topic").drop_null().unique().to_pylist())


def _rows(batch: pyarrow.RecordBatch, topic: str | None) -> Iterator[Row]:
    topics = _values(batch, "topic") if topic is None else [topic] * batch.num_rows
    others = (_values(batch, name) for name in ("value", "key", "partition", "headers"))
    return zip(topics, *others, strict=False)


def _values(batch: pyarrow.RecordBatch, name: str) -> Iterable[Any]:
    """Return the values of a column, or nulls without end if there is no such column."""
    if name not in batch.schema.names:
        return repeat(None)
    column = batch.column(name)
    if name in ("key", "value"):
        column = column.cast(_BINARY_TYPES.get(str(column.type), column.type))
    values: list[Any] = column.to_pylist()
    return values


def _header_pairs(headers: list[dict[str, Any]] | None) -> Sequence[Header]:
    if not headers:
        return ()
    if any(header is None or header["key"] is None for header in headers):
        raise RowError("cannot write a row: the name of a header is null; filter such headers")
    return tuple((header["key"], header["value"]) for header in headers)
