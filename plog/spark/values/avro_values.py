"""Conversion of Avro values to Arrow columns, in Spark's Python workers.

A value is one record in Avro's binary encoding, without the header of an Avro file and without the
prefix of a schema registry. fastavro, of the extra ``plog[avro]``, is imported on first use.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from plog.client.errors import MissingExtra
from plog.settings import ConfigError

if TYPE_CHECKING:
    import pyarrow

# The text of an error may contain the value, which may be large.
_ERROR_CHARS_MAX: Final = 200


def check_reader(schema: Mapping[str, Any]) -> None:
    """Check a schema before a query starts.

    Raises ConfigError, and MissingExtra without fastavro.
    """
    try:
        _fastavro().parse_schema(schema)
    except MissingExtra:
        raise
    except Exception as error:  # Its errors have no common class.
        raise ConfigError([f"the Avro schema is invalid: {error}"]) from None


def decode_avro(
    values: pyarrow.Array, schema: Mapping[str, Any], record_type: pyarrow.DataType
) -> pyarrow.StructArray:
    """Return a struct for each value: ``record``, of `record_type`, and ``error``, a string.

    Both are null for a null value. A value that cannot be decoded has a null record and an error.
    """
    import pyarrow as pa

    read = _reader(schema)
    records: list[Any] = []
    errors: list[str | None] = []
    for value in values.to_pylist():
        record, error = None, None
        if value is not None:
            try:
                record = read(value)
            except Exception as reason:  # fastavro raises whatever its parser runs into.
                error = _text(reason)
        records.append(record)
        errors.append(error)
    return pa.StructArray.from_arrays(
        [_column(records, errors, record_type), pa.array(errors, pa.string())],
        fields=[pa.field("record", record_type), pa.field("error", pa.string())],
    )


def _reader(schema: Mapping[str, Any]) -> Callable[[bytes], Any]:
    fastavro = _fastavro()
    # Otherwise, the reader would parse the schema for each value.
    parsed = fastavro.parse_schema(schema)

    def read(value: bytes) -> Any:
        stream = io.BytesIO(value)
        record = fastavro.schemaless_reader(stream, parsed, None)
        rest = len(value) - stream.tell()
        if rest:
            # Bytes of another schema often decode by chance, but rarely to their end.
            raise ValueError(f"{rest} of {len(value)} bytes are left after the record")
        return record

    return read


def _column(
    records: list[Any], errors: list[str | None], record_type: pyarrow.DataType
) -> pyarrow.Array:
    """Return the records as Arrow; one that does not fit becomes null, and its error is set."""
    import pyarrow as pa

    try:
        return pa.array(records, record_type)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        # The error does not say which record does not fit, so each one is tried. Usually, all fit.
        for index, record in enumerate(records):
            try:
                pa.array([record], record_type)
            except (pa.ArrowException, OverflowError, TypeError, ValueError) as reason:
                records[index], errors[index] = None, _text(reason)
        return pa.array(records, record_type)


def _text(error: Exception) -> str:
    if isinstance(error, IndexError) and "string" not in str(error):
        return "it has an index that its union or enum does not have"
    if isinstance(error, EOFError | IndexError):
        return "it ends within the record"
    return " ".join(str(error).split())[:_ERROR_CHARS_MAX] or type(error).__name__


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError:
        raise MissingExtra(
            "cannot decode Avro: fastavro is missing; run pip install 'plog[avro]' on the driver"
            " and on all executors"
        ) from None
    return fastavro
