"""A connection that is ready for requests: authenticated, with negotiated versions.

First, the network connects over TCP and, if configured, TLS. Then this module sends ApiVersions
and, if configured, authenticates with SASL. Source: KIP-35, KIP-511, KIP-152, KIP-368.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeVar

from plog.client.errors import ConnectionFailed
from plog.client.network.api_versions import common_version, ranges_of
from plog.client.network.deadline import Deadline
from plog.client.network.ports import Channel, Network
from plog.client.settings import ClientSettings
from plog.errors import ErrorCode, RequestTimedOut, UnsupportedVersion, error_from_code
from plog.version import VERSION
from plog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from plog.wire.schema import ApiMessage, WireError

if TYPE_CHECKING:
    from plog.client.network.tls_context import Security

R = TypeVar("R", bound=ApiMessage)

SOFTWARE_NAME = "plog"
# From version 3 on, ApiVersions contains the name of the client software (KIP-511).
_FIRST_WITH_NAME = 3


class Connection:
    """An open, authenticated connection; `node_id` is -1 until the broker's id is known."""

    def __init__(
        self,
        channel: Channel,
        versions: ApiVersionsResponse,
        *,
        node_id: int,
        request_timeout_s: float,
    ) -> None:
        self.node_id = node_id
        self.api_versions = versions
        self.throttled_until_s = 0.0
        """The end of the throttle time, before which the broker expects no requests (KIP-219)."""
        self.renew_at_s: float | None = None
        """When to authenticate again (KIP-368), on the network's clock; None for never."""
        self._channel = channel
        self._request_timeout_s = request_timeout_s
        self._ranges = ranges_of(versions)
        self._version_by_key: dict[int, int] = {}

    @property
    def address(self) -> str:
        """The host and port, for messages."""
        return self._channel.address

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._channel.is_open

    @property
    def in_flight(self) -> int:
        """The number of requests without a response."""
        return self._channel.in_flight

    def close(self) -> None:
        """Close the connection. Repeated calls have no effect."""
        self._channel.close()

    def version_of(self, request: type[ApiMessage] | ApiMessage, *, by_name: bool = True) -> int:
        """Return the highest version that both sides support, as `common_version` does.

        Raises UnsupportedVersion.
        """
        # Every request needs its version, so cache it. API keys are not negative, so their
        # complements are free for the other kind.
        key = request.api_key if by_name else ~request.api_key
        version = self._version_by_key.get(key)
        if version is None:
            version = common_version(request, self._ranges, self.address, by_name=by_name)
            self._version_by_key[key] = version
        return version

    def speaks(self, request: type[ApiMessage]) -> bool:
        """Return whether both sides support a version of this request."""
        try:
            self.version_of(request)
        except UnsupportedVersion:
            return False
        return True

    def ask(
        self,
        request: ApiMessage,
        response: type[R],
        *,
        version: int | None = None,
        timeout_s: float | None = None,
        deadline: Deadline | None = None,
    ) -> Awaitable[R]:
        """Send `request` now and return its response. See `Channel.ask` for order and errors.

        The caller waits at most until `deadline`. The connection fails only if the broker does not
        respond within `timeout_s` (default ``request.timeout.ms``).
        """
        if version is None:
            version = self.version_of(request)
        if timeout_s is None:
            timeout_s = self._request_timeout_s
        # If the request times out before the deadline, a second timer is not needed.
        if deadline is None or (left_s := deadline.left_s) >= timeout_s:
            return self._channel.ask(request, response, version, timeout_s=timeout_s)
        # Without time left, do not send the request: its outcome would be unknown.
        if left_s <= 0:
            raise RequestTimedOut(
                f"cannot send a request to {self.address}: the call timed out after"
                f" {deadline.timeout_s:g} s"
            )
        # One caller's short deadline must not close the connection, which would fail other callers'
        # requests.
        return self._channel.ask(request, response, version, timeout_s=timeout_s, wait_s=left_s)

    def send(
        self,
        request: ApiMessage,
        *,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> Awaitable[None]:
        """Send a request without a response, and wait until it is written; see `Channel.send`."""
        return self._channel.send(
            request,
            self.version_of(request) if version is None else version,
            timeout_s=self._request_timeout_s if timeout_s is None else timeout_s,
        )


async def open_connection(
    network: Network,
    host: str,
    port: int,
    *,
    settings: ClientSettings,
    security: Security | None,
    node_id: int,
    timeout_s: float,
    deadline: Deadline | None = None,
) -> Connection:
    """Open a connection that is ready for requests; TCP and TLS may take `timeout_s`.

    `deadline` limits the whole operation. Raises ConnectionFailed, AuthenticationFailed, and
    UnsupportedVersion if the peer does not support the required versions.
    """
    request_timeout_s = settings.request_timeout_ms / 1000

    def bounded_s(limit_s: float) -> float:
        return limit_s if deadline is None else min(limit_s, deadline.left_s)

    channel = await network.connect(host, port, security, timeout_s=bounded_s(timeout_s))
    try:
        try:
            versions = await _ask_versions(channel, _FIRST_WITH_NAME, bounded_s(request_timeout_s))
        except WireError:
            # An old broker responds in version 0. The channel may have closed because it could not
            # decode that response as version 3, so connect again.
            channel.close()
            channel = await network.connect(host, port, security, timeout_s=bounded_s(timeout_s))
            versions = await _ask_versions(channel, 0, bounded_s(request_timeout_s))
        except ConnectionFailed as error:
            # With TLS, the handshake has succeeded, so the hint about TLS does not apply.
            if security is not None:
                raise
            raise ConnectionFailed(
                f"{error} (before any response; if this persists and the port expects TLS, set"
                " security.protocol)"
            ) from error
        connection = Connection(
            channel, versions, node_id=node_id, request_timeout_s=request_timeout_s
        )
        if settings.uses_sasl:
            await log_in(connection, settings, network, host=host)
    except GeneratorExit:
        # During garbage collection, do not touch other objects; see task_completion.py.
        raise
    except BaseException:
        channel.close()
        raise
    return connection


async def log_in(
    connection: Connection, settings: ClientSettings, network: Network, *, host: str
) -> None:
    """Authenticate on a new connection, or again on an open connection without requests in flight.

    Raises AuthenticationFailed, ConnectionFailed and RequestTimedOut.
    """
    # Most clients do not use SASL, so import it only here.
    from plog.client.network.sasl_authenticator import authenticate

    session = await authenticate(connection, settings, network, host=host)
    connection.renew_at_s = session.renew_at_s


def api_versions_request() -> ApiVersionsRequest:
    """Return an ApiVersions request with this client's name and version (KIP-511)."""
    return ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=VERSION)


async def _ask_versions(channel: Channel, version: int, timeout_s: float) -> ApiVersionsResponse:
    request = api_versions_request()
    versions = await channel.ask(request, ApiVersionsResponse, version, timeout_s=timeout_s)
    # KIP-511: if the broker does not support this version, it responds in version 0.
    if versions.error_code == ErrorCode.UNSUPPORTED_VERSION and version:
        raise WireError("the broker responded with version 0")
    if versions.error_code:
        raise error_from_code(versions.error_code, f"{channel.address} rejected ApiVersions")
    return versions
