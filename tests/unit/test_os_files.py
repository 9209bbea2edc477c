"""The Files port, tested for both implementations: the operating system and the simulator.

Tests of the operating system alone follow the shared ones. test_os_files_simulated.py tests the
simulator's fault model.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plogd import os_files
from plogd.os_files import OsFiles
from plogd.ports import Files
from tests.helpers.sim.sim_files import SimFiles


@pytest.fixture(params=["real", "simulated"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    return OsFiles() if request.param == "real" else SimFiles([str(tmp_path)])


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path)


def _write(files: Files, path: str, content: bytes) -> None:
    file = files.open_append(path)
    file.append(content)
    file.close()


# -- one file ---------------------------------------------------------------------------------


def test_appended_bytes_can_be_read(files: Files, root: str) -> None:
    file = files.open_append(f"{root}/a")
    assert file.size() == 0
    file.append(b"hello ")
    file.append(bytearray(b"big "))
    file.append(memoryview(b"-world-")[1:-1])
    assert file.size() == 15
    assert file.pread(100, 0) == b"hello big world"
    assert file.pread(3, 6) == b"big"
    assert file.pread(10, 12) == b"rld"
    assert file.pread(10, 15) == file.pread(10, 99) == file.pread(0, 0) == b""
    assert files.read_file(f"{root}/a") == b"hello big world"


def test_large_append_is_complete(files: Files, root: str) -> None:
    file = files.open_append(f"{root}/a")
    data = bytes(range(256)) * (20 << 10)
    file.append(data)
    assert file.pread(len(data), 0) == data


def test_reopened_file_appends_at_the_end(files: Files, root: str) -> None:
    _write(files, f"{root}/a", b"one")
    _write(files, f"{root}/a", b"two")
    reader = files.open_read(f"{root}/a")
    assert reader.pread(10, 0) == b"onetwo"
    assert reader.path == f"{root}/a"
    reader.sync()


def test_appends_by_two_holders_do_not_overwrite_each_other(files: Files, root: str) -> None:
    one, two = files.open_append(f"{root}/a"), files.open_append(f"{root}/a")
    one.append(b"1")
    two.append(b"2")
    one.append(b"3")
    assert two.pread(9, 0) == b"123"


def test_truncated_file_appends_where_it_was_truncated(files: Files, root: str) -> None:
    file = files.open_append(f"{root}/a")
    file.append(b"abcdef")
    file.truncate(2)
    assert (file.size(), file.pread(9, 0)) == (2, b"ab")
    file.append(b"x")
    assert file.pread(9, 0) == b"abx"
    file.truncate(0)
    assert file.size() == 0


def test_file_is_open_until_its_last_holder_closes_it(files: Files, root: str) -> None:
    file = files.open_append(f"{root}/a")
    file.append(b"abc")
    file.retain()
    files.unlink(f"{root}/a")
    file.close()
    assert file.pread(9, 0) == b"abc"
    file.close()
    with pytest.raises(AssertionError, match="is closed"):
        file.retain()
    with pytest.raises(AssertionError, match="is closed"):
        file.close()


def test_new_bytes_are_cached_and_sync_and_drop_cache_keep_them(files: Files, root: str) -> None:
    file = files.open_append(f"{root}/a")
    file.append(b"x" * 300_000)
    assert file.cached(0, 300_000)
    assert file.cached(299_999, 1)
    assert file.cached(0, 0)
    file.sync()
    file.drop_cache()
    assert file.pread(3, 0) == b"xxx"


def test_missing_file_is_an_error(files: Files, root: str) -> None:
    attempts: list[Callable[[], object]] = [
        lambda: files.open_read(f"{root}/none"),
        lambda: files.read_file(f"{root}/none"),
        lambda: files.unlink(f"{root}/none"),
        lambda: files.rename(f"{root}/none", f"{root}/b"),
        lambda: files.open_append(f"{root}/none/a"),
        lambda: files.listdir(f"{root}/none"),
        lambda: files.rmdir(f"{root}/none"),
        lambda: files.modified_ms(f"{root}/none"),
        lambda: files.sync_dir(f"{root}/none"),
    ]
    for attempt in attempts:
        with pytest.raises(FileNotFoundError):
            attempt()


# -- names ------------------------------------------------------------------------------------


def test_listdir_returns_sorted_names(files: Files, root: str) -> None:
    for name in ("b", "c", "a"):
        _write(files, f"{root}/{name}", b"")
    files.mkdir(f"{root}/d")
    assert files.listdir(root) == ["a", "b", "c", "d"]


def test_rename_replaces_existing_file(files: Files, root: str) -> None:
    _write(files, f"{root}/a", b"new")
    _write(files, f"{root}/b", b"old")
    old = files.open_read(f"{root}/b")
    files.rename(f"{root}/a", f"{root}/b")
    assert files.listdir(root) == ["b"]
    assert files.read_file(f"{root}/b") == b"new"
    assert old.pread(9, 0) == b"old"


def test_exchange_swaps_two_names(files: Files, root: str) -> None:
    _write(files, f"{root}/a", b"file")
    _write_below(files, f"{root}/b")
    files.exchange(f"{root}/a", f"{root}/b")
    assert files.read_file(f"{root}/a/inner") == b"inner"
    assert files.read_file(f"{root}/b") == b"file"
    with pytest.raises(FileNotFoundError):
        files.exchange(f"{root}/a", f"{root}/none")


def _write_below(files: Files, path: str) -> None:
    files.mkdir(path)
    _write(files, f"{path}/inner", b"inner")


def test_open_file_follows_a_rename(files: Files, root: str) -> None:
    file = files.open_append(f"{root}/a")
    files.rename(f"{root}/a", f"{root}/b")
    file.append(b"x")
    assert files.read_file(f"{root}/b") == b"x"


def test_directory_is_created_with_parents_and_renamed_with_content(
    files: Files, root: str
) -> None:
    files.mkdir(f"{root}/one/two")
    files.mkdir(f"{root}/one/two")
    _write(files, f"{root}/one/two/a", b"x")
    files.rename(f"{root}/one", f"{root}/uno")
    assert files.read_file(f"{root}/uno/two/a") == b"x"
    assert not files.exists(f"{root}/one")
    assert files.is_dir(f"{root}/uno/two")
    assert not files.is_dir(f"{root}/uno/two/a")
    assert files.exists(f"{root}/uno/two/a")
    assert not files.is_dir(f"{root}/none")


def test_only_an_empty_directory_is_removed(files: Files, root: str) -> None:
    files.mkdir(f"{root}/d")
    _write(files, f"{root}/d/a", b"")
    with pytest.raises(OSError, match="not empty"):
        files.rmdir(f"{root}/d")
    files.unlink(f"{root}/d/a")
    files.rmdir(f"{root}/d")
    assert files.listdir(root) == []


def test_directory_does_not_replace_nonempty_directory(files: Files, root: str) -> None:
    files.mkdir(f"{root}/a")
    files.mkdir(f"{root}/b/c")
    with pytest.raises(OSError, match="not empty"):
        files.rename(f"{root}/a", f"{root}/b")


def test_files_and_directories_are_not_confused(files: Files, root: str) -> None:
    files.mkdir(f"{root}/d")
    _write(files, f"{root}/a", b"")
    with pytest.raises(FileExistsError):
        files.mkdir(f"{root}/a")
    with pytest.raises(IsADirectoryError):
        files.open_append(f"{root}/d")
    with pytest.raises(IsADirectoryError):
        files.unlink(f"{root}/d")
    for attempt in (files.listdir, files.rmdir, files.sync_dir):
        with pytest.raises(NotADirectoryError):
            attempt(f"{root}/a")


def test_syncing_directory_or_file_system_keeps_content(files: Files, root: str) -> None:
    _write(files, f"{root}/a", b"x")
    files.sync_dir(root)
    files.supports_sync_fs(root)
    files.sync_fs(root)
    assert files.read_file(f"{root}/a") == b"x"


def test_directory_and_its_files_are_on_one_device(files: Files, root: str) -> None:
    files.mkdir(f"{root}/d")
    assert files.device(root) == files.device(f"{root}/d")


def test_space_returns_size_and_free_space(files: Files, root: str) -> None:
    total_bytes, usable_bytes = files.space(root)
    assert 0 < usable_bytes <= total_bytes


def test_free_space_excludes_blocks_reserved_for_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks are counted in the fundamental size, and some are reserved for root."""
    found = os.statvfs_result((1 << 20, 4096, 1000, 500, 400, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: found)
    assert OsFiles().space(str(tmp_path)) == (4096 * 1000, 4096 * 400)


def test_lock_is_exclusive_until_it_is_released(files: Files, root: str) -> None:
    unlock = files.lock(f"{root}/.lock")
    with pytest.raises(BlockingIOError):
        files.lock(f"{root}/.lock")
    unlock()
    files.lock(f"{root}/.lock")()


# -- only the operating system ----------------------------------------------------------------


def test_modification_time_is_in_milliseconds(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x")
    os.utime(path, ns=(0, 1_700_000_000_123_456_789))
    assert OsFiles().modified_ms(str(path)) == 1_700_000_000_123
    os.utime(tmp_path, ns=(0, 1_700_000_000_456_000_000))
    assert OsFiles().modified_ms(str(tmp_path)) == 1_700_000_000_456


def test_descriptor_works_with_sendfile_and_is_not_inherited(tmp_path: Path) -> None:
    file = OsFiles().open_append(str(tmp_path / "a"))
    file.append(b"abc")
    assert os.pread(file.fileno(), 3, 0) == b"abc"
    assert fcntl.fcntl(file.fileno(), fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    file.close()
    assert file.fileno() == -1


def test_short_writes_and_reads_are_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = OsFiles().open_append(str(tmp_path / "a"))
    write, pread = os.write, os.pread
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:3]))
    monkeypatch.setattr(os, "pread", lambda fd, length, at: pread(fd, min(length, 4), at))
    file.append(b"0123456789")
    assert file.pread(10, 0) == b"0123456789"
    assert file.pread(99, 2) == b"23456789"


