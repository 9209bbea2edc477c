"""What surrounds a request: the connection it came by, and its own header.

A `ConnectionContext` lives as long as its connection and is made by the transport; ApiVersions
fills in which software the client is. A `RequestContext` is made for each request.
"""

from __future__ import annotations

from dataclasses import dataclass

from plog.wire.header import RequestHeader

ANONYMOUS = "User:ANONYMOUS"


@dataclass(slots=True, kw_only=True)
class ConnectionContext:
    """Who is connected, by which listener. Addresses are (host, port)."""

    listener_name: str
    security_protocol: str
    client_address: tuple[str, int]
    local_address: tuple[str, int]
    """Ours, as the client reaches it."""
    principal: str = ANONYMOUS
    client_software_name: str = "unknown"
    client_software_version: str = "unknown"
    works: bool = False
    """Whether the client has asked for more than who is there."""
    mute_ms: int = 0
    """For how long to take no request after this one; set by handlers, taken by the queue."""

    def __str__(self) -> str:
        host, port = self.client_address
        return f"{host}:{port}"


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
