"""`HourMerge`: replace files of one hour by larger ones, without a moment at which readers err.

The new contents of the hour are prepared in a hidden folder: the merged files, and links to the
files that stay. Then both folders are exchanged in one operation, so a reader that lists the hour
finds either the old or the new files. File systems that cannot exchange folders rename both: the
hour is missing for a moment, but no record is there twice.

| step | state after an interruption | recovery |
|---|---|---|
| write the manifest, prepare the folder | the hour is unchanged | remove the folder |
| exchange | the hour contains the merged files | remove the old folder |
| without exchange: rename the hour | the hour is missing | rename the prepared folder |
| remove the old folder, then the manifest | the hour contains the merged files | the same |

Whether the hour contains the files in the manifest thus says which of both it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from plog.spark.jobs.table_files import TableFiles, damaged
from plog.spark.jobs.warehouse.parquet_merge import merge_files
from plog.spark.jobs.warehouse.table_layout import DATA_SUFFIX, TableLayout, is_data

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True, slots=True)
class HourMerge:
    """Merges the files of the warehouse in `layout`. `merge_contents` writes their records."""

    layout: TableLayout
    files: TableFiles
    merge_contents: Callable[[Sequence[Path], Path, Mapping[str, pyarrow.DataType]], int] = (
        merge_files
    )

    def run(
        self,
        hour: Path,
        groups: Sequence[Sequence[str]],
        types: Mapping[str, pyarrow.DataType] | None = None,
    ) -> list[str]:
        """Replace each group of files in a folder by one file, and return the new names.

        `types` are those of columns that have been widened. Raises OSError or ArrowException, and
        leaves the hour unchanged.
        """
        groups = [group for group in groups if group]
        # The names are new, because recovery recognizes the merged hour by them.
        outputs = [f"merged-{uuid4().hex}{DATA_SUFFIX}" for _ in groups]
        if not outputs:
            return []
        text = {"hour": str(hour.relative_to(self.layout.root)), "outputs": outputs}
        # The manifest is first, so that `recover` knows which hour was interrupted.
        self.files.write(self.layout.merge_manifest, json.dumps(text))
        self.files.make_folder(self._new)
        for group, output in zip(groups, outputs, strict=True):
            path = self._new / output
            self.merge_contents([hour / name for name in group], path, types or {})
            self.files.sync(path)
        merged = {name for group in groups for name in group}
        for name in self.files.names(hour):
            if is_data(name) and name not in merged:
                # Links cost no copy, and leave the hour unchanged until the exchange.
                self.files.link(hour / name, self._new / name)
        self.files.sync(self._new)
        if not self.files.exchange(self._new, hour):
            # A folder cannot be renamed to one that has files, so the hour is renamed first.
            self.files.move(hour, self._old)
            self.files.move(self._new, hour)
        self._clean_up(hour)
        return outputs

    def recover(self) -> None:
        """Complete or undo a merge that was interrupted. Raises ConfigError for a bad manifest."""
        path = self.layout.merge_manifest
        text = self.files.read(path)
        if text is None:
            return
        try:
            found = json.loads(text)
            hour, outputs = self.layout.root / str(found["hour"]), list(found["outputs"])
        except (ValueError, KeyError, TypeError) as error:
            damaged(path, error)
        if self.files.is_folder(self._old):
            if not self.files.is_folder(hour):
                self.files.move(self._new, hour)
            # Otherwise, the old folder would hold the only copy of the records.
            assert set(outputs) <= set(self.files.names(hour)), f"{hour} lacks {outputs}"
        self._clean_up(hour)

    def _clean_up(self, hour: Path) -> None:
        """Remove the folder that is not in use, and the manifest."""
        # Before the old files are removed: the new folder must survive a power failure.
        self.files.sync(hour.parent)
        self.files.remove_tree(self.layout.merge_folder)
        # Last, because without it, the folders would stay.
        self.files.remove(self.layout.merge_manifest)

    @property
    def _new(self) -> Path:
        return self.layout.merge_folder / "new"

    @property
    def _old(self) -> Path:
        return self.layout.merge_folder / "old"
