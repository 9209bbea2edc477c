"""The state of a warehouse, and the manifests of its batches.

A manifest is written before the first file of its batch is published, and lists all of them. If
Spark repeats the batch, the job removes these files first. A manifest is kept until the hours of
the batch have been merged, and thus also says which hours have new files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from plog.spark.jobs.table_files import TableFiles, damaged
from plog.spark.jobs.warehouse.table_layout import TableLayout

NO_BATCH: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseState:
    """The query that owns the warehouse, and the newest batch that Spark does not repeat."""

    query: str
    committed: int = NO_BATCH


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchManifest:
    """The files of a batch, as paths below the root of the warehouse."""

    batch_id: int
    # Relative paths stay valid if the warehouse is moved.
    files: tuple[str, ...]

    @property
    def folders(self) -> frozenset[str]:
        """Return the folders with files of the batch."""
        return frozenset(file.rpartition("/")[0] for file in self.files)


def read_state(files: TableFiles, layout: TableLayout) -> WarehouseState | None:
    """Return the state, or None for a new warehouse. Raises ConfigError if it is damaged."""
    text = files.read(layout.state)
    if text is None:
        return None
    try:
        found = json.loads(text)
        return WarehouseState(query=str(found["query"]), committed=int(found["committed"]))
    except (ValueError, KeyError, TypeError) as error:
        damaged(layout.state, error)


def write_state(files: TableFiles, layout: TableLayout, state: WarehouseState) -> None:
    """Replace the state."""
    text = json.dumps({"query": state.query, "committed": state.committed})
    files.write(layout.state, text)


def read_manifests(files: TableFiles, layout: TableLayout) -> list[BatchManifest]:
    """Return the manifests by their batches. Raises ConfigError if one is damaged."""
    found = []
    for name in files.names(layout.batches):
        stem, _, suffix = name.partition(".")
        if not stem.isdigit() or suffix != "json":
            continue  # A manifest that was not written completely has another name.
        path = layout.batches / name
        try:
            listed = json.loads(files.read(path) or "")["files"]
            found.append(BatchManifest(batch_id=int(stem), files=tuple(map(str, listed))))
        except (ValueError, KeyError, TypeError) as error:
            damaged(path, error)
    return sorted(found, key=lambda manifest: manifest.batch_id)


def write_manifest(files: TableFiles, layout: TableLayout, manifest: BatchManifest) -> None:
    """Write the manifest of a batch."""
    files.write(layout.batch(manifest.batch_id), json.dumps({"files": list(manifest.files)}))