def test_uncached_bytes_are_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = OsFiles().open_append(str(tmp_path / "a"))
    file.append(b"x" * 200_000)
    asked: list[int] = []

    def preadv(fd: int, buffers: list[bytearray], position: int, flags: int) -> int:
        assert flags == os.RWF_NOWAIT
        asked.append(position)
        if position > 100_000:
            raise BlockingIOError(errno.EAGAIN, "not cached")
        return 1

    monkeypatch.setattr(os, "preadv", preadv)
    assert file.cached(0, 100_000)
    assert asked == [0, 65536, 99_999]
    assert not file.cached(0, 200_000)


@pytest.mark.parametrize(("number", "answer"), [(errno.EOPNOTSUPP, True), (errno.EIO, None)])
def test_bytes_count_as_cached_on_file_system_without_nowait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, answer: bool | None
) -> None:
    file = OsFiles().open_append(str(tmp_path / "a"))
    file.append(b"x")

    def preadv(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "preadv", preadv)
    if answer is None:
        with pytest.raises(OSError, match="Input/output"):
            file.cached(0, 1)
    else:
        assert file.cached(0, 1) is answer


@pytest.mark.parametrize(
    ("release", "kind", "trusted"),
    [
        ("6.1.0-13-amd64", "ext4", True),
        ("5.8.0", "xfs", True),
        ("5.7.19", "ext4", False),
        ("4.19.0", "ext4", False),
        ("6.1.0", "btrfs", False),
        ("6.1.0", "", False),
        ("unknown", "ext4", False),
    ],
)
def test_syncfs_is_trusted_only_where_it_reports_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str, kind: str, trusted: bool
) -> None:
    names = os.uname()
    fake = os.uname_result((names.sysname, names.nodename, release, names.version, names.machine))
    monkeypatch.setattr(os, "uname", lambda: fake)
    monkeypatch.setattr(os_files, "_file_system_type", lambda device: kind)
    files = OsFiles()
    assert files.supports_sync_fs(str(tmp_path)) is trusted
    files.close()


