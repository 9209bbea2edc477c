"""Why a client could not begin TLS, in words that say what to do.

OpenSSL says it in numbers and in its own language, which differs a little between the standard
library and pyOpenSSL; both are understood here, and neither is imported. The server's side is
plogd/net/tls_failures.py. Source: OpenSSL's X509_STORE_CTX_get_error(3), RFC 8446 section 6.2.
"""

from __future__ import annotations

from plog.client.errors import TlsFailed

# Numbers of X509_V_ERR_….
_NOT_YET_VALID, _EXPIRED, _WRONG_PURPOSE = 9, 10, 26
_UNKNOWN_ISSUER = (2, 18, 19, 20, 21)
_WRONG_NAME = (62, 64)
HOST_MISMATCH = _WRONG_NAME[0]

_SET_TRUSTSTORE = (
    "set ssl.truststore.location to a PEM file with the certificate of that CA, or, if it is"
    " another broker than it should be, bootstrap.servers"
)
_NOT_ACCEPTED = "does not accept this client's certificate: the broker's truststore needs its CA"
_NO_CERTIFICATE = "asks for a certificate of this client: set ssl.keystore.location"
_EXPIRED_HERE = "says that this client's certificate has expired: renew it"
# Words in OpenSSL's reason, and what they mean. With TLS 1.3 a broker judges our certificate when
# we believe the connection to be open.
_MEANING_BY_ALERT = {
    "alert certificate required": _NO_CERTIFICATE,
    "alert unknown ca": _NOT_ACCEPTED,
    "alert bad certificate": _NOT_ACCEPTED,
    "alert certificate unknown": _NOT_ACCEPTED,
    "alert certificate expired": _EXPIRED_HERE,
}
_NO_TLS = "does not speak TLS: is it the right port, and security.protocol the right one?"
_NO_VERSION = "speaks none of our versions of TLS: see ssl.enabled.protocols"
_MEANING_BEFORE_IT_BEGINS = {
    "wrong version number": _NO_TLS,
    "record layer failure": _NO_TLS,
    "packet length too long": _NO_TLS,
    "unknown protocol": _NO_TLS,
    "protocol version": _NO_VERSION,
    "unsupported protocol": _NO_VERSION,
    "no protocols available": _NO_VERSION,
    "handshake failure": (
        "refuses to begin TLS: it may ask for a certificate of this client"
        " (ssl.keystore.location), or for other cipher suites"
    ),
}


def tls_failure(
    error: Exception, *, address: str, host: str, has_begun: bool = False
) -> TlsFailed | None:
    """What to raise for an error of the standard library's `ssl`; None if it may pass."""
    reason = getattr(error, "reason", None)
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
    """One line on why there is no TLS connection; None if another try may have one.

    Args:
        reason: OpenSSL's words.
        verify_code: its number for what is wrong with the broker's certificate, 0 for nothing.
        host: the name the certificate has to be for.
        has_begun: whether the handshake is over, as far as this side can know.

    >>> explain_tls("", verify_code=10, address="a:9093", host="a")
    'the certificate of a:9093 has expired: renew it'
    """
    words = reason.lower().replace("_", " ")
    if verify_code:
        return f"the certificate of {address} {_judgement(verify_code, words, host)}"
    meanings = dict(_MEANING_BY_ALERT)
    if not has_begun:
        meanings |= _MEANING_BEFORE_IT_BEGINS
    return next((f"{address} {text}" for known, text in meanings.items() if known in words), None)


def is_end(error: Exception) -> bool:
    """Whether it is only that the other side is gone."""
    return isinstance(error, ConnectionError) or "EOF occurred" in str(error)


def no_tls_yet(address: str, reason: str) -> str:
    """What to say when a connection ends before TLS has begun and nobody tells why."""
    return (
        f"cannot begin TLS with {address}: {reason}; is it the right port, and security.protocol"
        " the right one?"
    )


def _judgement(verify_code: int, words: str, host: str) -> str:
    if verify_code in _WRONG_NAME:
        return (
            f"is not for {host}: connect by a name that is in it, or have it made anew; with an"
            " empty ssl.endpoint.identification.algorithm any name is taken"
        )
    if verify_code in _UNKNOWN_ISSUER:
        return f"is signed by a CA that is not trusted: {_SET_TRUSTSTORE}"
    if verify_code == _EXPIRED:
        return "has expired: renew it"
    if verify_code == _NOT_YET_VALID:
        return "is not valid yet: is the clock of this machine right?"
    if verify_code == _WRONG_PURPOSE:
        return "is not one for servers: have it made anew"
    return f"is not accepted: {words} ({verify_code})"
