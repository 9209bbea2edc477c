"""plogd/tools/storage/file_copy.py: copies on file systems with different capabilities."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from plogd.tools.storage import file_copy as storage_copy
from plogd.tools.storage.file_copy import can_clone, copy_file, data_extents

MIB = 1 << 20


@pytest.fixture(params=["as it comes", "no clone", "no copy_file_range"])
def _ability(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test with each way of copying, by disabling the others."""

    def cannot(*arguments: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    if request.param != "as it comes":
        monkeypatch.setattr(storage_copy.fcntl, "ioctl", cannot)
    if request.param == "no copy_file_range":
        monkeypatch.setattr(os, "copy_file_range", cannot)


@pytest.mark.usefixtures("_ability")
@pytest.mark.parametrize("size", [0, 1, 4096, 3 * MIB + 7])
def test_copy_keeps_bytes_and_time_and_reports_progress(tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    (tmp_path / "a").write_bytes(content)
    os.utime(tmp_path / "a", (1000, 2000))
    progress: list[int] = []
    copy_file(str(tmp_path / "a"), str(tmp_path / "b"), progress.append)
    assert (tmp_path / "b").stat().st_mtime == 2000
    assert (tmp_path / "b").read_bytes() == content
    assert sum(progress) == size


@pytest.mark.usefixtures("_ability")
@pytest.mark.parametrize("data_at", [[], [0], [5], [0, 5, 9]])
def test_copy_keeps_holes(tmp_path: Path, data_at: list[int]) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    with source.open("wb") as file:
        for mib in data_at:
            file.seek(mib * MIB)
            file.write(b"x" * 4096)
        file.truncate(10 * MIB)
    if source.stat().st_blocks * 512 >= 10 * MIB:
        pytest.skip("this file system has no holes")
    progress: list[int] = []
    copy_file(str(source), str(target), progress.append)
    assert target.read_bytes() == source.read_bytes()
    assert target.stat().st_blocks * 512 < MIB
    assert sum(progress) == 10 * MIB


def test_copy_does_not_overwrite_existing_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"new")
    (tmp_path / "b").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        copy_file(str(tmp_path / "a"), str(tmp_path / "b"), lambda count: None)
    assert (tmp_path / "b").read_bytes() == b"old"


def test_disk_error_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> int:
        raise OSError(errno.EIO, "the disk is broken")

    (tmp_path / "a").write_bytes(b"x")
    monkeypatch.setattr(storage_copy.fcntl, "ioctl", fail)
    with pytest.raises(OSError, match="the disk is broken"):
        copy_file(str(tmp_path / "a"), str(tmp_path / "b"), lambda count: None)


def test_file_is_one_extent_when_holes_are_unsupported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(*arguments: object) -> int:
        raise OSError(errno.EINVAL, "no holes")

    monkeypatch.setattr(os, "lseek", cannot)
    assert list(data_extents(0, 10)) == [(0, 10)]


def test_can_clone_removes_its_probe_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 4096)
    assert can_clone(str(tmp_path / "a"), str(tmp_path)) in (True, False)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
