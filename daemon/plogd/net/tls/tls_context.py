"""OpenSSL contexts for TLS listeners, which can be replaced while connections are open.

The `TlsServer` of a listener creates each client's OpenSSL connection from its current context. A
context never changes: new certificates need a new context, and open connections keep their old
context. Reactor thread only, except `make_context`.

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
from plogd.net.tls.tls_files import TlsFileError, TlsMaterial
from plogd.net.tls.x500_name import rfc2253_name

_VERIFY = {
    "none": SSL.VERIFY_NONE,
    "requested": SSL.VERIFY_PEER,
    "required": SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT,
}


class VerifyFailure(NamedTuple):
    """A rejected client certificate: OpenSSL's error number and the certificate's subject."""

    error_number: int
    owner: str


@implementer(IOpenSSLServerConnectionCreator)
class TlsServer:
    """Creates the TLS connections of one listener from a context that `use` replaces."""

    def __init__(self, context: SSL.Context) -> None:
        self._context = context

    def use(self, context: SSL.Context) -> None:
        """Use this context for new connections."""
        self._context = context

    def serverConnectionForTLS(self, tlsProtocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        """Return the OpenSSL connection of a new client; called by Twisted."""
        connection = SSL.Connection(self._context, None)
        # `_verified` needs the protocol. Newer versions of Twisted set it themselves.
        connection.set_app_data(tlsProtocol)
        return connection


def make_context(
    settings: TlsSettings, material: TlsMaterial, *, name_for: Callable[[str], str] = str
) -> SSL.Context:
    """Create a context for new connections.

    Args:
        name_for: returns the name under which the listener's settings contain a setting.

    Raises:
        TlsFileError: OpenSSL rejects a setting or a certificate.
    """
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    context.set_options(
        SSL.OP_NO_COMPRESSION
        # Otherwise, a client could cause load by renegotiating repeatedly.
        | SSL.OP_NO_RENEGOTIATION
        | SSL.OP_CIPHER_SERVER_PREFERENCE
    )
    # Idle connections then do not keep buffers. A session cache is not needed, because clients keep
    # their sessions in tickets.
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    # Without a session id, OpenSSL does not resume sessions of clients that authenticated with a
    # certificate.
    context.set_session_id(os.urandom(16))
    try:
        limit(context, settings.ssl_enabled_protocols, settings.ssl_cipher_suites)
    except ValueError as error:
        raise TlsFileError(f"{name_for('ssl.cipher.suites')}: {error}") from error
    try:
        show(context, material.key, material.chain)
        _trust(context, settings.ssl_client_auth, material.trusted)
    except SSL.Error as error:
        raise TlsFileError(
            f"cannot use the certificates: OpenSSL reports {reason_of(error)}"
        ) from error
    return context


def _trust(context: SSL.Context, client_auth: str, trusted: Sequence[x509.Certificate]) -> None:
    if client_auth == "none":
        context.set_verify(SSL.VERIFY_NONE)
        return
    trust(context, trusted)
    with warnings.catch_warnings():
        # pyOpenSSL deprecates its own X509 class, but add_client_ca accepts nothing else in old
        # versions.
        warnings.simplefilter("ignore", DeprecationWarning)
        for certificate in for_openssl(trusted):
            context.add_client_ca(certificate)
    context.set_verify(_VERIFY[client_auth], _verified)


def _verified(
    connection: SSL.Connection, certificate: crypto.X509, error: int, depth: int, ok: int
) -> bool:
    """Accept OpenSSL's verification result, and store a failure in the protocol for the log."""
    if not ok:
        try:
            owner = owner_of(certificate)
        except ValueError:  # The certificate comes from an untrusted client.
            owner = "an unreadable subject"
        protocol = connection.get_app_data()
        protocol.verify_failure = VerifyFailure(error, owner)
    return bool(ok)


def owner_of(certificate: crypto.X509) -> str:
    """Return the certificate's subject as Kafka formats it. Raises ValueError if unreadable."""
    return rfc2253_name(certificate.to_cryptography().subject.public_bytes())
