"""The comparison of replicas finds every difference."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.faults.replica_logs import compare_replicas


def write(folder: Path, name: str, *segments: bytes) -> Path:
    """Write the segments of partition 0; return the broker's directory."""
    directory = folder / name / "t-0"
    directory.mkdir(parents=True)
    for number, data in enumerate(segments):
        (directory / f"{number:020d}.log").write_bytes(data)
        (directory / f"{number:020d}.index").write_bytes(name.encode())
    return folder / name


def test_equal_logs_in_different_segments_do_not_differ(tmp_path: Path) -> None:
    dirs = {1: write(tmp_path, "one", b"ab", b"c"), 2: write(tmp_path, "two", b"a", b"bc")}
    assert compare_replicas(dirs, "t", 1) == []


def test_other_byte_is_found(tmp_path: Path) -> None:
    dirs = {
        1: write(tmp_path, "one", b"abc"),
        2: write(tmp_path, "two", b"abc"),
        3: write(tmp_path, "three", b"abx"),
    }
    [problem] = compare_replicas(dirs, "t", 1)
    assert problem == (
        "the replicas of partition 0 on brokers 1 and 3 differ: 3 and 3 bytes, equal up to 2"
    )


def test_missing_end_is_found(tmp_path: Path) -> None:
    dirs = {1: write(tmp_path, "one", b"abc"), 2: write(tmp_path, "two", b"ab")}
    [problem] = compare_replicas(dirs, "t", 1)
    assert problem.endswith("3 and 2 bytes, equal up to 2")


def test_missing_partition_is_found(tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    dirs = {1: write(tmp_path, "one", b"abc"), 2: tmp_path / "two"}
    assert len(compare_replicas(dirs, "t", 1)) == 1
