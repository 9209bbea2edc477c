"""The client's TLS connections for Twisted, on any reactor; this module does not import a reactor.

    tls = TlsClient.of(security, host)
    reactor.connectTCP(host, port, tls.factory(protocol_factory, clock=reactor))
    # After connectionLost(reason): raise tls.failure_of(reason.value, address) or ...

The host name is checked while OpenSSL verifies the certificate, so that a mismatch ends the
handshake before application data is sent. Any thread may create a `TlsClient`; use it only in the
reactor's thread.

Source: Twisted's _sslverify.ClientTLSOptions; RFC 6125 as implemented by service_identity.
"""

from __future__ import annotations

import inspect
import ipaddress
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from OpenSSL import SSL, crypto
from service_identity import CertificateError, VerificationError
from service_identity.pyopenssl import verify_hostname, verify_ip_address
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator, IProtocolFactory
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from zope.interface import implementer

from plog.client.errors import TlsFailed
from plog.client.network.tls_context import Pems, Security, why_no_pair
from plog.client.network.tls_failures import HOST_MISMATCH, explain_tls
from plog.openssl import limit, reason_of, show, trust
from plog.pem import is_encrypted

_UNREADABLE = (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion)
"""The exceptions of `cryptography` for malformed or unsupported keys and certificates."""

_T = TypeVar("_T")


def make_openssl_context(security: Security) -> SSL.Context:
    """Return the cached context for one client's connections. The call blocks while it reads files.

    Raises:
        TlsFailed: a file cannot be used, or OpenSSL rejects a setting.
    """
    return security.kept("openssl", lambda: _new_context(security))


def _new_context(security: Security) -> SSL.Context:
    pems = security.read()
    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    # Renegotiation and compression are vulnerable to known attacks.
    context.set_options(SSL.OP_NO_COMPRESSION | SSL.OP_NO_RENEGOTIATION)
    # With this mode, idle connections release their buffers.
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)
    try:
        limit(context, security.versions, security.cipher_suites)
    except ValueError as error:
        raise TlsFailed(f"ssl.cipher.suites: {error}") from error
    if security.trusted is None:
        context.set_default_verify_paths()
    else:
        trust(context, _certificates(pems.trusted or (), security.trusted.where))
    # Each connection sets its own callback, which checks the host name.
    context.set_verify(SSL.VERIFY_PEER)
    if pems.key is not None:
        _load_key_pair(context, security, pems)
    return context


def _load_key_pair(context: SSL.Context, security: Security, pems: Pems) -> None:
    assert security.key is not None
    assert security.chain is not None
    assert pems.key is not None
    where = security.key.where
    has_password = is_encrypted(pems.key)
    # `cryptography` rejects a password for a key that is not encrypted.
    password = (security.key_password or "").encode() if has_password else None
    block = pems.key
    key = _read(
        lambda: serialization.load_pem_private_key(block, password),
        lambda reason: f"{where}: {why_no_pair(reason, has_password)}",
    )
    chain = _certificates(pems.chain, security.chain.where)
    try:
        show(context, key, chain)
    except SSL.Error as error:
        why = why_no_pair(reason_of(error), False)
        raise TlsFailed(f"{security.chain.where}: {why}") from error


def _certificates(blocks: Sequence[bytes], where: str) -> tuple[x509.Certificate, ...]:
    def read(block: bytes) -> x509.Certificate:
        return _read(
            lambda: x509.load_pem_x509_certificate(block),
            lambda reason: f"{where}: cannot read a certificate: {reason}",
        )

    return tuple(read(block) for block in blocks)


def _read(what: Callable[[], _T], explain: Callable[[str], str]) -> _T:
    try:
        return what()
    except _UNREADABLE as error:
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        raise TlsFailed(explain(first_line)) from error


@implementer(IOpenSSLClientConnectionCreator)
class TlsClient:
    """The TLS state of one connection to `host`."""

    def __init__(self, context: SSL.Context, host: str, *, checks_host_name: bool) -> None:
        self._context = context
        # An absolute host name ends with a dot, which names in certificates do not have.
        self._host = host.removesuffix(".")
        self._checks_host_name = checks_host_name
        # OpenSSL's verification error for the broker's certificate, or 0.
        self._verify_code = 0

    @classmethod
    def of(cls, security: Security, host: str) -> Self:
        """Return the TLS state for a connection. Thread-safe; may read files. Raises TlsFailed."""
        context = make_openssl_context(security)
        return cls(context, host, checks_host_name=security.checks_host_name)

    def factory(self, wrapped: IProtocolFactory, *, clock: Any) -> TLSMemoryBIOFactory:
        """Return a factory that adds TLS to the protocols of `wrapped`; `clock` is the reactor."""
        # Newer versions of Twisted use the global reactor unless a clock is passed.
        parameters = inspect.signature(TLSMemoryBIOFactory.__init__).parameters
        more = {"clock": clock} if "clock" in parameters else {}
        factory = TLSMemoryBIOFactory(self, True, wrapped, **more)
        # Do not use Twisted's protocol that combines small writes: requests are written as a whole,
        # and write_drain.py needs the bytes to be in the transport.
        factory.protocol = TLSMemoryBIOProtocol
        return factory

    def clientConnectionForTLS(self, tlsProtocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        """Return the OpenSSL connection; Twisted calls this."""
        # There is no socket: Twisted transfers the bytes.
        connection = SSL.Connection(self._context, None)
        connection.set_verify(SSL.VERIFY_PEER, self._verified)
        # RFC 6066: SNI allows only host names, not IP addresses.
        if not _is_address(self._host):
            connection.set_tlsext_host_name(self._host.encode("idna"))
        return connection

    def failure_of(
        self, error: BaseException, address: str, *, has_begun: bool = False
    ) -> TlsFailed | None:
        """Return the exception for `error`, which ended the connection.

        Returns None if a retry may succeed. `has_begun` is whether `handshakeCompleted` was called.
        """
        if not isinstance(error, SSL.Error):
            return None
        text = explain_tls(
            reason_of(error),
            verify_code=self._verify_code,
            address=address,
            host=self._host,
            has_begun=has_begun,
        )
        return None if text is None else TlsFailed(text)

    def _verified(
        self, connection: SSL.Connection, certificate: crypto.X509, error: int, depth: int, ok: int
    ) -> bool:
        """Store OpenSSL's verification error, and check the host name."""
        # Use OpenSSL's own result first: the names in a forged certificate mean nothing.
        if not ok:
            self._verify_code = error
            return False
        # Depth 0 is the broker's own certificate; the others are CAs.
        if depth == 0 and self._checks_host_name and not self._is_for_host(certificate):
            # Store the same code as if OpenSSL had detected the mismatch.
            self._verify_code = HOST_MISMATCH
            return False
        return True

    def _is_for_host(self, certificate: crypto.X509) -> bool:
        connection: Any = _UnverifiedConnection(certificate)
        verify = verify_ip_address if _is_address(self._host) else verify_hostname
        try:
            verify(connection, self._host)
        except (VerificationError, CertificateError):
            return False
        return True


class _UnverifiedConnection:
    """A stand-in for a connection whose peer certificate OpenSSL has not set yet.

    service_identity accepts only a connection, not a certificate.
    """

    def __init__(self, certificate: crypto.X509) -> None:
        self._certificate = certificate

    def get_peer_certificate(self) -> crypto.X509:
        """Return the certificate that is being verified."""
        return self._certificate


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
