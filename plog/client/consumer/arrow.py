"""Convert fetched records into Arrow record batches without copying the codec's columns.

The extra ``plog[arrow]`` installs pyarrow. `record_batch` returns the record batches that
applications receive, with these columns:

============== =========================================== =====================================
topic          dictionary of int32 to string
partition      int32
offset         int64
timestamp      timestamp in ms, UTC                        null if the record has none
timestamp_type int8                                        0 CreateTime, 1 LogAppendTime
key, value     binary                                      null if the record has none
headers        list of struct of key: string,
               value: binary                               empty without headers
leader_epoch   int32                                       -1 if the batch does not contain it
============== =========================================== =====================================

`SparkColumns` builds the columns of Spark's Kafka connector from the same records. Spark accepts
only its own types: all columns are nullable, topics are plain strings, and timestamps are in
microseconds. Source: Spark 4.2 KafkaRecordToRowConverter, pyspark.sql.pandas.types.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from plog.client.consumer.completed_fetch import ColumnRun
from plog.client.errors import MissingExtra
from plog.records.record_columns import RecordColumns

if TYPE_CHECKING:
    import pyarrow

BuildBatch: TypeAlias = Callable[[RecordColumns, Sequence[ColumnRun]], "pyarrow.RecordBatch"]
"""Builds a record batch from columns and their runs. The columns must not change afterwards."""


def _pyarrow() -> Any:
    try:
        # pyarrow is optional and slow to import, so import it on first use.
        import pyarrow
    except ImportError:
        raise MissingExtra(
            "cannot read records as Arrow columns: pyarrow is missing; run"
            " pip install 'plog[arrow]'"
        ) from None
    return pyarrow


@lru_cache(maxsize=1)
def record_schema() -> pyarrow.Schema:
    """Return the schema of `record_batch`. Raises MissingExtra if pyarrow is not installed."""
    pa = _pyarrow()
    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    return pa.schema(
        [
            pa.field("topic", pa.dictionary(pa.int32(), pa.string()), nullable=False),
            pa.field("partition", pa.int32(), nullable=False),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
            pa.field("timestamp_type", pa.int8(), nullable=False),
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("headers", pa.list_(header), nullable=False),
            pa.field("leader_epoch", pa.int32(), nullable=False),
        ]
    )


def record_batch(columns: RecordColumns, runs: Sequence[ColumnRun]) -> pyarrow.RecordBatch:
    """Return the records in `columns` as an Arrow record batch; `runs` describes their batches.

    `columns` must not change afterwards. Raises MissingExtra if pyarrow is not installed.
    """
    pa = _pyarrow()
    rows = len(columns)
    schema = record_schema()
    # A dictionary column stores each topic name only once.
    topics = list(dict.fromkeys(run.partition.topic for run in runs))
    indexes = [topics.index(run.partition.topic) for run in runs]
    arrays = [
        pa.DictionaryArray.from_arrays(
            _repeated(pa, pa.int32(), indexes, runs), pa.array(topics, pa.string())
        ),
        _repeated(pa, pa.int32(), [run.partition.partition for run in runs], runs),
        _fixed(pa, pa.int64(), columns.offsets),
        _timestamps(pa, schema.field("timestamp").type, columns.timestamps),
        _repeated(pa, pa.int8(), [int(run.timestamp_type) for run in runs], runs),
        _binary(pa, columns.has_key, columns.key_ends, columns.keys),
        _binary(pa, columns.has_value, columns.value_ends, columns.values),
        _headers(pa, schema.field("headers").type, columns, rows),
        _repeated(pa, pa.int32(), [run.leader_epoch for run in runs], runs),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class SparkColumns:
    """A builder of record batches with Spark's schema; `with_headers` adds the headers column.

    Raises MissingExtra if pyarrow is not installed.
    """

    def __init__(self, *, with_headers: bool) -> None:
        pa = _pyarrow()
        self._with_headers = with_headers
        fields = [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("timestampType", pa.int32()),
        ]
        if with_headers:
            header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
            fields.append(("headers", pa.list_(pa.field("element", header))))
        self.schema: pyarrow.Schema = pa.schema(fields)
        self._constants: dict[str, tuple[int | str, pyarrow.Array]] = {}
        """For each column with the same value in all rows, the value and the longest such column.

        The batches of a task contain the same topic and partition, so they can share the columns.
        """

    def build(self, columns: RecordColumns, runs: Sequence[ColumnRun]) -> pyarrow.RecordBatch:
        """Return the records in `columns` as a record batch; `runs` describes their batches.

        `columns` must not change afterwards. Raises OverflowError for a timestamp that, in
        microseconds, does not fit into 64 bits.
        """
        pa = _pyarrow()
        schema = self.schema
        arrays = [
            _binary(pa, columns.has_key, columns.key_ends, columns.keys),
            _binary(pa, columns.has_value, columns.value_ends, columns.values),
            self._repeated("topic", [run.partition.topic for run in runs], runs),
            self._repeated("partition", [run.partition.partition for run in runs], runs),
            _fixed(pa, pa.int64(), columns.offsets),
            _microseconds(pa, schema.field("timestamp").type, columns),
            self._repeated("timestampType", [int(run.timestamp_type) for run in runs], runs),
        ]
        if self._with_headers:
            kind = schema.field("headers").type
            # As in Spark's connector, a record without headers has null, not an empty list.
            arrays.append(_headers(pa, kind, columns, len(columns), missing=None))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _repeated(self, name: str, values: Sequence[int | str], runs: Sequence[ColumnRun]) -> Any:
        """Return a column that repeats each value for all rows of its run."""
        pa, kind = _pyarrow(), self.schema.field(name).type
        if len(set(values)) != 1:
            return _repeated(pa, kind, values, runs)
        value, rows = values[0], sum(run.rows for run in runs)
        known, column = self._constants.get(name, (None, None))
        if column is None or known != value or len(column) < rows:
            column = _repeated(pa, kind, values, runs)
            self._constants[name] = value, column
        return column if len(column) == rows else column.slice(0, rows)


def _fixed(pa: Any, kind: Any, numbers: array[int], valid: Any = None) -> Any:
    return pa.Array.from_buffers(kind, len(numbers), [valid, pa.py_buffer(numbers)])


def _repeated(pa: Any, kind: Any, values: Sequence[int | str], runs: Sequence[ColumnRun]) -> Any:
    """Return a column that repeats each value for all rows of its run."""
    # Usually, all rows come from one partition, so nothing needs to be concatenated.
    if len(set(values)) == 1:
        return pa.repeat(pa.scalar(values[0], kind), sum(run.rows for run in runs))
    parts = [
        pa.repeat(pa.scalar(value, kind), run.rows) for value, run in zip(values, runs, strict=True)
    ]
    return pa.concat_arrays(parts)


def _bitmap(pa: Any, present: bytearray | bytes) -> Any:
    """Return the validity bitmap for bytes of 0 and 1, or None if all are 1."""
    if 0 not in present:
        return None
    # Arrow needs one bit per row. Its own cast to bool packs the bits without a loop in Python.
    flags = pa.Array.from_buffers(pa.uint8(), len(present), [None, pa.py_buffer(present)])
    return flags.cast(pa.bool_()).buffers()[1]


def _timestamps(pa: Any, kind: Any, times: array[int]) -> Any:
    # Kafka uses -1 for a record without a timestamp.
    has_all = min(times, default=0) >= 0
    valid = None if has_all else _bitmap(pa, bytes(time >= 0 for time in times))
    return _fixed(pa, kind, times, valid)


def _microseconds(pa: Any, kind: Any, columns: RecordColumns) -> Any:
    # As in Spark's connector, a record without a timestamp keeps -1, shown as a time in 1969.
    milliseconds = _fixed(pa, pa.timestamp("ms", tz="UTC"), columns.timestamps)
    try:
        return milliseconds.cast(kind)
    except pa.ArrowInvalid:
        latest = max(columns.timestamps, key=abs)
        offset = columns.offsets[columns.timestamps.index(latest)]
        raise OverflowError(
            f"cannot convert the timestamp {latest} ms of the record at offset {offset} to"
            " microseconds: it exceeds 64 bits; start the query after this record"
        ) from None


def _binary(pa: Any, present: bytearray, ends: array[int], parts: Sequence[bytes]) -> Any:
    buffers = [_bitmap(pa, present), pa.py_buffer(ends), pa.py_buffer(b"".join(parts))]
    return pa.Array.from_buffers(pa.binary(), len(present), buffers)


def _headers(
    pa: Any, kind: Any, columns: RecordColumns, rows: int, *, missing: Sequence[Any] | None = ()
) -> Any:
    """Return the headers column; `missing` is the value for a record without headers."""
    if columns.headers:
        # An Arrow string column accepts only valid UTF-8, but Kafka does not check header names.
        named = {
            row: [
                {"key": key.encode("utf-8", "replace").decode(), "value": value}
                for key, value in headers
            ]
            for row, headers in columns.headers.items()
        }
        return pa.array([named.get(row, missing) for row in range(rows)], kind)
    if missing is None:
        return pa.nulls(rows, kind)
    # Usually, no record has headers, so build the empty lists without a loop.
    ends = pa.Array.from_buffers(pa.int32(), rows + 1, [None, pa.py_buffer(bytes(4 * (rows + 1)))])
    return pa.ListArray.from_arrays(ends, pa.array([], kind.value_type), type=kind)
