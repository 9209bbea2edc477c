"""`FaultyFiles`: files of a driver that is killed before one of its changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from plog.spark.jobs.table_files import TableFiles


class Killed(Exception):
    """The driver is killed. An Exception, because py4j passes only those on to Spark."""


@dataclass
class FaultyFiles(TableFiles):
    """Raises Killed before the change number `fail_at`, and before all others after it."""

    fail_at: int | None = None
    can_exchange: bool = True
    changes: list[str] = field(default_factory=list)
    has_failed: bool = False

    def _change(self, *words: object) -> None:
        if self.fail_at is not None and len(self.changes) >= self.fail_at:
            self.has_failed = True
            raise Killed(f"before change {self.fail_at}: {words}")
        self.changes.append(" ".join(map(str, words)))

    def write(self, path: Path, text: str) -> None:
        self._change("write", path)
        # Without fsync, which would take most of the time of the tests.
        partial = path.with_name(f".{path.name}.partial")
        partial.write_text(text)
        partial.replace(path)

    def make_folder(self, path: Path) -> None:
        if not path.is_dir():
            self._change("make", path)
        super().make_folder(path)

    def link(self, path: Path, other: Path) -> None:
        self._change("link", path, other)
        super().link(path, other)

    def move(self, path: Path, target: Path) -> None:
        self._change("move", path, target)
        super().move(path, target)

    def exchange(self, one: Path, other: Path) -> bool:
        if not self.can_exchange:
            return False
        self._change("exchange", one, other)
        return super().exchange(one, other)

    def sync(self, path: Path) -> None:
        self._change("sync", path)

    def remove(self, path: Path) -> None:
        if path.exists():
            self._change("remove", path)
        super().remove(path)

    def remove_folder(self, path: Path) -> None:
        self._change("rmdir", path)
        super().remove_folder(path)
