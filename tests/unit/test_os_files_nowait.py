"""Reads of real files that must not wait for the disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from plogd.os_files import OsFiles


def test_nowait_read_returns_all_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = OsFiles().open_append(str(tmp_path / "a"))
    file.append(b"0123456789")
    read = file.pread_nowait(4, 3)
    assert read is None or bytes(read) == b"3456"
    assert file.pread_nowait(4, 8) is None, "the file has fewer bytes"

    def cannot_now(*_: object) -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "preadv", cannot_now)
    assert file.pread_nowait(4, 3) is None

    def cannot_tell(*_: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "not here")

    monkeypatch.setattr(os, "preadv", cannot_tell)
    assert file.pread_nowait(4, 3) == b"3456"

    def cannot_read(*_: object) -> int:
        raise OSError(errno.EIO, "read failed")

    monkeypatch.setattr(os, "preadv", cannot_read)
    with pytest.raises(OSError, match="read failed"):
        file.pread_nowait(4, 3)
