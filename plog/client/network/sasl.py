"""The client side of the SASL mechanisms PLAIN, SCRAM and OAUTHBEARER.

    mechanism = mechanism_of(settings, token)
    to_send = mechanism.first()
    to_send = mechanism.next(challenge)     # until it is None

sasl_authenticator.py transports the bytes. A mechanism object is used for one authentication. It
raises `AuthenticationFailed` if the broker rejects the client or violates the protocol.

Source: RFC 4616 (PLAIN), RFC 5802 and RFC 7677 (SCRAM), RFC 7628 (OAUTHBEARER); Kafka 4.3
ScramSaslClient, ScramMessages, OAuthBearerClientInitialResponse. As in Kafka, names and passwords
are encoded in UTF-8 without SASLprep.
"""

from __future__ import annotations

import hmac
import re
import secrets
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from plog.client.errors import AuthenticationFailed
from plog.client.settings.jaas import parse_jaas
from plog.client.settings.security import SecuritySettings
from plog.scram import ScramMechanism, client_proof, salted_password, server_signature

# From RFC 7677: with fewer iterations, guessing the password would be too cheap.
MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 500_000
"""More iterations would block the client for over a second. Kafka's limit is 16384."""

_GS2_HEADER = "n,,"
_SERVER_FIRST = re.compile(
    r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9+/]+=*),i=(?P<iterations>[0-9]{1,9})"
    # RFC 5802 allows extensions after the iterations; a client may ignore them.
    r"(?:,.*)?",
    re.ASCII | re.DOTALL,
)
_SERVER_FINAL = re.compile(r"(?P<kind>[ev])=(?P<value>[^,]*)(?:,.*)?", re.DOTALL)
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*", re.ASCII)
_EXTENSION_NAME = re.compile(r"[A-Za-z]+", re.ASCII)
# KIP-342: the client sends login module options with this prefix as extensions.
_EXTENSION_PREFIX = "extension_"
_SCRAM_BY_NAME = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}


