"""Read a settings file, which may be a pipe, may be slow, or may be too large.

A pipe is legitimate: ``plog-broker --config <(generate-settings)``. A pipe whose writer stays open
never ends, so any file except a regular file must deliver everything within ten seconds.

tap.py calls this at startup, and on a thread at each reload. It blocks its caller.
"""

from __future__ import annotations

import os
import select
import stat
import time
from pathlib import Path
from typing import Final

WAIT_MAX_S: Final = 10.0
SIZE_MAX_BYTES: Final = 1 << 20
"""Maximum file size. For comparison, etc/server.properties, with all settings, takes 24 KB."""


def read_settings_file(file: Path, wait_max_s: float = WAIT_MAX_S) -> bytes:
    """Return the content of `file`. Raises OSError with the cause and the remedy in `strerror`."""
    # Without O_NONBLOCK, opening a pipe would wait for a writer.
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        data = _read(descriptor, None if stat.S_ISREG(mode) else wait_max_s)
    finally:
        os.close(descriptor)
    # An empty file means the default for every setting, but an empty pipe is an error: on a reload,
    # for example, the pipe of a process substitution is empty, because it has already been read.
    if not data and stat.S_ISFIFO(mode):
        raise OSError(0, "the pipe is empty: a pipe can be read only once; use a regular file")
    return data


def _read(descriptor: int, wait_max_s: float | None) -> bytes:
    pieces: list[bytes] = []
    nbytes = 0
    until_s = time.monotonic() + (wait_max_s or 0)
    while True:
        if wait_max_s is not None:
            left_s = until_s - time.monotonic()
            if left_s <= 0 or not _is_readable(descriptor, left_s):
                raise OSError(
                    0,
                    f"did not reach the end of the file within {wait_max_s:g} s; use a regular"
                    " file",
                )
        try:
            # Despite poll(2), a read may have to wait, so the descriptor is non-blocking.
            piece = os.read(descriptor, 64 * 1024)
        except BlockingIOError:
            continue
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        nbytes += len(piece)
        # Checked while reading, because a pipe or a device may never end.
        if nbytes > SIZE_MAX_BYTES:
            raise OSError(0, f"more than {SIZE_MAX_BYTES} bytes: not a settings file")


def _is_readable(descriptor: int, wait_s: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(wait_s * 1000))
