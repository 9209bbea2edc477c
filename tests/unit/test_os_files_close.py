"""Closing a real file while other threads read it."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from pathlib import Path

import pytest

from plogd.os_files import OsFiles


def test_read_in_progress_never_sees_another_file(tmp_path: Path) -> None:
    """The descriptor of a closed file is not reused while a call still uses it."""
    (tmp_path / "a").write_bytes(b"a" * 4096)
    (tmp_path / "b").write_bytes(b"b" * 4096)
    files = OsFiles()
    current = [files.open_read(f"{tmp_path}/a")]
    wrong: list[bytes] = []
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set():
            with contextlib.suppress(OSError):  # The file is closed, and no other file is read.
                data = current[0].pread(4096, 0)
                if data.strip(b"a"):
                    wrong.append(data)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for _ in range(2000):
        before = current[0]
        before.close()
        other = files.open_read(f"{tmp_path}/b")  # Reuses the number if it is free.
        current[0] = files.open_read(f"{tmp_path}/a")
        other.close()
    ended.set()
    for reader in readers:
        reader.join()
    assert wrong == []


def test_closed_file_releases_its_descriptor(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    file = OsFiles().open_append(f"{tmp_path}/a")
    file.retain()
    file.close()
    assert file.is_open
    file.close()
    assert not file.is_open
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pread(1, 0)
    del file
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before + 1  # OsFiles keeps a spare descriptor.
