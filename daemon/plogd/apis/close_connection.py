"""The exception with which a request handler closes the connection."""

from __future__ import annotations

from plog.errors import PlogError


class CloseConnection(PlogError):
    """Closes the client's connection: it broke the protocol, or no response can carry the error.

    The text is logged.
    """
