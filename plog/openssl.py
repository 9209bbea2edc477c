"""Configure pyOpenSSL contexts for both ends of a TLS connection.

plogd/net/tls/tls_context.py creates the server's contexts, plog/client/network/twisted_tls.py the
client's. If OpenSSL rejects a value, a ValueError states the remedy, and the caller adds the
setting's name.

Source: OpenSSL's SSL_CTX_set_min_proto_version(3), X509_VERIFY_PARAM_set_flags(3).
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from OpenSSL import SSL, crypto

from plog.cipher_suites import openssl_cipher_lists

# Older versions are missing because RFC 8996 deprecates them and Kafka disables them by default
# (KIP-553).
_VERSIONS = {"TLSv1.2": SSL.TLS1_2_VERSION, "TLSv1.3": SSL.TLS1_3_VERSION}


def limit(context: SSL.Context, versions: Collection[str], suites: Sequence[str]) -> None:
    """Limit a context to these TLS versions and, unless `suites` is empty, these cipher suites."""
    allowed = set(versions)
    # If no suite belongs to a TLS version, OpenSSL would use its default suites for that version.
    if suites:
        allowed &= _limit_suites(context, suites)
    if not allowed:
        raise ValueError(
            "none of the suites belongs to a TLS version in ssl.enabled.protocols; add a suite or a"
            " version"
        )
    # OpenSSL only accepts a range. It cannot include an unwanted version, because only two versions
    # exist here.
    context.set_min_proto_version(min(_VERSIONS[version] for version in allowed))
    context.set_max_proto_version(max(_VERSIONS[version] for version in allowed))


def _limit_suites(context: SSL.Context, suites: Sequence[str]) -> set[str]:
    """Offer only these suites; return the TLS versions that support one of them."""
    tls_1_2, tls_1_3 = openssl_cipher_lists(suites)
    versions = set()
    try:
        # OpenSSL rejects an empty list. A version without suites is excluded by its number instead.
        if tls_1_2:
            context.set_cipher_list(":".join(tls_1_2).encode())
            versions.add("TLSv1.2")
        if tls_1_3:
            # Debian 12 has pyOpenSSL 23.0, which lacks the method.
            if not hasattr(context, "set_tls13_ciphersuites"):
                raise ValueError(
                    "this version of pyOpenSSL cannot select TLSv1.3 suites; leave the setting"
                    " empty, or remove TLSv1.3 from ssl.enabled.protocols and its suites from"
                    " this setting"
                )
            context.set_tls13_ciphersuites(":".join(tls_1_3).encode())
            versions.add("TLSv1.3")
    except SSL.Error as error:
        raise ValueError(f"OpenSSL does not support any of {', '.join(suites)}") from error
    return versions


def show(context: SSL.Context, key: Any, chain: Sequence[x509.Certificate]) -> None:
    """Make a context present the first certificate of `chain`, whose private key is `key`.

    The context also sends the rest of the chain. Raises SSL.Error.
    """
    der = key.private_bytes(
        serialization.Encoding.DER,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    own, *others = for_openssl(chain)
    with warnings.catch_warnings():
        # Newer versions of pyOpenSSL deprecate its own types, but the oldest supported version does
        # not accept those of `cryptography`.
        warnings.simplefilter("ignore", DeprecationWarning)
        context.use_certificate(own)
        for certificate in others:
            context.add_extra_chain_cert(certificate)
        context.use_privatekey(crypto.load_privatekey(crypto.FILETYPE_ASN1, der))
    context.check_privatekey()


def trust(context: SSL.Context, trusted: Sequence[x509.Certificate]) -> None:
    """Trust certificates that are signed by one of `trusted`. Raises SSL.Error."""
    store = context.get_cert_store()
    assert store is not None, "a context always has a certificate store"
    # As in Java, each trusted certificate is a trust anchor, even if it is not self-signed. By
    # default, OpenSSL requires the root certificate.
    store.set_flags(crypto.X509StoreFlags.PARTIAL_CHAIN)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for certificate in for_openssl(trusted):
            store.add_cert(certificate)


def for_openssl(certificates: Sequence[x509.Certificate]) -> Iterator[crypto.X509]:
    """Convert the certificates to pyOpenSSL's type."""
    for certificate in certificates:
        yield crypto.X509.from_cryptography(certificate)


def reason_of(error: SSL.Error) -> str:
    """Return OpenSSL's reason for an error: the last entry in its error queue, if there is one.

    >>> reason_of(SSL.Error([("SSL routines", "", "unknown protocol")]))
    'unknown protocol'
    """
    # The first argument of a SysCallError is an errno, not an error queue.
    queue = error.args[0] if error.args else None
    if isinstance(queue, list) and queue:
        return str(queue[-1][2]) or str(queue[-1])
    return str(error) or type(error).__name__
