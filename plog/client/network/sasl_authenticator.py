"""Authenticate on a connection: SaslHandshake, then SaslAuthenticate until the exchange ends.

A new connection is authenticated before any other request. If the broker limits the lifetime of
sessions, the client authenticates again on the same connection before the session expires. During
authentication, the broker accepts only these two requests, so no other request may be sent.

Source: Kafka 4.3 SaslClientAuthenticator; KIP-152, KIP-368.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from plog.client.errors import AuthenticationFailed
from plog.client.network.sasl import Mechanism, mechanism_of
from plog.client.settings import ClientSettings
from plog.errors import ErrorCode, UnsupportedVersion, error_from_code
from plog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from plog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from plog.wire.schema import ApiMessage

if TYPE_CHECKING:
    from plog.client.network.ports import Network

R = TypeVar("R", bound=ApiMessage)

# Before version 1, SASL bytes follow the handshake without a Kafka header (KIP-152).
_FIRST_WITH_AUTHENTICATE = 1
_MAX_STEPS = 10
"""The maximum number of steps; SCRAM, the longest mechanism, needs two."""
_WITHOUT_LOG_IN = {"SASL_SSL": "SSL", "SASL_PLAINTEXT": "PLAINTEXT"}


class SaslConnection(Protocol):
    """The part of a `Connection` that authentication needs."""

    @property
    def address(self) -> str:
        """The host and port, for error messages."""
        ...

    def version_of(self, request: type[ApiMessage]) -> int:
        """Return the highest version that both sides support. Raises UnsupportedVersion."""
        ...

    def ask(self, request: ApiMessage, response: type[R]) -> Awaitable[R]:
        """Send a request and return its response."""
        ...


@dataclass(frozen=True, slots=True)
class Session:
    """An authenticated session, with the time on the network's clock at which to renew it.

    The time is None if the session does not expire.
    """

    renew_at_s: float | None = None


async def authenticate(
    connection: SaslConnection, settings: ClientSettings, network: Network, *, host: str
) -> Session:
    """Authenticate as configured in `settings`; `host` is the broker's name for error messages.

    Raises:
        AuthenticationFailed: the broker rejected the client, or did not prove its own identity.
        ConnectionFailed, RequestTimedOut: a request failed.
    """
    token = await _token_of(settings, network) if settings.sasl_mechanism == "OAUTHBEARER" else ""
    mechanism = mechanism_of(settings, token)
    address = connection.address
    await _choose_mechanism(connection, settings, address)
    # Take the time before the exchange: the session must not appear to last longer than it does.
    began_s = network.now_s()
    try:
        lifetime_ms = await _converse(connection, mechanism)
    except AuthenticationFailed as error:
        raise AuthenticationFailed(
            f"cannot authenticate to {address} with {settings.sasl_mechanism}: {error}"
            # Name the host only if the address does not contain it.
            if host in address
            else f"cannot authenticate to {host} ({address}) with {settings.sasl_mechanism}:"
            f" {error}"
        ) from error
    # Only brokers with connections.max.reauth.ms limit the lifetime of sessions (KIP-368).
    if lifetime_ms <= 0:
        return Session()
    # As in Kafka, renew well before the end, and at a random time, so that not all clients renew
    # their sessions at the same time.
    share = 0.85 + 0.1 * network.random()
    return Session(renew_at_s=began_s + share * lifetime_ms / 1000)


async def _choose_mechanism(
    connection: SaslConnection, settings: ClientSettings, address: str
) -> None:
    wanted = settings.sasl_mechanism
    wrong_protocol = (
        f"{address} does not use SASL; set security.protocol to"
        f" {_WITHOUT_LOG_IN[settings.security_protocol]}, or connect to a SASL listener"
    )
    try:
        # Only SASL listeners serve SaslHandshake.
        version = connection.version_of(SaslHandshakeRequest)
    except UnsupportedVersion as error:
        raise AuthenticationFailed(wrong_protocol) from error
    if version < _FIRST_WITH_AUTHENTICATE:
        raise AuthenticationFailed(
            f"cannot authenticate to {address}: the broker is older than Kafka 1.0"
        )
    answer = await connection.ask(SaslHandshakeRequest(mechanism=wanted), SaslHandshakeResponse)
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(answer.mechanisms) or "none"
        raise AuthenticationFailed(
            f"{address} has not enabled {wanted}; set sasl.mechanism to one that it offers:"
            f" {offered}"
        )
    # Kafka returns this error on a listener without SASL.
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise AuthenticationFailed(wrong_protocol)
    if answer.error_code:
        raise error_from_code(answer.error_code, f"{address} rejected SaslHandshake")


async def _converse(connection: SaslConnection, mechanism: Mechanism) -> int:
    """Exchange messages until the mechanism is done; return the session lifetime in ms."""
    to_send: bytes | None = mechanism.first()
    # A broker must not be able to keep the client in an endless exchange.
    for _ in range(_MAX_STEPS):
        assert to_send is not None
        answer = await connection.ask(
            SaslAuthenticateRequest(auth_bytes=to_send), SaslAuthenticateResponse
        )
        if answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED:
            raise AuthenticationFailed(
                answer.error_message or "the broker rejected the authentication"
            )
        if answer.error_code:
            raise error_from_code(answer.error_code, answer.error_message or "SaslAuthenticate")
        to_send = mechanism.next(bytes(answer.auth_bytes))
        if to_send is None:
            return answer.session_lifetime_ms
    raise AuthenticationFailed(f"the broker did not finish authentication in {_MAX_STEPS} steps")


async def _token_of(settings: ClientSettings, network: Network) -> str:
    """Return the OAUTHBEARER token, from the application's function or from a file."""
    source = settings.sasl_oauthbearer_token
    if source is None:
        url = settings.sasl_oauthbearer_token_endpoint_url or ""
        return await network.job(lambda: _token_in_file(url))
    try:
        token: object = source()
        if isinstance(token, Awaitable):
            token = await token
    except Exception as error:
        raise AuthenticationFailed(
            f"sasl_oauthbearer_token raised {type(error).__name__}: {error}"
        ) from error
    if not isinstance(token, str):
        raise AuthenticationFailed(
            f"sasl_oauthbearer_token returned {type(token).__name__}, not str"
        )
    return token.strip()


def _token_in_file(url: str) -> str:
    path = unquote(urlsplit(url).path)
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a text file"
        raise AuthenticationFailed(
            f"cannot read sasl.oauthbearer.token.endpoint.url={url}: {why}"
        ) from error
