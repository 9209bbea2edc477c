"""Settings files, and pipes and other inputs in place of a file."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from plogd.config import ConfigError, load_config
from plogd.settings_file import SIZE_MAX_BYTES, read_settings_file


def make_pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


def test_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("node.id=3\n")
    assert read_settings_file(file) == b"node.id=3\n"


def test_empty_file_and_null_device_have_no_settings(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.touch()
    assert read_settings_file(file) == b""
    assert read_settings_file(Path("/dev/null")) == b""


def test_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    """The writer of a process substitution may be slower than the broker."""
    pipe = make_pipe(tmp_path / "pipe")
    content = b"node.id=3\n" * 50_000
    writer = threading.Thread(target=pipe.write_bytes, args=[content])
    writer.start()
    assert read_settings_file(pipe) == content
    writer.join()


def test_pipe_of_this_process_is_read(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, b"node.id=3\n")
    os.close(write_end)
    assert read_settings_file(Path(f"/dev/fd/{read_end}")) == b"node.id=3\n"
    with pytest.raises(OSError, match="the pipe is empty"):
        read_settings_file(Path(f"/dev/fd/{read_end}"))
    os.close(read_end)


def test_pipe_without_a_writer_is_an_error(tmp_path: Path) -> None:
    pipe = make_pipe(tmp_path / "pipe")
    with pytest.raises(OSError, match=r"did not reach the end of the file within 0\.05 s"):
        read_settings_file(pipe, wait_max_s=0.05)


def test_pipe_whose_writer_is_silent_is_an_error(tmp_path: Path) -> None:
    pipe = make_pipe(tmp_path / "pipe")
    keep_open = os.open(pipe, os.O_RDWR)
    os.write(keep_open, b"node.id=3\n")
    with pytest.raises(OSError, match="did not reach the end of the file"):
        read_settings_file(pipe, wait_max_s=0.05)
    os.close(keep_open)


@pytest.mark.parametrize("is_device", [False, True])
def test_too_large_file_is_an_error(tmp_path: Path, is_device: bool) -> None:
    file = tmp_path / "huge"
    with file.open("wb") as huge:
        huge.truncate(100 * SIZE_MAX_BYTES)
    with pytest.raises(OSError, match="bytes: not a settings file"):
        read_settings_file(Path("/dev/zero") if is_device else file)


def test_error_names_the_file(tmp_path: Path) -> None:
    """This holds for files in conf.d, too."""
    file = tmp_path / "server.properties"
    file.write_text("node.id=3\n")
    (tmp_path / "conf.d").mkdir()
    pipe = make_pipe(tmp_path / "conf.d" / "pipe.properties")
    with pytest.raises(ConfigError) as caught:
        load_config([file], read=lambda path: read_settings_file(path, wait_max_s=0.01))
    [problem] = caught.value.problems
    assert problem.startswith(f"{pipe}: did not reach the end of the file within ")
