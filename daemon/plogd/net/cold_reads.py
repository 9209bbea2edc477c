"""Reading records that are not in the page cache, away from the reactor.

A disk that takes its time must hold up the one connection that asked for old records, and nobody
else. So whoever is about to send a range of a log file asks first whether it is in memory, and has
a job read it if not: `warm` for sendfile, which takes it from the page cache then, `read` for a
copy. One lane a device, as a disk gains nothing from readers that compete.

Called on the reactor's thread by output_queue.py and copying_output.py. Invariant: the file stays
open until the job is done with it, whatever becomes of the connection meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from plogd.ports import File, Jobs, Later

T = TypeVar("T")

_PIECE_BYTES = 128 * 1024


def warm(jobs: Jobs, file: File, position: int, nbytes: int) -> Later[None]:
    """Bring a range into the page cache. Fails with OSError if the disk cannot read it."""

    def read_through() -> None:
        for start in range(position, position + nbytes, _PIECE_BYTES):
            file.pread(min(_PIECE_BYTES, position + nbytes - start), start)

    return _submit(jobs, file, read_through)


def read(jobs: Jobs, file: File, position: int, nbytes: int) -> Later[bytes]:
    """A range of a file. Fails with OSError if the disk cannot read it."""
    return _submit(jobs, file, lambda: file.pread(nbytes, position))


def _submit(jobs: Jobs, file: File, function: Callable[[], T]) -> Later[T]:
    file = file.retain()
    outcome: Later[T] = Later()

    def succeed(value: T) -> None:
        file.close()
        outcome.succeed(value)

    def fail(error: Exception) -> None:
        file.close()
        outcome.fail(error)

    jobs.submit(_lane(file), function).then(succeed, fail)
    return outcome


def _lane(file: File) -> str:
    fd = file.fileno()
    return f"read-{os.fstat(fd).st_dev}" if fd >= 0 else "read"
