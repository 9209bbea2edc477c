"""Base classes of the errors in errors.py."""

from __future__ import annotations

from typing import ClassVar, Self

from plog.error_codes import RETRIABLE, ErrorCode

MESSAGE_MAX_CHARACTERS = 8_000
"""Maximum length of a message: a string in the protocol holds at most 32,767 bytes, and a character
takes up to four."""


class PlogError(Exception):
    """The base class of all errors that plog raises deliberately."""


def reason_of(error: OSError) -> str:
    """Return the reason for a system error as text.

    >>> reason_of(FileNotFoundError(2, "No such file or directory", "orders.txt"))
    'not found'
    >>> reason_of(PermissionError(13, "Permission denied", "orders.txt"))
    'Permission denied'
    """
    if isinstance(error, FileNotFoundError):
        return "not found"
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
        """The message for users: the argument of the error, or the description of its class.

        A message that repeats a client's input may be of any length, so it is truncated.
        """
        text = str(self) or (type(self).__doc__ or "").strip()
        if len(text) > MESSAGE_MAX_CHARACTERS:
            return f"{text[: MESSAGE_MAX_CHARACTERS - 3]}..."
        return text

    def bare(self) -> Self:
        """Return this error without its traceback and causes.

        The frames of the traceback refer to the request and to this error. Such a cycle would keep
        a megabyte of records in memory until the garbage collector runs.
        """
        self.__cause__ = self.__context__ = self.__traceback__ = None
        return self
