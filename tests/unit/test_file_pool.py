"""Pooled files, which are open only while they are used."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from plogd.descriptor_budget import DescriptorBudget
from plogd.file_pool import FilePool, PooledFile
from plogd.os_files import OsFile, OsFiles
from plogd.ports import File
from tests.helpers.sim.sim_files import SimFiles


def _open_descriptors(root: Path) -> int:
    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    return sum(os.path.islink(one) and os.readlink(one).startswith(str(root)) for one in links)


def _files(limit: int = 64) -> OsFiles:
    files = OsFiles()
    files.descriptors.set_limit(limit, 1)
    return files


def test_only_most_recently_used_files_stay_open(tmp_path: Path) -> None:
    files = _files(limit=64)
    opened = [files.open_on_demand(f"{tmp_path}/{number}") for number in range(50)]
    for number, file in enumerate(opened):
        file.append(b"%d" % number)
    assert _open_descriptors(tmp_path) == files.descriptors.max_idle == 8
    assert [file.is_open for file in opened] == [False] * 42 + [True] * 8
    assert [file.pread(9, 0) for file in opened] == [b"%d" % number for number in range(50)]
    assert _open_descriptors(tmp_path) == 8


def test_recently_used_file_is_not_closed_next(tmp_path: Path) -> None:
    files = _files(limit=64)
    opened = [files.open_on_demand(f"{tmp_path}/{number}") for number in range(8)]
    opened[0].size()
    files.open_on_demand(f"{tmp_path}/8")
    assert [file.is_open for file in opened] == [True, False] + [True] * 6


def test_file_being_written_keeps_its_descriptor(tmp_path: Path) -> None:
    files = _files(limit=64)
    written = files.open_on_demand(f"{tmp_path}/written")
    writer = written.retain_for_writing()
    for number in range(20):
        files.open_on_demand(f"{tmp_path}/{number}")
    writer.append(b"x")
    assert written.is_open
    assert files.descriptors.writing == 1
    writer.close()
    written.end_writing()
    assert files.descriptors.writing == 0
    assert _open_descriptors(tmp_path) == 8
    assert written.pread(9, 0) == b"x"


def test_files_being_written_are_limited_except_for_the_metadata_log(
    tmp_path: Path,
) -> None:
    files = _files(limit=64)
    opened = [files.open_on_demand(f"{tmp_path}/{number}") for number in range(64)]
    taken = 51
    for file in opened[:taken]:
        file.retain_for_writing()
    with pytest.raises(OSError, match="51 log files are being written") as refused:
        opened[taken].retain_for_writing()
    assert refused.value.errno == errno.EMFILE
    assert taken == files.descriptors.writing
    reserved = files.open_on_demand(f"{tmp_path}/metadata")
    reserved.retain_for_writing(is_reserved=True)
    assert files.descriptors.writing == taken + 1
    opened[0].close()
    reserved.close()
    opened[taken].retain_for_writing()


def test_file_that_cannot_be_opened_is_not_counted_as_written(tmp_path: Path) -> None:
    files = _files(limit=64)
    file = files.open_on_demand(f"{tmp_path}/a")
    for number in range(20):
        files.open_on_demand(f"{tmp_path}/{number}")
    (tmp_path / "a").unlink()
    with pytest.raises(FileNotFoundError):
        file.retain_for_writing()
    assert files.descriptors.writing == 0


def test_retained_file_survives_its_eviction_and_unlink(tmp_path: Path) -> None:
    files = _files(limit=64)
    file = files.open_on_demand(f"{tmp_path}/a")
    file.append(b"kept")
    held = file.retain()
    for number in range(20):
        files.open_on_demand(f"{tmp_path}/{number}")
    assert not file.is_open
    file.close()
    (tmp_path / "a").unlink()
    assert held.pread(9, 0) == b"kept"
    held.close()
    assert not held.is_open


def test_unlinked_file_is_not_recreated(tmp_path: Path) -> None:
    files = _files(limit=64)
    file = files.open_on_demand(f"{tmp_path}/a")
    for number in range(20):
        files.open_on_demand(f"{tmp_path}/{number}")
    (tmp_path / "a").unlink()
    with pytest.raises(FileNotFoundError):
        file.size()
    assert not (tmp_path / "a").exists()


def test_renamed_file_is_reopened_under_its_new_name() -> None:
    files = SimFiles(["/d"])
    files.descriptors.set_limit(64, 1)
    file = files.open_on_demand("/d/a")
    file.append(b"x")
    files.rename("/d/a", "/d/b")
    file.path = "/d/b"
    for number in range(20):
        files.open_on_demand(f"/d/{number}")
    assert not file.is_open
    assert file.pread(1, 0) == b"x"


def test_cached_read_never_opens_a_file() -> None:
    files = SimFiles(["/d"])
    files.descriptors.set_limit(64, 1)
    file = files.open_on_demand("/d/a")
    file.append(b"x")
    assert file.pread_nowait(1, 0) == b"x"
    for number in range(20):
        files.open_on_demand(f"/d/{number}")
    assert file.pread_nowait(1, 0) is None
    assert not file.is_open


def test_closed_file_cannot_be_used_and_is_not_reopened() -> None:
    files = SimFiles(["/d"])
    file = files.open_on_demand("/d/a")
    file.close()
    with pytest.raises(OSError, match="closed") as refused:
        file.pread(1, 0)
    assert refused.value.errno == errno.EBADF
    assert not file.is_open


def test_file_closed_while_it_is_being_opened_stays_closed() -> None:
    """Another thread closes the file: the descriptor is used for this call only."""
    files = SimFiles(["/d"])
    files.open_append("/d/a").append(b"x")

    def reopen(path: str) -> File:
        file.close()
        return files.open_existing(path)

    pool = FilePool(files.open_append, reopen, DescriptorBudget(), threading.Lock())
    file = PooledFile(pool, "/d/a")
    assert file.pread(1, 0) == b"x"
    assert not file.is_open


def test_append_reopens_file_that_another_thread_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = _files(limit=64)
    file = files.open_on_demand(f"{tmp_path}/a")
    file.append(b"1")
    append = OsFile.append

    def close_then_append(opened: OsFile, data: bytes) -> None:
        monkeypatch.undo()
        for number in range(20):
            files.open_on_demand(f"{tmp_path}/{number}")
        assert not opened.is_open
        append(opened, data)

    monkeypatch.setattr(OsFile, "append", close_then_append)
    file.append(b"2")
    assert (tmp_path / "a").read_bytes() == b"12"


def test_file_opened_by_two_threads_is_open_once() -> None:
    files = SimFiles(["/d"])
    files.open_append("/d/a").append(b"x")
    opened: list[File] = []

    def reopen(path: str) -> File:
        own = files.open_existing(path)
        opened.append(own)
        if len(opened) == 1:
            assert file.pread(1, 0) == b"x"  # Stands for a read in another thread.
        return own

    pool = FilePool(files.open_append, reopen, DescriptorBudget(), threading.Lock())
    file = PooledFile(pool, "/d/a")
    assert file.pread(1, 0) == b"x"
    assert [one.is_open for one in opened] == [False, True]
    file.close()
    assert not any(one.is_open for one in opened)


def test_threads_sharing_few_descriptors_read_the_right_files(tmp_path: Path) -> None:
    files = _files(limit=64)
    opened = [files.open_on_demand(f"{tmp_path}/{number}") for number in range(40)]
    for number, file in enumerate(opened):
        file.append(b"%04d" % number)
    wrong: list[bytes] = []

    def read(start: int) -> None:
        for step in range(400):
            number = (start * 7 + step * 3) % len(opened)
            found = opened[number].pread(4, 0)
            if found != b"%04d" % number:
                wrong.append(found)

    threads = [threading.Thread(target=read, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert _open_descriptors(tmp_path) <= files.descriptors.max_idle


def test_simulator_opens_on_demand_like_the_operating_system(tmp_path: Path) -> None:
    for files, root in ((_files(), str(tmp_path)), (SimFiles(["/d"]), "/d")):
        file = files.open_on_demand(f"{root}/a")
        file.append(b"12345")
        file.truncate(3)
        file.sync()
        assert (file.size(), file.pread(9, 1), file.fileno()) == (3, b"23", -1)
        held = file.retain()
        assert isinstance(held, OsFile) or root == "/d"
        held.close()
        file.close()
