"""`WarehouseFolder`: publish the files of batches, so that each batch has its effect once.

The driver calls `begin` at the start of each batch, lets the tasks write into the staging folder,
and calls `publish`. Spark starts a batch only after it has committed the one before, so `begin`
also says which batches will not be repeated. Their files may be merged.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from plog.settings import ConfigError
from plog.spark.jobs.folder_owner import check_checkpoint, check_owner
from plog.spark.jobs.table_files import TableFiles
from plog.spark.jobs.warehouse.hour_merge import HourMerge
from plog.spark.jobs.warehouse.table_layout import TableLayout, batch_file_name, is_data
from plog.spark.jobs.warehouse.warehouse_state import (
    NO_BATCH,
    BatchManifest,
    WarehouseState,
    read_manifests,
    read_state,
    write_manifest,
    write_state,
)


@dataclass(slots=True)
class WarehouseFolder:
    """The warehouse in `layout`, which `query` owns. One driver uses it at a time."""

    layout: TableLayout
    query: str
    files: TableFiles

    @classmethod
    def opened(cls, root: Path, query: str, files: TableFiles) -> WarehouseFolder:
        """Return the warehouse of a query, and complete a merge that was interrupted.

        Raises ConfigError if another query owns the folder.
        """
        made = cls(TableLayout(root), query, files)
        for folder in (made.layout.batches, made.layout.columns):
            files.make_folder(folder)
        state = read_state(files, made.layout)
        if state is None:
            write_state(files, made.layout, WarehouseState(query=query))
        else:
            check_owner(root, state.query, query)
        made.merge().recover()
        return made

    def merge(self) -> HourMerge:
        """Return the operation that merges the files of an hour."""
        return HourMerge(self.layout, self.files)

    @property
    def committed(self) -> int:
        """Return the newest batch that will not be repeated."""
        state = read_state(self.files, self.layout)
        return NO_BATCH if state is None else state.committed

    def begin(self, batch_id: int) -> None:
        """Start a batch: remove what an earlier attempt has left.

        Raises ConfigError if the warehouse already contains later batches, or lacks earlier ones.
        """
        committed = self.committed
        # Each batch records that the one before it will not be repeated.
        if committed < batch_id - 2:
            raise ConfigError(
                [
                    f"cannot write batch {batch_id} to {self.layout.root}: it contains batches up"
                    f" to {committed + 1}, so the table is older than the checkpoint; restore the"
                    " checkpoint and the table from the same backup, or start with a new checkpoint"
                    " and another folder"
                ]
            )
        check_checkpoint(self.layout.root, batch_id, oldest=committed + 1, newest=committed)
        # Spark starts a batch only after it has committed the one before.
        self.commit(batch_id - 1)
        self.files.remove_tree(self.layout.staging)
        for manifest in read_manifests(self.files, self.layout):
            if manifest.batch_id >= batch_id:
                for file in manifest.files:
                    self.files.remove(self.layout.root / file)
                # Last, because it is the only record of the files.
                self.files.remove(self.layout.batch(manifest.batch_id))

    def commit(self, batch_id: int) -> None:
        """Record that a batch, and those before it, will not be repeated."""
        if batch_id > self.committed:
            state = WarehouseState(query=self.query)
            write_state(self.files, self.layout, replace(state, committed=batch_id))

    def publish(self, batch_id: int, skipped: frozenset[Path] = frozenset()) -> BatchManifest:
        """Show readers the staged files of a batch, except `skipped`, and return their names."""
        moves = dict(self._moves(batch_id, skipped))
        names = tuple(str(target.relative_to(self.layout.root)) for target in moves.values())
        manifest = BatchManifest(batch_id=batch_id, files=names)
        # A batch without files leaves nothing to remove, so it needs no manifest.
        if not moves:
            return manifest
        for path in moves:
            self.files.sync(path)
        # The contents are durable before readers see a name, and the manifest before the first one.
        # `begin` removes by it what an interrupted batch has published.
        write_manifest(self.files, self.layout, manifest)
        folders = sorted({target.parent for target in moves.values()})
        for folder in folders:
            self.files.make_folder(folder)
        for path, target in moves.items():
            self.files.move(path, target)
        for folder in folders:
            self.files.sync(folder)
        return manifest

    def staged_files(self) -> list[Path]:
        """Return the files that the tasks have written."""
        return sorted(
            path for path in self.layout.staging.rglob("*") if is_data(path.name) and path.is_file()
        )

    def _moves(self, batch_id: int, skipped: frozenset[Path]) -> Iterator[tuple[Path, Path]]:
        """Yield the path and the public path of each staged file."""
        wanted = [path for path in self.staged_files() if path not in skipped]
        # The files are sorted, so those of a folder are next to each other.
        for folder, group in itertools.groupby(wanted, key=lambda path: path.parent):
            target = self.layout.root / folder.relative_to(self.layout.staging)
            for number, path in enumerate(group):
                yield path, target / batch_file_name(self.query, batch_id, number)

    def committed_manifests(self) -> list[BatchManifest]:
        """Return the manifests of batches that will not be repeated, the oldest first."""
        committed = self.committed
        manifests = read_manifests(self.files, self.layout)
        return [manifest for manifest in manifests if manifest.batch_id <= committed]

    def pending(self) -> frozenset[Path]:
        """Return the files of batches that may be repeated."""
        committed = self.committed
        return frozenset(
            self.layout.root / file
            for manifest in read_manifests(self.files, self.layout)
            if manifest.batch_id > committed
            for file in manifest.files
        )

    def forget(self, manifest: BatchManifest) -> None:
        """Remove a manifest whose hours need no further merge."""
        self.files.remove(self.layout.batch(manifest.batch_id))
