"""Error messages for a client's failed TLS handshakes, with the remedies.

OpenSSL reports failures as numbers and texts, which differ slightly between the standard library
and pyOpenSSL. This module handles both and does not import either. The server side is in
plogd/net/tls/tls_failures.py. Source: OpenSSL's X509_STORE_CTX_get_error(3), RFC 8446 section 6.2.
"""

from __future__ import annotations

from plog.client.errors import TlsFailed

# OpenSSL's X509_V_ERR_… codes.
_NOT_YET_VALID, _EXPIRED, _WRONG_PURPOSE = 9, 10, 26
_UNKNOWN_ISSUER = (2, 18, 19, 20, 21)
_WRONG_NAME = (62, 64)
HOST_MISMATCH = _WRONG_NAME[0]

_SET_TRUSTSTORE = (
    "set ssl.truststore.location to a PEM file with that CA's certificate, or correct"
    " bootstrap.servers if this is the wrong broker"
)
_NOT_ACCEPTED = "does not accept this client's certificate; add its CA to the broker's truststore"
_NO_CERTIFICATE = "requires a certificate from this client; set ssl.keystore.location"
_EXPIRED_HERE = "rejected this client's certificate because it has expired; renew it"
# Parts of OpenSSL's texts, with their meanings. These alerts may arrive after the handshake: with
# TLS 1.3, the client considers the connection open before the broker has checked its certificate.
_MEANING_BY_ALERT = {
    "alert certificate required": _NO_CERTIFICATE,
    "alert unknown ca": _NOT_ACCEPTED,
    "alert bad certificate": _NOT_ACCEPTED,
    "alert certificate unknown": _NOT_ACCEPTED,
    "alert certificate expired": _EXPIRED_HERE,
}
_NO_TLS = "does not use TLS; check the port and security.protocol"
_NO_VERSION = "does not support any of this client's TLS versions; check ssl.enabled.protocols"
_MEANING_BEFORE_IT_BEGINS = {
    "wrong version number": _NO_TLS,
    "record layer failure": _NO_TLS,
    "packet length too long": _NO_TLS,
    "unknown protocol": _NO_TLS,
    "protocol version": _NO_VERSION,
    "unsupported protocol": _NO_VERSION,
    "no protocols available": _NO_VERSION,
    "handshake failure": (
        "rejected the TLS handshake; it may require a certificate from this client"
        " (ssl.keystore.location) or other cipher suites"
    ),
}


def tls_failure(
    error: Exception, *, address: str, host: str, has_begun: bool = False
) -> TlsFailed | None:
    """Return the exception for an error from the `ssl` module, or None if a retry may succeed."""
    reason = getattr(error, "reason", None)
    # If the error is not about TLS, for example after a connection reset, a retry may succeed.
    if not isinstance(reason, str):
        return None
    text = explain_tls(
        reason,
        verify_code=getattr(error, "verify_code", None) or 0,
        address=address,
        host=host,
        has_begun=has_begun,
    )
    return None if text is None else TlsFailed(text)


def explain_tls(
    reason: str, *, verify_code: int, address: str, host: str, has_begun: bool = False
) -> str | None:
    """Return a one-line explanation of a TLS failure, or None if a retry may succeed.

    Args:
        reason: OpenSSL's text.
        verify_code: OpenSSL's verification error for the broker's certificate, or 0.
        host: the name for which the certificate must be valid.
        has_begun: whether this side considers the handshake complete.

    >>> explain_tls("", verify_code=10, address="a:9093", host="a")
    'the certificate of a:9093 has expired; renew it'
    """
    # The standard library writes reasons with underscores; pyOpenSSL writes them without.
    words = reason.lower().replace("_", " ")
    # The verification error is more informative than the resulting alert.
    if verify_code:
        return f"the certificate of {address} {_verdict(verify_code, words, host)}"
    meanings = dict(_MEANING_BY_ALERT)
    # After the handshake, these texts may have other causes.
    if not has_begun:
        meanings |= _MEANING_BEFORE_IT_BEGINS
    return next((f"{address} {text}" for known, text in meanings.items() if known in words), None)


def is_end(error: Exception) -> bool:
    """Return whether `error` only means that the peer has closed the connection."""
    return isinstance(error, ConnectionError) or "EOF occurred" in str(error)


def handshake_failure(address: str, reason: str) -> str:
    """Return the error text for a connection that ends during the handshake without an alert."""
    return f"TLS handshake with {address} failed: {reason}; check the port and security.protocol"


def _verdict(verify_code: int, words: str, host: str) -> str:
    if verify_code in _WRONG_NAME:
        return (
            f"is not valid for {host}; connect using a name in the certificate, or reissue it (an"
            " empty ssl.endpoint.identification.algorithm disables this check)"
        )
    if verify_code in _UNKNOWN_ISSUER:
        return f"is signed by a CA that is not trusted; {_SET_TRUSTSTORE}"
    if verify_code == _EXPIRED:
        return "has expired; renew it"
    if verify_code == _NOT_YET_VALID:
        return "is not valid yet; check the clock of this machine"
    if verify_code == _WRONG_PURPOSE:
        return "is not a server certificate; reissue it for server authentication"
    return f"is not accepted: {words} ({verify_code})"
