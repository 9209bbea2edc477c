"""Files are closed with their broker, even if they still have holders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plogd.testing.controlled_machine import HeldFiles


@pytest.fixture
def files() -> HeldFiles:
    return HeldFiles()


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def test_file_is_closed_by_its_last_holder(files: HeldFiles, tmp_path: Path) -> None:
    file = files.open_append(str(tmp_path / "a"))
    descriptor = int(file.fileno())
    file.retain()
    file.close()
    assert _is_open(descriptor)
    file.close()
    assert not _is_open(descriptor)
    files.close()


def test_close_closes_files_that_are_still_held(files: HeldFiles, tmp_path: Path) -> None:
    file = files.open_append(str(tmp_path / "a"))
    file.retain()
    descriptor = int(file.fileno())
    files.close()
    assert not _is_open(descriptor)
    another = os.open(tmp_path / "a", os.O_RDONLY)
    assert another == descriptor or _is_open(another)
    file.close()  # A holder may close later; this must not close another file's descriptor.
    file.close()
    assert _is_open(another)
    os.close(another)


def test_lock_is_released_once(files: HeldFiles, tmp_path: Path) -> None:
    path, other = str(tmp_path / ".lock"), HeldFiles()
    let_go = files.lock(path)
    with pytest.raises(BlockingIOError):
        other.lock(path)
    files.close()
    let_go()
    other.lock(path)
    other.close()
