"""File systems for one test: small, losing power, or slow. They need root; otherwise NOT RUN.

Everything created here is removed after the test. A machine that does not permit an operation is
not a missing program: such a test is skipped even under ``CI=true``.

Power loss: ``FS_IOC_SHUTDOWN`` without a flush of the log, xfstests' "godown", stops an ext4
immediately. No more of the page cache reaches the device. When it is mounted again, the file system
replays its journal and contains the data that had been made durable, and any data that the kernel
had already written on its own. A slow device: the block layer's throttle (cgroup v1, blkio).
"""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct

import pytest

_EXT4_IOC_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = Struct("I").pack(2)
_THROTTLE = Path("/sys/fs/cgroup/blkio")
_MIB = 1 << 20


def _permitted(*command: str) -> None:
    """Run a command; skip the test if the machine does not permit it."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError as error:
        pytest.skip(f"NOT RUN: {error}")
    if done.returncode:
        pytest.skip(f"NOT RUN: {' '.join(command)}: {done.stderr.strip()}")


def _need_root() -> None:
    if os.geteuid():
        pytest.skip("NOT RUN: only root can create a file system")


@contextmanager
def small_disk(directory: Path, mib: int) -> Iterator[Path]:
    """Mount a tmpfs of `mib` MiB within the block."""
    _need_root()
    mounted = directory / "small"
    mounted.mkdir()
    _permitted("mount", "-t", "tmpfs", "-o", f"size={mib}m", "plog-test", str(mounted))
    try:
        yield mounted
    finally:
        _unmount(mounted)


def fill_up(directory: Path) -> Path:
    """Fill the disk with one file and return it; unlinking it frees the space."""
    ballast = directory / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (_MIB, 4096, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    return ballast


class Ext4:
    """An ext4 file system in a file, mounted at `path` through a loop device."""

    def __init__(self, directory: Path, mib: int) -> None:
        self.path = directory / "ext4"
        self.path.mkdir()
        self._image = directory / "ext4.img"
        with self._image.open("wb") as file:
            file.truncate(mib * _MIB)
        _permitted("mkfs.ext4", "-q", "-F", str(self._image))

    def mount(self) -> None:
        """Mount the file system, as after a boot."""
        _permitted("mount", "-o", "loop", str(self._image), str(self.path))

    def unmount(self) -> None:
        """Unmount the file system; no file on it may be open."""
        _unmount(self.path)

    def cut_power(self) -> None:
        """Stop the file system: nothing reaches the device any more, and every operation fails."""
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, _EXT4_IOC_SHUTDOWN, _NO_LOG_FLUSH)
        except OSError as error:
            pytest.skip(f"NOT RUN: FS_IOC_SHUTDOWN: {error}")
        finally:
            os.close(fd)

    @contextmanager
    def throttled(self, pid: int, bytes_per_second: int) -> Iterator[None]:
        """Limit the rate at which process `pid` writes to the device."""
        group = _THROTTLE / f"plog-test-{pid}"
        device = os.stat(self.path).st_dev
        rule = f"{os.major(device)}:{os.minor(device)}"
        try:
            group.mkdir()
        except OSError as error:
            pytest.skip(f"NOT RUN: cannot throttle a device (cgroup v1, blkio): {error}")
        limit = group / "blkio.throttle.write_bps_device"
        try:
            limit.write_text(f"{rule} {bytes_per_second}")
            (group / "cgroup.procs").write_text(str(pid))
            yield
        finally:
            limit.write_text(f"{rule} 0")
            if Path(f"/proc/{pid}").exists():
                (_THROTTLE / "cgroup.procs").write_text(str(pid))
            group.rmdir()


@contextmanager
def ext4(directory: Path, mib: int = 64) -> Iterator[Ext4]:
    """Yield a mounted ext4 file system of `mib` MiB."""
    _need_root()
    made = Ext4(directory, mib)
    made.mount()
    try:
        yield made
    finally:
        if os.path.ismount(made.path):
            made.unmount()


def _unmount(path: Path) -> None:
    done = subprocess.run(["umount", str(path)], capture_output=True, text=True)
    if (
        done.returncode
    ):  # A file is still open: detach the mount point, so that no other test finds it.
        subprocess.run(["umount", "--lazy", str(path)], check=True)
