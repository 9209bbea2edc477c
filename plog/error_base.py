"""Base classes of the errors in errors.py."""

from __future__ import annotations

from typing import ClassVar, Self

from plog.error_codes import RETRIABLE, ErrorCode

# A protocol string has at most 32,767 bytes, and a character takes up to four. A response with a
# longer message could not be encoded, which would also fail the request for its other resources.
MESSAGE_MAX_CHARACTERS = 8_000
"""Maximum length of an error message."""


class PlogError(Exception):
    """The base class of all errors that plog raises deliberately."""


def reason_of(error: OSError) -> str:
    """Return the reason for a system error, without its number and file name.

    >>> reason_of(FileNotFoundError(2, "No such file or directory", "orders.txt"))
    'not found'
    >>> reason_of(PermissionError(13, "Permission denied", "orders.txt"))
    'Permission denied'
    """
    if isinstance(error, FileNotFoundError):
        return "not found"
    # An error that was created from text instead of an errno has no strerror.
    return error.strerror or type(error).__name__


class KafkaError(PlogError):
    """An error with a code that clients receive. The message states the problem and the remedy."""

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.code in RETRIABLE

    @property
    def message(self) -> str:
        """The message for users: the error's argument or, without one, its class docstring."""
        text = str(self) or (type(self).__doc__ or "").strip()
        # A message that repeats a client's input can have any length.
        if len(text) > MESSAGE_MAX_CHARACTERS:
            return f"{text[: MESSAGE_MAX_CHARACTERS - 3]}..."
        return text

    def bare(self) -> Self:
        """Remove the traceback and causes of this error, and return it."""
        # The frames of the traceback refer to the request and to this error. This reference cycle
        # would keep a megabyte of records in memory until the garbage collector runs.
        self.__cause__ = self.__context__ = self.__traceback__ = None
        return self
