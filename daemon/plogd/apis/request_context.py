"""The context of a request: its header, and the connection on which the request arrived."""

from __future__ import annotations

from plog.wire.header import RequestHeader
from plogd.apis.large_requests import LargeFetch
from plogd.connection_context import ConnectionContext


class RequestContext:
    """A request's version, client and connection; `size_bytes` is the frame's size."""

    __slots__ = ("connection", "header", "large_fetch", "runs_alone", "size_bytes", "version")

    def __init__(
        self, header: RequestHeader, connection: ConnectionContext, size_bytes: int = 0
    ) -> None:
        self.header = header
        self.size_bytes = size_bytes
        self.version = header.api_version
        self.connection = connection
        self.runs_alone = False
        """Whether the connection must not start another request before the response; set by
        handlers."""
        self.large_fetch: LargeFetch | None = None
        """The elements of a Fetch that was decoded in slices."""

    @property
    def client_id(self) -> str | None:
        """The client id in the request's header."""
        return self.header.client_id
