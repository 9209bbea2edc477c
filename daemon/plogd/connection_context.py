"""The context of a client connection: listener, addresses, principal, software.

The transport creates a `ConnectionContext` for each connection, and ApiVersions adds the client's
software and client id to it. The context of a single request is in apis/request_context.py.
"""

from __future__ import annotations

from dataclasses import dataclass

ANONYMOUS = "User:ANONYMOUS"
"""Kafka's KafkaPrincipal.ANONYMOUS."""


@dataclass(slots=True, kw_only=True)
class ConnectionContext:
    """A client's connection to a listener. Addresses are (host, port)."""

    listener_name: str
    security_protocol: str
    client_address: tuple[str, int]
    local_address: tuple[str, int]
    """The broker's address to which the client has connected."""
    principal: str = ANONYMOUS
    # Kafka's value for clients that do not send a name or version (ClientInformation, KIP-511).
    client_software_name: str = "unknown"
    client_software_version: str = "unknown"
    client_id: str = ""
    """The client id from the last ApiVersions request, for log events; empty before the first
    request."""
    works: bool = False
    """Whether the client has sent a request that is not only for discovery."""
    # Not a result of the handlers, because several requests of a turn can be throttled.
    mute_ms: int = 0
    """Time for which no request may start; handlers set it, and the request queue resets it."""

    def __str__(self) -> str:
        host, port = self.client_address
        return f"{host}:{port}"