def test_type_of_mounted_file_system_is_found() -> None:
    assert os_files._file_system_type(OsFiles().device("/proc")) == "proc"
    assert os_files._file_system_type(os.makedev(4095, 4095)) == ""


def test_sync_fails_for_every_holder_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel reports the error once per descriptor; a second caller must see it, too."""
    file = OsFiles().open_append(f"{tmp_path}/a")
    file.sync()

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
    with pytest.raises(OSError, match="an earlier sync failed") as caught:
        file.sync()
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, file.path)


def test_failed_syncfs_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = OsFiles()
    files.sync_fs(str(tmp_path))
    (fd,) = files._sync_fs_fd_by_device.values()
    os.close(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        files.sync_fs(str(tmp_path))
    files._sync_fs_fd_by_device.clear()


def test_sync_fs_apart_does_not_consume_errors_of_kept_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = OsFiles()
    files.sync_fs(str(tmp_path))
    (kept,) = files._sync_fs_fd_by_device.values()
    synced: list[int] = []
    monkeypatch.setattr(os_files, "_sync_fs", lambda fd, path: synced.append(fd))
    before = len(os.listdir("/proc/self/fd"))
    files.sync_fs_apart(str(tmp_path))
    assert kept not in synced
    assert len(synced) == 1
    assert len(os.listdir("/proc/self/fd")) == before
    files.close()


def test_descriptor_for_syncfs_is_opened_once_and_closed_with_files(tmp_path: Path) -> None:
    files = OsFiles()
    files.sync_fs(str(tmp_path))
    first = dict(files._sync_fs_fd_by_device)
    files.sync_fs(str(tmp_path))
    assert files._sync_fs_fd_by_device == first
    files.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(next(iter(first.values())))


# -- without descriptors ----------------------------------------------------------------------


@pytest.fixture
def take_all_descriptors() -> Iterator[Callable[[], None]]:
    """Open files until the process has reached its limit."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []

    def take_all() -> None:
        gc.collect()  # Or garbage of earlier tests releases descriptors in the middle of this one.
        highest = max(map(int, os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, before[1]))
        try:
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise

    yield take_all
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    for fd in taken:
        os.close(fd)


