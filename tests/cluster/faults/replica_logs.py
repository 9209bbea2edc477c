"""Compare the logs of all replicas on disk, which must be identical byte for byte."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def compare_replicas(data_dirs: Mapping[int, Path], topic: str, partitions: int) -> list[str]:
    """Return the partitions whose replicas differ; all brokers have stopped and were in sync."""
    problems = []
    for number in range(partitions):
        logs = {one: log_bytes(path / f"{topic}-{number}") for one, path in data_dirs.items()}
        [first, *others] = logs
        for other in others:
            if logs[first] != logs[other]:
                problems.append(
                    f"the replicas of partition {number} on brokers {first} and {other} differ:"
                    f" {len(logs[first])} and {len(logs[other])} bytes, equal up to"
                    f" {_common_length(logs[first], logs[other])}"
                )
    return problems


def log_bytes(directory: Path) -> bytes:
    """Return the batches in all segments of a log, in order."""
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def _common_length(one: bytes, other: bytes) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((position for position, (a, b) in pairs if a != b), min(len(one), len(other)))
