"""What all errors of plog have in common; errors.py has them all."""

from __future__ import annotations

from typing import ClassVar, Self

from plog.error_codes import RETRIABLE, ErrorCode

MESSAGE_MAX_CHARACTERS = 8_000
"""Longer texts cannot be told: a string of the protocol has 32,767 bytes, a character up to 4."""


class PlogError(Exception):
    """The base of all errors this project raises on purpose."""


def reason_of(error: OSError) -> str:
    """Why the system refused something, in words.

    >>> reason_of(FileNotFoundError(2, "No such file or directory", "orders.txt"))
    'not found'
    >>> reason_of(PermissionError(13, "Permission denied", "orders.txt"))
    'Permission denied'
    """
    if isinstance(error, FileNotFoundError):
        return "not found"
    return error.strerror or type(error).__name__


class KafkaError(PlogError):
    """An error with a code that a client sees. The message says what, where and what to do."""

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.code in RETRIABLE

    @property
    def message(self) -> str:
        """The text for people: what was raised with it, else what the error means.

        A text that repeats what a client has sent may be of any length: its end is left out.
        """
        text = str(self) or (type(self).__doc__ or "").strip()
        if len(text) > MESSAGE_MAX_CHARACTERS:
            return f"{text[: MESSAGE_MAX_CHARACTERS - 3]}..."
        return text

    def bare(self) -> Self:
        """This error, without the frames it came through.

        They hold the request and all that was made for it, this error included: such a cycle keeps
        a megabyte of records until the collector comes.
        """
        self.__cause__ = self.__context__ = self.__traceback__ = None
        return self
