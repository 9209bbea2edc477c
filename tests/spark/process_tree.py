"""The processes below another one, read from /proc: the JVMs and Python workers of Spark."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

EXECUTOR = "CoarseGrainedExecutorBackend"
"""Part of the command of an executor's JVM."""
WORKER = "pyspark.daemon"
"""Part of the command of each Python worker, and of the process that starts them."""
_PROC = Path("/proc")


def command(pid: int) -> str:
    """Return the command of a process, or an empty string if it has ended."""
    try:
        return (_PROC / str(pid) / "cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def descendants(root: int, part: str = "") -> list[int]:
    """Return the processes below `root` whose command contains `part`."""
    parents: dict[int, int] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(stat[1])
    found: list[int] = []
    new = [root]
    while new:
        new = [pid for pid, parent in parents.items() if parent in new]
        found += new
    return [pid for pid in found if part in command(pid)]
