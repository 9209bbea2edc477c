"""The one way a request handler ends a connection: an exception with the reason."""

from __future__ import annotations

from plog.errors import PlogError


class CloseConnection(PlogError):
    """The client broke the protocol, or cannot be told otherwise; its text is the log line."""
