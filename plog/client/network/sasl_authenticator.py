"""Logging in on a connection: SaslHandshake, then SaslAuthenticate until the mechanism is done.

Called when a connection is new, before anything else is asked on it, and again on the same one
before its session ends, if the broker has set it an end. While that goes on nothing else may be
asked: a broker takes only these two requests then.

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

_FIRST_WITH_AUTHENTICATE = 1
_MAX_STEPS = 10
"""SCRAM, the longest, takes two."""
_WITHOUT_LOG_IN = {"SASL_SSL": "SSL", "SASL_PLAINTEXT": "PLAINTEXT"}


class SaslConnection(Protocol):
    """What a log-in needs of a `Connection`."""

    @property
    def address(self) -> str:
        """Host and port, for people."""
        ...

    def version_of(self, request: type[ApiMessage]) -> int:
        """Return the highest version that both sides support. Raises UnsupportedVersion."""
        ...

    def ask(self, request: ApiMessage, response: type[R]) -> Awaitable[R]:
        """Send a request and return its response."""
        ...


@dataclass(frozen=True, slots=True)
class Session:
    """What a log-in is good for; `renew_at_s` is on the network's clock, None for ever."""

    renew_at_s: float | None = None


async def authenticate(
    connection: SaslConnection, settings: ClientSettings, network: Network, *, host: str
) -> Session:
    """Log in as `settings` say; `host` is how the broker is called where it is refused.

    Raises:
        AuthenticationFailed: the broker does not let us in, or cannot be who it should be.
        ConnectionFailed, RequestTimedOut: as of any request.
    """
    token = await _token_of(settings, network) if settings.sasl_mechanism == "OAUTHBEARER" else ""
    mechanism = mechanism_of(settings, token)
    address = connection.address
    await _choose_mechanism(connection, settings, address)
    began_s = network.now_s()
    try:
        lifetime_ms = await _converse(connection, mechanism)
    except AuthenticationFailed as error:
        raise AuthenticationFailed(
            f"{address} and {settings.sasl_mechanism}: {error}"
            if host in address
            else f"{host} ({address}) and {settings.sasl_mechanism}: {error}"
        ) from error
    if lifetime_ms <= 0:
        return Session()
    # Not all at once, and with time left for it, as in Kafka.
    share = 0.85 + 0.1 * network.random()
    return Session(renew_at_s=began_s + share * lifetime_ms / 1000)


async def _choose_mechanism(
    connection: SaslConnection, settings: ClientSettings, address: str
) -> None:
    wanted = settings.sasl_mechanism
    wrong_protocol = (
        f"{address} asks for no log-in: set security.protocol to"
        f" {_WITHOUT_LOG_IN[settings.security_protocol]}, or connect to a listener that does"
    )
    try:
        version = connection.version_of(SaslHandshakeRequest)
    except UnsupportedVersion as error:
        raise AuthenticationFailed(wrong_protocol) from error
    if version < _FIRST_WITH_AUTHENTICATE:
        raise AuthenticationFailed(f"{address} is too old to log in to: it is Kafka before 1.0")
    answer = await connection.ask(SaslHandshakeRequest(mechanism=wanted), SaslHandshakeResponse)
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(answer.mechanisms) or "none"
        raise AuthenticationFailed(
            f"{address} takes no log-in by {wanted}: set sasl.mechanism to one it offers, {offered}"
        )
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise AuthenticationFailed(wrong_protocol)
    if answer.error_code:
        raise error_from_code(answer.error_code, f"{address} refused SaslHandshake")


async def _converse(connection: SaslConnection, mechanism: Mechanism) -> int:
    """Say what the mechanism says until it is done; how long the session lasts, in ms."""
    to_send: bytes | None = mechanism.first()
    for _ in range(_MAX_STEPS):
        assert to_send is not None
        answer = await connection.ask(
            SaslAuthenticateRequest(auth_bytes=to_send), SaslAuthenticateResponse
        )
        if answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED:
            raise AuthenticationFailed(answer.error_message or "the broker refuses the log-in")
        if answer.error_code:
            raise error_from_code(answer.error_code, answer.error_message or "SaslAuthenticate")
        to_send = mechanism.next(bytes(answer.auth_bytes))
        if to_send is None:
            return answer.session_lifetime_ms
    raise AuthenticationFailed("the log-in does not come to an end")


async def _token_of(settings: ClientSettings, network: Network) -> str:
    """The token for OAUTHBEARER, from the program's function or from a file."""
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
            f"sasl_oauthbearer_token returned a {type(token).__name__}, not a text"
        )
    return token.strip()


def _token_in_file(url: str) -> str:
    path = unquote(urlsplit(url).path)
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise AuthenticationFailed(
            f"sasl.oauthbearer.token.endpoint.url={url} cannot be read: {why}"
        ) from error
