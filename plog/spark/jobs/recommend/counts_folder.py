"""`CountsFolder`: versions of the counts, and the published result, in the output of the job.

| path | |
|---|---|
| ``similar/`` | the result for readers |
| ``.plog/state.json`` | the query that owns the folder, and the versions that are complete |
| ``.plog/counts/BATCH/`` | the counts after a batch |
| ``.plog/staging/counts/``, ``.plog/staging/similar/`` | what the tasks of a batch write |

A batch reads the newest version before it, writes a new one, and never changes an existing one.
The version before the newest is kept, because Spark may repeat the newest batch.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from plog.spark.jobs.folder_owner import check_checkpoint, check_owner
from plog.spark.jobs.table_files import TableFiles, damaged


@dataclass(slots=True)
class CountsFolder:
    """The folder `root`, which `query` owns. One driver uses it at a time."""

    root: Path
    query: str
    files: TableFiles
    versions: Sequence[int] = field(default=(), init=False)
    """The batches whose counts are complete, in ascending order."""

    @classmethod
    def opened(cls, root: Path, query: str, files: TableFiles) -> CountsFolder:
        """Return the folder of a query. Raises ConfigError if another query owns it."""
        made = cls(root, query, files)
        files.make_folder(made._counts)
        text = files.read(made._state)
        if text is None:
            # The owner is stored first, so that another query cannot start to use the folder.
            made._write_state(())
        else:
            try:
                found = json.loads(text)
                owner = str(found["query"])
                made.versions = tuple(int(number) for number in found["versions"])
            except (ValueError, KeyError, TypeError) as error:
                damaged(made._state, error)
            check_owner(root, owner, query)
        return made

    @property
    def similar(self) -> Path:
        """Return the folder that readers use."""
        return self.root / "similar"

    @property
    def staged_counts(self) -> Path:
        """Return the folder into which tasks write the counts of a batch."""
        return self._staging / "counts"

    @property
    def staged_similar(self) -> Path:
        """Return the folder into which tasks write the result of a batch."""
        return self._staging / "similar"

    @property
    def _own(self) -> Path:
        return self.root / ".plog"

    @property
    def _state(self) -> Path:
        return self._own / "state.json"

    @property
    def _counts(self) -> Path:
        return self._own / "counts"

    @property
    def _staging(self) -> Path:
        return self._own / "staging"

    def begin(self, batch_id: int) -> Path | None:
        """Start a batch, and return the counts before it, or None if there are no counts.

        Removes what an earlier attempt has left. Raises ConfigError if the folder contains later
        batches.
        """
        newest = self.versions[-1] if self.versions else batch_id
        # Only the newest batch can be repeated, because counts before the previous one are removed.
        check_checkpoint(self.root, batch_id, oldest=newest, newest=newest)
        kept = tuple(number for number in self.versions if number < batch_id)
        # The state must not name counts that are being removed.
        if kept != self.versions:
            self._write_state(kept)
        self.files.remove_tree(self._staging)
        self._remove_others()
        return self._counts / str(kept[-1]) if kept else None

    def publish(self, batch_id: int, *, keep: bool = True) -> None:
        """Show readers the staged result; `keep` says whether the counts become a version."""
        # The contents must be durable before their new names are.
        for path in sorted(self._staging.rglob("*")):
            self.files.sync(path)
        if keep:
            self.files.move(self.staged_counts, self._counts / str(batch_id))
            self.files.sync(self._counts)
        self._replace_similar()
        # The state is written last: until then, Spark repeats the batch, with the counts before it.
        if keep:
            self._write_state((*self.versions[-1:], batch_id))
        self.files.remove_tree(self._staging)
        self._remove_others()

    def _replace_similar(self) -> None:
        old = self._staging / "old"
        if not self.files.is_folder(self.similar):
            self.files.move(self.staged_similar, self.similar)
        elif not self.files.exchange(self.staged_similar, self.similar):
            # The result is missing for a moment; if the driver is killed, the batch is repeated.
            self.files.move(self.similar, old)
            self.files.move(self.staged_similar, self.similar)
        self.files.sync(self.root)

    def _remove_others(self) -> None:
        """Remove counts that are not, or no longer, a version."""
        for name in self.files.names(self._counts):
            if name not in map(str, self.versions):
                self.files.remove_tree(self._counts / name)

    def _write_state(self, versions: Sequence[int]) -> None:
        text = json.dumps({"query": self.query, "versions": list(versions)})
        self.files.write(self._state, text)
        self.versions = tuple(versions)
