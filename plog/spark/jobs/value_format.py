"""`ValueFormat`: how a job reads the values of records. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from plog.settings import ConfigError, nearest_name

RAW: Final = "raw"
"""Values are not decoded: they stay in the binary column ``value``."""
FORMATS: Final = (RAW, "text", "json", "csv", "avro")
# The values of these formats do not contain the names of their fields.
_NEED_SCHEMA: Final = ("csv", "avro")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueFormat:
    """The format of values and their schema, as `plog.spark.decode` expects them.

    Without a schema, the columns of JSON values are found in the data, by jobs that support that.
    """

    name: str = RAW
    schema: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name not in FORMATS:
            near = nearest_name(self.name, FORMATS)
            hint = f"did you mean {near}?" if near else f"use one of {', '.join(FORMATS)}"
            raise ConfigError([f"cannot read values in the format {self.name!r}: {hint}"])
        if self.schema is None and self.name in _NEED_SCHEMA:
            raise ConfigError([f"cannot read values in the format {self.name}: set a schema"])
        if self.schema is not None and self.name == RAW:
            raise ConfigError(["cannot use a schema: the format raw has one column; set a format"])

    @property
    def is_inferred(self) -> bool:
        """Return whether the columns are found in the data."""
        return self.name == "json" and self.schema is None
