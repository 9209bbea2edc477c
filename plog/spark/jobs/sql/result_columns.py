"""The columns of a result as text or as JSON, as Spark formats them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NESTED: Final = ("array", "struct", "map")


def as_text(result: DataFrame) -> DataFrame:
    """Return all columns as strings; nested ones contain JSON."""
    from pyspark.sql import functions as F

    # Names of a result need not be unique.
    numbered = result.toDF(*(f"c{number}" for number in range(len(result.columns))))
    columns = []
    for field in numbered.schema.fields:
        column = F.col(field.name)
        if field.dataType.typeName() in _NESTED:
            columns.append(F.to_json(column))
        else:
            columns.append(F.make_valid_utf8(column.cast("string")))
    return numbered.select(*columns)


def as_json(result: DataFrame) -> DataFrame:
    """Return one column with a JSON object for each row, which contains nulls, too."""
    from pyspark.sql import functions as F

    # Most JSON parsers keep only one of several fields with the same name.
    named = result.toDF(*unique_names(result.columns))
    return named.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"}))


def unique_names(names: list[str]) -> list[str]:
    """Return the names with a number after each repeated one.

    >>> unique_names(["id", "id", "id_2", "ID"])
    ['id', 'id_2', 'id_2_2', 'ID_3']
    """
    found: list[str] = []
    taken: set[str] = set()
    for name in names:
        number, candidate = 1, name
        # Spark's names ignore the case, so that a struct cannot have both id and ID.
        while candidate.lower() in taken:
            number += 1
            candidate = f"{name}_{number}"
        taken.add(candidate.lower())
        found.append(candidate)
    return found
