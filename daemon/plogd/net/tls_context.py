"""The server's side of TLS as OpenSSL wants it, which may be replaced while connections are open.

A `TlsServer` belongs to a listener and makes the OpenSSL connection of each client from its current
context. A context is never changed: new certificates make a new one, and connections keep the one
they began with. Reactor thread only, except `make_context`.

Source: Kafka 4.3 DefaultSslEngineFactory; OpenSSL's SSL_CTX_set_options(3), SSL_CTX_set_verify(3).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

from cryptography import x509
from OpenSSL import SSL, crypto
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from twisted.protocols.tls import TLSMemoryBIOProtocol
from zope.interface import implementer

from plog.openssl import for_openssl, limit, reason_of, show, trust
from plogd.config.tls_settings import TlsSettings
from plogd.net.tls_files import TlsFileError, TlsMaterial
from plogd.net.x500_name import rfc2253_name

_VERIFY = {
    "none": SSL.VERIFY_NONE,
    "requested": SSL.VERIFY_PEER,
    "required": SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT,
}


class VerifyFailure(NamedTuple):
    """What was wrong with a client's certificate: OpenSSL's number for it, and whose it is."""

    error_number: int
    owner: str


@implementer(IOpenSSLServerConnectionCreator)
class TlsServer:
    """Makes the TLS connections of one listener; `use` replaces what they begin with."""

    def __init__(self, context: SSL.Context) -> None:
        self._context = context

    def use(self, context: SSL.Context) -> None:
        """Begin new connections with this context."""
        self._context = context

    def serverConnectionForTLS(self, tlsProtocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        """For Twisted: the OpenSSL connection of a new client."""
        connection = SSL.Connection(self._context, None)
        # For `_verified`; newer versions of Twisted do the same themselves.
        connection.set_app_data(tlsProtocol)
        return connection


def make_context(
    settings: TlsSettings, material: TlsMaterial, *, name_for: Callable[[str], str] = str
) -> SSL.Context:
    """A context for new connections.

    Args:
        name_for: what a setting is called where it was set.

    Raises:
        TlsFileError: this OpenSSL refuses what is asked for.
    """
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    context.set_options(
        SSL.OP_NO_COMPRESSION
        # A client could make us work by renegotiating again and again.
        | SSL.OP_NO_RENEGOTIATION
        | SSL.OP_CIPHER_SERVER_PREFERENCE
    )
    # Many connections that are silent keep no buffers, and no sessions: clients have tickets.
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    # Without it OpenSSL refuses to resume a session of a client that has shown a certificate.
    context.set_session_id(os.urandom(16))
    try:
        limit(context, settings.ssl_enabled_protocols, settings.ssl_cipher_suites)
    except ValueError as error:
        raise TlsFileError(f"{name_for('ssl.cipher.suites')}: {error}") from error
    try:
        show(context, material.key, material.chain)
        _trust(context, settings.ssl_client_auth, material.trusted)
    except SSL.Error as error:
        raise TlsFileError(f"OpenSSL refuses the certificate: {reason_of(error)}") from error
    return context


def _trust(context: SSL.Context, client_auth: str, trusted: Sequence[x509.Certificate]) -> None:
    if client_auth == "none":
        context.set_verify(SSL.VERIFY_NONE)
        return
    trust(context, trusted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for certificate in for_openssl(trusted):
            context.add_client_ca(certificate)
    context.set_verify(_VERIFY[client_auth], _verified)


def _verified(
    connection: SSL.Connection, certificate: crypto.X509, error: int, depth: int, ok: int
) -> bool:
    """Keep OpenSSL's judgement, and have the protocol note it for the line in the log."""
    if not ok:
        try:
            owner = owner_of(certificate)
        except ValueError:  # Anybody may show anything here.
            owner = "somebody whose name cannot be read"
        protocol = connection.get_app_data()
        protocol.verify_failure = VerifyFailure(error, owner)
    return bool(ok)


def owner_of(certificate: crypto.X509) -> str:
    """Whose certificate it is, as Kafka writes it. Raises ValueError if that cannot be read."""
    return rfc2253_name(certificate.to_cryptography().subject.public_bytes())
