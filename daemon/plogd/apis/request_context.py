"""What a handler knows of its request: the header, and the connection that it arrived on."""

from __future__ import annotations

from plog.wire.header import RequestHeader
from plogd.connection_context import ConnectionContext


class RequestContext:
    """One request: its version, and whom it is from; `size_bytes` is that of its frame."""

    __slots__ = ("connection", "header", "runs_alone", "size_bytes", "version")

    def __init__(
        self, header: RequestHeader, connection: ConnectionContext, size_bytes: int = 0
    ) -> None:
        self.header = header
        self.size_bytes = size_bytes
        self.version = header.api_version
        self.connection = connection
        self.runs_alone = False
        """Whether not even a Produce may start before this one is answered; set by handlers."""

    @property
    def client_id(self) -> str | None:
        """The name the client gives itself."""
        return self.header.client_id
