"""Which errors of a file operation mean that something is broken, and which only that it must wait.

A refused operation did nothing and may succeed later; any other `OSError` costs the log directory
(docs/architecture.md, rule R15). Used wherever the log meets one, on any thread.
"""

from __future__ import annotations

import errno

_OUT_OF_FILES = frozenset({errno.EMFILE, errno.ENFILE})
"""No descriptor left in this process, in the system."""
_REFUSALS = _OUT_OF_FILES | {errno.ENOSPC, errno.EDQUOT}
"""Or no space, no quota."""


def is_refusal(error: OSError) -> bool:
    """Whether there was merely no room for the operation: nothing is broken.

    >>> is_refusal(OSError(errno.ENOSPC, "No space left on device"))
    True
    >>> is_refusal(OSError(errno.EIO, "Input/output error"))
    False
    """
    return error.errno in _REFUSALS


def is_out_of_files(error: OSError) -> bool:
    """Whether a file could not be opened because too many are open.

    >>> is_out_of_files(OSError(errno.EMFILE, "Too many open files"))
    True
    """
    return error.errno in _OUT_OF_FILES
