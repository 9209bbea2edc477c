"""Classify errors in file operations as temporary refusals or disk failures.

A refused operation has not changed anything and may succeed later. Any other `OSError` takes the
log directory offline (docs/architecture.md, rule R15). An exception of another type is a bug. If a
bug leaves the state of a file unknown, `storage_error` converts the exception into an error that
also takes the directory offline. Used by the whole log package, on any thread.
"""

from __future__ import annotations

import errno

_OUT_OF_FILES = frozenset({errno.EMFILE, errno.ENFILE})
"""No file descriptors are left in this process (EMFILE) or in the whole system (ENFILE)."""
_REMEDIES = {
    errno.ENOSPC: "free space on the disk",
    errno.EDQUOT: "free space or raise the quota",
    errno.EMFILE: "raise LimitNOFILE or ulimit -n",
    errno.ENFILE: "raise the sysctl fs.file-max",
}
"""Remedies for errors that may be temporary: no space, quota or descriptors left."""


class HalfWritten(OSError):
    """A failed write has left bytes that could not be removed, so nothing may be appended."""

    # Raised without an errno, so that `is_refusal` never mistakes this error for a full disk.


def storage_error(what: str, error: Exception) -> OSError:
    """Return `error` if it is an `OSError`, otherwise an `OSError` with `error` as its cause.

    >>> storage_error("sync", MemoryError("no memory"))
    OSError("sync failed: MemoryError('no memory')")
    """
    if isinstance(error, OSError):
        return error
    # Without an errno, `is_refusal` treats the bug as a disk failure.
    failure = OSError(f"{what} failed: {error!r}")
    failure.__cause__ = error
    return failure


def is_refusal(error: OSError) -> bool:
    """Return whether the operation lacked space or descriptors, so that the disk has not failed.

    >>> is_refusal(OSError(errno.ENOSPC, "No space left on device"))
    True
    >>> is_refusal(OSError(errno.EIO, "Input/output error"))
    False
    """
    # EROFS is not among them: Linux makes a file system read-only after a disk error.
    return error.errno in _REMEDIES


def describe(error: OSError) -> str:
    """Return the text of `error`, with a remedy if one is known.

    >>> describe(OSError(errno.EMFILE, "Too many open files", "/data/t-0"))
    "[Errno 24] Too many open files: '/data/t-0'; raise LimitNOFILE or ulimit -n"
    """
    remedy = _REMEDIES.get(error.errno or 0)
    return str(error) if remedy is None else f"{error}; {remedy}"


def is_out_of_files(error: OSError) -> bool:
    """Return whether a file could not be opened because too many files are open.

    >>> is_out_of_files(OSError(errno.EMFILE, "Too many open files"))
    True
    """
    return error.errno in _OUT_OF_FILES
