"""Work on published files: merge the closed hours, and rewrite files after a column was widened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from plog.spark.jobs.warehouse.merge_planning import MergeLimits, merge_groups, plan_merges
from plog.spark.jobs.warehouse.parquet_merge import column_types
from plog.spark.jobs.warehouse.table_columns import TableColumns, write_columns
from plog.spark.jobs.warehouse.table_layout import is_data
from plog.spark.jobs.warehouse.warehouse_folder import WarehouseFolder

if TYPE_CHECKING:
    import pyarrow

_ARROW_NAMES: Final = {
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "float": "float32",
    "double": "float64",
}
"""The types that can be widened, or that others are widened to."""


@dataclass(frozen=True, slots=True)
class TableUpkeep:
    """Merges and rewrites the files of committed batches of `folder`; `report` prints progress."""

    folder: WarehouseFolder
    limits: MergeLimits
    report: Callable[[str], None]

    def merge_closed(self, now_ms: int, *, is_end: bool = False) -> None:
        """Merge the hours that are due; see `plan_merges`."""
        manifests = self.folder.committed_manifests()
        folders = {name for manifest in manifests for name in manifest.folders}
        counts = {name: len(self._names(self._root / name)) for name in folders}
        plan = plan_merges(manifests, counts, self.limits, now_ms, is_end=is_end)
        for name in plan.hours:
            self.merge_hour(self._root / name)
        # The manifests go last, because only they say which hours have new files.
        for manifest in plan.settled:
            self.folder.forget(manifest)

    def merge_hour(self, hour: Path) -> None:
        """Merge the small files of an hour."""
        # Files of a batch that may be repeated keep their names, by which they are removed then.
        files = self.folder.files
        pending = self.folder.pending()
        names = [name for name in self._names(hour) if hour / name not in pending]
        sizes = {name: files.size_bytes(hour / name) for name in names}
        groups = merge_groups(sizes, self.limits.target_bytes)
        if groups:
            self.folder.merge().run(hour, groups)
            count = sum(map(len, groups))
            self.report(
                f"merged {count} files of {hour.relative_to(self._root)} into {len(groups)}"
            )

    def rewrite_widened(self, topic: str, columns: TableColumns) -> TableColumns:
        """Give all files of a topic the types of its columns; return the columns, as stored.

        An interrupted call is repeated; it skips files that already have the types.
        """
        types = wide_types(columns)
        count = 0
        for hour in self._hours(self.folder.layout.topic(topic)):
            # Files are not merged here, because `merge_closed` decides that by their sizes.
            groups = [[name] for name in self._names(hour) if self._differs(hour / name, types)]
            self.folder.merge().run(hour, groups, types)
            count += len(groups)
        # The end is stored last. Until then, an interrupted call is repeated.
        done = TableColumns(columns=columns.columns)
        write_columns(self.folder.files, self.folder.layout.columns_of(topic), done)
        if count:
            self.report(f"rewrote {count} files of {topic}, because a column has a wider type")
        return done

    def _differs(self, path: Path, types: dict[str, pyarrow.DataType]) -> bool:
        found = column_types(path)
        return any(name in found and not found[name].equals(of) for name, of in types.items())

    def _hours(self, topic: Path) -> list[Path]:
        files = self.folder.files
        return [
            topic / date / hour for date in files.names(topic) for hour in files.names(topic / date)
        ]

    def _names(self, folder: Path) -> list[str]:
        return [name for name in self.folder.files.names(folder) if is_data(name)]

    @property
    def _root(self) -> Path:
        return self.folder.layout.root


def wide_types(columns: TableColumns) -> dict[str, pyarrow.DataType]:
    """Return the Arrow type of each column whose type may have been widened."""
    import pyarrow as pa

    return {
        column.name: pa.type_for_alias(_ARROW_NAMES[column.type])
        for column in columns.columns
        if column.type in _ARROW_NAMES
    }
