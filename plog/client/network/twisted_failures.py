"""Short reasons for failed or lost Twisted connections, in the style of system messages."""

from __future__ import annotations

import os

from twisted.internet import error


def reason_text(reason: BaseException | None) -> str:
    """Return the reason without a final period.

    >>> reason_text(error.ConnectionRefusedError(111, "Connection refused"))
    'Connection refused'
    >>> reason_text(error.ConnectionDone())
    'the broker closed it'
    """
    if isinstance(reason, error.ConnectionDone | error.ConnectionLost):
        return "the broker closed it"
    # Twisted's own text is longer: it contains the error number and a second description.
    number = getattr(reason, "osError", None)
    if isinstance(number, int):
        return os.strerror(number)
    if isinstance(reason, error.TimeoutError):
        return "timed out"
    return str(reason).rstrip(".") or type(reason).__name__