class Mechanism(Protocol):
    """The client side of one SASL exchange."""

    def first(self) -> bytes:
        """Return the initial response."""
        ...

    def next(self, challenge: bytes) -> bytes | None:
        """Return the response to a challenge, or None at the end. Raises AuthenticationFailed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """A username and password, with the other options of ``sasl.jaas.config``."""

    user: str
    password: str = field(repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


def credentials_of(settings: SecuritySettings) -> Credentials:
    """Return the credentials from ``sasl.jaas.config`` or from the individual settings."""
    if settings.sasl_jaas_config is None:
        return Credentials(user=settings.sasl_username or "", password=settings.sasl_password or "")
    options = dict(parse_jaas(settings.sasl_jaas_config).options)
    return Credentials(
        user=options.pop("username", ""), password=options.pop("password", ""), options=options
    )


def mechanism_of(settings: SecuritySettings, token: str = "") -> Mechanism:
    """Return a new exchange for ``sasl.mechanism``; `token` is for OAUTHBEARER.

    Raises:
        AuthenticationFailed: the mechanism is not supported, or a credential cannot be encoded.
    """
    name = settings.sasl_mechanism
    credentials = credentials_of(settings)
    if name == "PLAIN":
        return Plain(credentials)
    if name in _SCRAM_BY_NAME:
        return Scram(_SCRAM_BY_NAME[name], credentials)
    if name == "OAUTHBEARER":
        return OauthBearer(token, credentials.options)
    raise AuthenticationFailed(f"sasl.mechanism={name} is not supported; choose another mechanism")


class Plain:
    """The PLAIN mechanism. It sends the password in clear text; use it only over TLS."""

    def __init__(self, credentials: Credentials) -> None:
        # NUL characters separate the fields of the message (RFC 4616).
        if "\0" in credentials.user + credentials.password:
            raise AuthenticationFailed(
                "PLAIN does not allow a NUL character in the username or the password"
            )
        self._message = f"\0{credentials.user}\0{credentials.password}".encode()

    def first(self) -> bytes:
        """Return the username and the password."""
        return self._message

    def next(self, challenge: bytes) -> None:
        """Return None: PLAIN has only one step."""
        if challenge:
            raise AuthenticationFailed("the broker sent an unexpected challenge for PLAIN")


class Scram:
    """The SCRAM-SHA-256 and SCRAM-SHA-512 mechanisms: both sides prove that they know the password.

    The password itself is never sent.
    """

    def __init__(
        self, mechanism: ScramMechanism, credentials: Credentials, *, nonce: str | None = None
    ) -> None:
        self._mechanism = mechanism
        self._password = credentials.password.encode()
        # RFC 5802 requires printable characters without a comma.
        self._nonce = nonce or secrets.token_urlsafe(24)
        # RFC 5802: a comma ends a field, so it must be escaped, and so must the escape character.
        name = credentials.user.replace("=", "=3D").replace(",", "=2C")
        # KIP-48: with a delegation token, its id and HMAC serve as the username and password.
        token = ",tokenauth=true" if credentials.options.get("tokenauth") == "true" else ""
        self._first = f"n={name},r={self._nonce}{token}"
        self._signature: bytes | None = None
        self._is_done = False

    def first(self) -> bytes:
        """Return the client-first message: the username and a nonce."""
        return (_GS2_HEADER + self._first).encode()

    def next(self, challenge: bytes) -> bytes | None:
        """Return the client's proof for the first challenge.

        In the second challenge, verify the broker's proof and return None.
        """
        if self._is_done:
            raise AuthenticationFailed(
                "the broker sent a SCRAM message after authentication was complete"
            )
        try:
            text = challenge.decode()
        except UnicodeDecodeError:
            raise AuthenticationFailed(
                "the broker sent a SCRAM message that is not valid UTF-8"
            ) from None
        if self._signature is None:
            return self._prove(text)
        self._verify(text)
        self._is_done = True
        return None

    def _prove(self, server_first: str) -> bytes:
        match = _SERVER_FIRST.fullmatch(server_first)
        if match is None:
            raise AuthenticationFailed("the broker sent a malformed SCRAM message")
        nonce, iterations = match["nonce"], int(match["iterations"])
        # Without this check, an attacker could replay an old message from the broker.
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise AuthenticationFailed("the broker's SCRAM nonce does not start with the client's")
        # With too few iterations, the proof is easy to attack; too many block the client.
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise AuthenticationFailed(
                f"the broker requires {iterations} SCRAM iterations, but only {MIN_ITERATIONS} to"
                f" {MAX_ITERATIONS} are safe; set the user's password on the broker again"
            )
        salted = salted_password(
            self._mechanism, self._password, salt=_bytes_of(match["salt"]), iterations=iterations
        )
        # RFC 5802: without channel binding, the client repeats its own header.
        final = f"c={b64encode(_GS2_HEADER.encode()).decode()},r={nonce}"
        exchange = f"{self._first},{server_first},{final}".encode()
        self._signature = server_signature(self._mechanism, salted, exchange)
        proof = b64encode(client_proof(self._mechanism, salted, exchange)).decode()
        return f"{final},p={proof}".encode()

    def _verify(self, server_final: str) -> None:
        match = _SERVER_FINAL.fullmatch(server_final)
        if match is None:
            raise AuthenticationFailed("the broker sent a malformed final SCRAM message")
        if match["kind"] == "e":
            raise AuthenticationFailed(f"the broker rejected the authentication: {match['value']}")
        assert self._signature is not None, "the proof was sent"
        # Without this check, any server could impersonate the broker. The comparison takes constant
        # time, so that its duration does not reveal anything about the signature.
        if not hmac.compare_digest(_bytes_of(match["value"]), self._signature):
            raise AuthenticationFailed(
                "the broker did not prove that it knows the user's password;"
                " check that this is the right broker"
            )


class OauthBearer:
    """The OAUTHBEARER mechanism. It sends a token from another service; use it only over TLS."""

    def __init__(self, token: str, options: Mapping[str, str] | None = None) -> None:
        # With characters that RFC 6750 does not allow, a token could forge other fields of the
        # message.
        if not _TOKEN.fullmatch(token):
            raise AuthenticationFailed("the OAUTHBEARER token is not a valid bearer token")
        parts = [_GS2_HEADER, f"auth=Bearer {token}"]
        for name, value in (options or {}).items():
            if name.startswith(_EXTENSION_PREFIX):
                parts.append(_extension(name.removeprefix(_EXTENSION_PREFIX), value))
        self._message = "\x01".join([*parts, "", ""]).encode()
        self._refusal = ""

    def first(self) -> bytes:
        """Return the token."""
        return self._message

    def next(self, challenge: bytes) -> bytes | None:
        """Return None, or the acknowledgment of a rejection (RFC 7628, 3.2.3)."""
        if not challenge:
            return None
        if self._refusal:
            raise AuthenticationFailed(f"the broker rejected the token: {self._refusal}")
        # The broker ends the exchange only after the client has acknowledged the rejection.
        self._refusal = challenge.decode("utf-8", "replace")
        return b"\x01"


def _extension(name: str, value: str) -> str:
    # `auth` is the field of the token, and \x01 separates fields.
    if not _EXTENSION_NAME.fullmatch(name) or "\x01" in value or name == "auth":
        raise AuthenticationFailed(f"sasl.jaas.config: {name} is not a valid token extension")
    return f"{name}={value}"


def _bytes_of(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise AuthenticationFailed("the broker sent a malformed SCRAM message") from None
