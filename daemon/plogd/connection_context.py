"""What the broker knows of a client's connection.

The transport makes a `ConnectionContext` for each connection; ApiVersions notes the client's
software in it. A request's own context is in apis/request_context.py.
"""

from __future__ import annotations

from dataclasses import dataclass

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
