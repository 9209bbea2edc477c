"""Read records that are not in the page cache on a thread other than the reactor's.

A slow disk must delay only the connection that requested old records. Before the output queues send
a range of a log file, they check whether it is in the page cache. If it is not, a job reads it:
`warm` for sendfile, which then finds the range in the page cache, and `read` for a copy.

Called on the reactor's thread by output_queue.py and copying_output.py. The range was looked up
earlier, in log/segment/uncached_lookup.py. Invariant: the file stays open until the job has
finished, even if the connection closes in the meantime.
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
        # In pieces, because the range would otherwise use memory for a second copy of all its
        # bytes.
        for start in range(position, position + nbytes, _PIECE_BYTES):
            file.pread(min(_PIECE_BYTES, position + nbytes - start), start)

    return _submit(jobs, file, read_through)


def read(jobs: Jobs, file: File, position: int, nbytes: int) -> Later[bytes]:
    """Read a range of a file. Fails with OSError if the disk cannot read it."""
    return _submit(jobs, file, lambda: file.pread(nbytes, position))


def _submit(jobs: Jobs, file: File, function: Callable[[], T]) -> Later[T]:
    # The connection can close its files while the job reads.
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
    # Each device has one lane, because competing readers do not make a disk faster.
    fd = file.fileno()
    # The simulator's files do not have a descriptor.
    return f"read-{os.fstat(fd).st_dev}" if fd >= 0 else "read"
