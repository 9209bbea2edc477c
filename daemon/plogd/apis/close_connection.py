"""The exception that a request handler raises to close the connection."""

from __future__ import annotations

from plog.errors import PlogError


class CloseConnection(PlogError):
    """The client violated the protocol, or no response can carry the error.

    net/request_queue.py closes the client's connection and logs the message.
    """