def test_directory_is_synced_when_no_descriptor_is_left(
    root: str, take_all_descriptors: Callable[[], None]
) -> None:
    files = OsFiles()
    take_all_descriptors()
    for _ in range(3):
        files.sync_dir(root)
    with pytest.raises(OSError, match="Too many open files"):
        files.open_read(root)
    files.close()


def test_directory_sync_retries_when_another_thread_takes_the_descriptor(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, refusals, pauses = OsFiles(), [errno.EMFILE, errno.EMFILE, errno.ENFILE], list[float]()
    real_open = os.open

    def busy_open(path: str, flags: int, mode: int = 0o777) -> int:
        if path == root and refusals:
            raise OSError(refusals.pop(), "none left", path)
        return real_open(path, flags, mode)

    monkeypatch.setattr(os, "open", busy_open)
    monkeypatch.setattr(os_files.time, "sleep", pauses.append)
    files.sync_dir(root)
    assert (refusals, len(pauses)) == ([], 2)


def test_directory_sync_fails_when_it_never_gets_a_descriptor(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = OsFiles()

    def full_open(path: str, flags: int, mode: int = 0o777) -> int:
        raise OSError(errno.EMFILE, "none left", path)

    monkeypatch.setattr(os, "open", full_open)
    monkeypatch.setattr(os_files.time, "sleep", lambda seconds: None)
    with pytest.raises(OSError, match="none left"):
        files.sync_dir(root)


def test_reserved_space_does_not_change_the_size(files: Files, root: str) -> None:
    file = files.open_append(f"{root}/a")
    file.append(b"one")
    assert file.reserve(1 << 16)
    file.append(b"two")
    assert (file.size(), file.pread(99, 0)) == (6, b"onetwo")
    file.truncate(3)
    assert files.read_file(f"{root}/a") == b"one"


def test_reserving_more_than_free_space_fails(root: str) -> None:
    assert not OsFiles().open_append(f"{root}/a").reserve(1 << 60)
