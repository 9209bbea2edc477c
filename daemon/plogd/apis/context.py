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

    def __str__(self) -> str:
        host, port = self.client_address
        return f"{host}:{port}"


class RequestContext:
    """One request: its version, and whom it is from."""

    __slots__ = ("connection", "header", "version")

    def __init__(self, header: RequestHeader, connection: ConnectionContext) -> None:
        self.header = header
        self.version = header.api_version
        self.connection = connection

    @property
    def client_id(self) -> str | None:
        """The name the client gives itself."""
        return self.header.client_id
