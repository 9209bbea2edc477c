"""The server's side of TLS as OpenSSL wants it, which may be replaced while connections are open.

A `TlsServer` belongs to a listener and makes the OpenSSL connection of each client from its current
context. A context is never changed: new certificates make a new one, and connections keep the one
they began with. Reactor thread only, except `make_context`.

Source: Kafka 4.3 DefaultSslEngineFactory; OpenSSL's SSL_CTX_set_options(3), SSL_CTX_set_verify(3).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from OpenSSL import SSL, crypto
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from twisted.protocols.tls import TLSMemoryBIOProtocol
from zope.interface import implementer

from plogd.config.tls_settings import TlsSettings
from plogd.net.cipher_suites import openssl_cipher_lists
from plogd.net.tls_files import TlsFileError, TlsMaterial
from plogd.net.x500_name import rfc2253_name

_VERSIONS = {"TLSv1.2": SSL.TLS1_2_VERSION, "TLSv1.3": SSL.TLS1_3_VERSION}
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
    versions = set(settings.ssl_enabled_protocols)
    if settings.ssl_cipher_suites:
        name = name_for("ssl.cipher.suites")
        versions &= _limit_ciphers(context, settings.ssl_cipher_suites, name)
    _limit_versions(context, versions)
    try:
        _show(context, material)
        _trust(context, settings.ssl_client_auth, material.trusted)
    except SSL.Error as error:
        raise TlsFileError(f"OpenSSL refuses the certificate: {reason_of(error)}") from error
    return context


def _limit_versions(context: SSL.Context, versions: set[str]) -> None:
    if not versions:
        raise TlsFileError(
            "ssl.cipher.suites and ssl.enabled.protocols have no version of TLS in common"
        )
    context.set_min_proto_version(min(_VERSIONS[version] for version in versions))
    context.set_max_proto_version(max(_VERSIONS[version] for version in versions))


def _limit_ciphers(context: SSL.Context, suites: Sequence[str], name: str) -> set[str]:
    """Offer only these; the versions of TLS that have one of them."""
    try:
        tls_1_2, tls_1_3 = openssl_cipher_lists(suites)
    except ValueError as error:
        raise TlsFileError(f"{name}: {error}") from error
    versions = set()
    try:
        if tls_1_2:
            context.set_cipher_list(":".join(tls_1_2).encode())
            versions.add("TLSv1.2")
        if tls_1_3:
            if not hasattr(context, "set_tls13_ciphersuites"):
                raise TlsFileError(
                    f"{name}: this pyOpenSSL is too old to choose among the suites of TLSv1.3;"
                    " leave it empty, or take TLSv1.3 out of ssl.enabled.protocols and its suites"
                    " out of here"
                )
            context.set_tls13_ciphersuites(":".join(tls_1_3).encode())
            versions.add("TLSv1.3")
    except SSL.Error as error:
        raise TlsFileError(f"{name}: OpenSSL knows none of {', '.join(suites)}") from error
    return versions


def _show(context: SSL.Context, material: TlsMaterial) -> None:
    der = material.key.private_bytes(
        serialization.Encoding.DER,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    own, *others = _for_openssl(material.chain)
    with warnings.catch_warnings():
        # Newer versions would rather have cryptography's own types, older ones know only these.
        warnings.simplefilter("ignore", DeprecationWarning)
        context.use_certificate(own)
        for certificate in others:
            context.add_extra_chain_cert(certificate)
        context.use_privatekey(crypto.load_privatekey(crypto.FILETYPE_ASN1, der))
    context.check_privatekey()


def _trust(context: SSL.Context, client_auth: str, trusted: Sequence[x509.Certificate]) -> None:
    if client_auth == "none":
        context.set_verify(SSL.VERIFY_NONE)
        return
    store = context.get_cert_store()
    assert store is not None, "a context has a store from the beginning"
    # As in Java, any certificate of the truststore is trusted, not only one that signed itself.
    store.set_flags(crypto.X509StoreFlags.PARTIAL_CHAIN)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for certificate in _for_openssl(trusted):
            store.add_cert(certificate)
            context.add_client_ca(certificate)
    context.set_verify(_VERIFY[client_auth], _verified)


def _for_openssl(certificates: Sequence[x509.Certificate]) -> Iterator[crypto.X509]:
    for certificate in certificates:
        yield crypto.X509.from_cryptography(certificate)


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


def reason_of(error: SSL.Error) -> str:
    """OpenSSL's words for an error; the last of its queue says it best, if there is one.

    >>> reason_of(SSL.Error([("SSL routines", "", "unknown protocol")]))
    'unknown protocol'
    """
    queue = error.args[0] if error.args else None
    if isinstance(queue, list) and queue:
        return str(queue[-1][2]) or str(queue[-1])
    return str(error) or type(error).__name__
