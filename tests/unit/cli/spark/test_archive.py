"""plog/cli/spark/archive.py: the bytes of the archive, and what it was made for."""

from __future__ import annotations

import gzip
import os
import tarfile
from pathlib import Path

import pytest

from plog.cli.spark.archive import (
    INFO_NAME,
    ArchiveError,
    ArchiveInfo,
    check_info,
    read_info,
    write_archive,
)

INFO = ArchiveInfo(plog="1.2.3", python="3.11")


def files(folder: Path, *names: str) -> dict[str, Path]:
    folder.mkdir()
    for name in names:
        (folder / name).write_text(name)
    return {f"pack/{name}": folder / name for name in names}


def test_same_contents_are_the_same_bytes(tmp_path: Path) -> None:
    first = files(tmp_path / "1", "a.py", "b.so")
    second = files(tmp_path / "2", "b.so", "a.py")
    os.utime(second["pack/a.py"], (1, 1))
    second["pack/a.py"].chmod(0o600)
    for name, contents in (("x.tar.gz", first), ("y.tar.gz", second)):
        write_archive(tmp_path / name, contents, INFO)
    assert (tmp_path / "x.tar.gz").read_bytes() == (tmp_path / "y.tar.gz").read_bytes()


def test_members_are_sorted_and_readable_by_all(tmp_path: Path) -> None:
    write_archive(tmp_path / "x.tar.gz", files(tmp_path / "1", "b", "a"), INFO)
    with tarfile.open(tmp_path / "x.tar.gz") as archive:
        assert archive.getnames() == [INFO_NAME, "pack/a", "pack/b"]
        assert {(member.mode, member.mtime) for member in archive} == {(0o644, 0)}


def test_info_is_read_back(tmp_path: Path) -> None:
    write_archive(tmp_path / "x.tar.gz", {}, INFO)
    assert read_info(tmp_path / "x.tar.gz") == INFO


def test_failed_write_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_archive(tmp_path / "x.tar.gz", {"a": tmp_path / "missing"}, INFO)
    assert list(tmp_path.iterdir()) == []


def test_other_file_is_not_an_archive_of_pack(tmp_path: Path) -> None:
    path = tmp_path / "x.tar.gz"
    for content in (b"", b"no archive", gzip.compress(b""), gzip.compress(b"x" * 1024)):
        path.write_bytes(content)
        with pytest.raises(ArchiveError, match="plog spark pack has not made it"):
            read_info(path)
    with tarfile.open(path, "w:gz") as archive:
        archive.add(__file__, "a.py")
    with pytest.raises(ArchiveError, match="plog spark pack has not made it"):
        read_info(path)


def test_missing_archive_is_an_error_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_info(tmp_path / "x.tar.gz")


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (ArchiveInfo(plog="1.2.4", python="3.11"), "packed for plog 1.2.3, but this is plog 1.2.4"),
        (ArchiveInfo(plog="1.2.3", python="3.12"), "packed for Python 3.11, but this is Python"),
    ],
)
def test_archive_for_another_version_is_refused(other: ArchiveInfo, message: str) -> None:
    check_info(Path("x"), INFO, INFO)
    with pytest.raises(ArchiveError, match=message):
        check_info(Path("x"), INFO, other)
