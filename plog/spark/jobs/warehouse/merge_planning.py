"""Which hours to merge, and which of their files. Pure.

An hour is merged when it is closed, because until then, batches add files to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from plog.spark.jobs.warehouse.table_layout import DEAD_LETTERS
from plog.spark.jobs.warehouse.warehouse_state import BatchManifest

_HOUR: Final = re.compile(r".+/date=([^/]+)/hour=(\d\d)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeLimits:
    """When to merge: `close_delay_s` after the end of an hour, up to `target_bytes` per file."""

    close_delay_s: float = 600
    # One row group of Spark and Arrow is 128 MB at most.
    target_bytes: int = 256 << 20
    max_files: int = 50
    """An hour that the newest batch has changed waits for the next batch, up to this number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePlan:
    """The closed hours that are due, and the manifests to remove once they are merged."""

    hours: tuple[str, ...]
    settled: tuple[BatchManifest, ...]


def plan_merges(
    manifests: Sequence[BatchManifest],
    counts: Mapping[str, int],
    limits: MergeLimits,
    now_ms: int,
    *,
    is_end: bool,
) -> MergePlan:
    """Return what to merge; `manifests` are those of committed batches, the oldest first.

    `counts` are the numbers of files in the hours. With `is_end`, no further batch is expected
    soon, so hours that the newest batch has changed do not wait.
    """
    changing = manifests[-1].folders if manifests and not is_end else frozenset()
    pending = {folder for manifest in manifests for folder in manifest.folders if is_hour(folder)}
    due = {
        hour
        for hour in pending
        if is_closed(hour, limits.close_delay_s, now_ms)
        # With late records in each batch, an hour would otherwise never be merged.
        and (hour not in changing or counts.get(hour, 0) > limits.max_files)
    }
    rest = pending - due
    # The other manifests stay, because only they say which hours have new files.
    settled = tuple(manifest for manifest in manifests if not manifest.folders & rest)
    return MergePlan(hours=tuple(sorted(due)), settled=settled)


def is_hour(folder: str) -> bool:
    """Return whether a folder contains the records of an hour."""
    return _HOUR.match(folder) is not None and not folder.startswith(f"{DEAD_LETTERS}/")


def is_closed(hour: str, delay_s: float, now_ms: int) -> bool:
    """Return whether an hour ended at least `delay_s` ago.

    >>> is_closed("t/date=1970-01-01/hour=00", 60, 3_660_000)
    True
    >>> is_closed("t/date=1970-01-01/hour=00", 60, 3_659_999)
    False
    """
    end_ms = _end_ms(hour)
    return end_ms is not None and now_ms >= end_ms + delay_s * 1000


def _end_ms(hour: str) -> int | None:
    """Return the end of an hour, or None if its date is not one of Python's."""
    found = _HOUR.match(hour)
    assert found is not None
    try:
        start = datetime.fromisoformat(f"{found[1]}T{found[2]}:00:00").replace(tzinfo=UTC)
    except ValueError:
        return None  # A record with a timestamp after the year 9999.
    return (start - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1) + 3_600_000


def merge_groups(sizes: Mapping[str, int], target_bytes: int) -> list[list[str]]:
    """Return the files to merge into one each; `sizes` are by name.

    Files of at least the target size stay as they are, and so does a file that is alone.

    >>> merge_groups({"a": 4, "b": 10, "c": 5, "d": 3, "e": 2}, 10)
    [['a', 'c', 'd']]
    """
    groups: list[list[str]] = [[]]
    total = 0
    # Names begin with the query and the batch, so this is the order in which files were written.
    for name, size in sorted(sizes.items()):
        # Large files stay, so that a late record costs only a small merge.
        if size >= target_bytes:
            continue
        groups[-1].append(name)
        total += size
        if total >= target_bytes:
            groups.append([])
            total = 0
    return [group for group in groups if len(group) > 1]
