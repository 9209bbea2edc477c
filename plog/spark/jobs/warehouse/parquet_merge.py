"""Merge Parquet files of a table: their columns are united, and values widened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plog.settings import ConfigError

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet

ROW_GROUP_BYTES: Final = 64 << 20
"""Records are collected in memory up to this size."""
_ROWS_AT_ONCE: Final = 16_384


def merge_files(inputs: Sequence[Path], output: Path, types: Mapping[str, pyarrow.DataType]) -> int:
    """Write the rows of `inputs` to `output`, and return their number.

    A column has the type in `types`, or else that of the files. Raises ConfigError if the files
    differ in the type of another column.
    """
    import pyarrow.parquet as pq

    schema = merged_schema([pq.read_schema(path) for path in inputs], types)
    rows = 0
    with pq.ParquetWriter(output, schema, compression="zstd") as writer:
        for table in _row_groups(inputs, schema):
            # By default, pyarrow divides a table into row groups of about a million rows.
            writer.write_table(table, row_group_size=max(1, table.num_rows))
            rows += table.num_rows
    # The inputs are removed afterwards, so a missing row would be lost.
    expected = sum(row_count(path) for path in inputs)
    assert rows == expected == row_count(output), f"{output} has {rows} rows instead of {expected}"
    return rows


def merged_schema(
    schemas: Sequence[pyarrow.Schema], types: Mapping[str, pyarrow.DataType]
) -> pyarrow.Schema:
    """Return the columns of all files, in the order in which they appear."""
    import pyarrow as pa

    found: dict[str, pyarrow.DataType] = {}
    for schema in schemas:
        for field in schema:
            wanted = types.get(field.name, found.get(field.name, field.type))
            # Only columns that the job has widened may differ. Other differences are damage.
            if field.name not in types and not wanted.equals(field.type):
                raise ConfigError(
                    [
                        f"cannot merge files: the column {field.name} is {wanted} in one of them"
                        f" and {field.type} in another; restore the table from a backup"
                    ]
                )
            found[field.name] = wanted
    # Without the metadata in which Spark keeps the schema of the single file.
    return pa.schema([pa.field(name, of) for name, of in found.items()])


def _row_groups(inputs: Sequence[Path], schema: pyarrow.Schema) -> Iterator[pyarrow.Table]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    collected: list[pyarrow.Table] = []
    for path in inputs:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_rows_at_once(file.metadata)):
                collected.append(_conformed(pa.Table.from_batches([batch]), schema))
                if sum(table.nbytes for table in collected) >= ROW_GROUP_BYTES:
                    yield pa.concat_tables(collected)
                    collected = []
    if collected:
        yield pa.concat_tables(collected)


def _rows_at_once(metadata: pyarrow.parquet.FileMetaData) -> int:
    """Return how many rows of a file to read at once; with large values, only a few."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    row_bytes = max((one.total_byte_size // max(1, one.num_rows) for one in groups), default=0)
    return max(1, min(_ROWS_AT_ONCE, ROW_GROUP_BYTES // max(1, row_bytes)))


def _conformed(table: pyarrow.Table, schema: pyarrow.Schema) -> pyarrow.Table:
    """Return a table with the columns of `schema`; those that it lacks are null."""
    import pyarrow as pa

    columns = []
    for field in schema:
        if field.name in table.column_names:
            # Unsafe, because a bigint of more than 53 bits becomes the nearest double.
            columns.append(table.column(field.name).cast(field.type, safe=False))
        else:
            columns.append(pa.nulls(table.num_rows, field.type))
    return pa.table(columns, schema=schema)


def row_count(path: Path) -> int:
    """Return the number of rows in a file, from its footer."""
    import pyarrow.parquet as pq

    return int(pq.read_metadata(path).num_rows)


def column_types(path: Path) -> dict[str, pyarrow.DataType]:
    """Return the types of the columns in a file, from its footer."""
    import pyarrow.parquet as pq

    return {field.name: field.type for field in pq.read_schema(path)}
