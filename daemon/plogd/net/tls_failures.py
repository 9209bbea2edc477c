"""What to say when a TLS connection does not come about: what happened, and which setting mends it.

Pure: OpenSSL's words, and what it thought of the client's certificate, become one line; tls_port.py
logs it. OpenSSL says the same in different words from version to version, so only their end is
looked at, and what is not known is passed on as it is. An alert is the client's judgement of us, an
error our judgement of the client. Source: RFC 8446 section 6.2, openssl-verification-options(1).
"""

from __future__ import annotations

from typing import NamedTuple


class Failure(NamedTuple):
    """`kind` is what lines are counted by, `text` says the rest."""

    kind: str
    text: str


_OUR_CA = (
    "give it the certificate of the CA that signed ssl.keystore.location (Java:"
    " ssl.truststore.location, librdkafka: ssl.ca.location, kafka-python: ssl_cafile)"
)
_OUR_NAME = (
    "or, if it trusts the CA, the address it uses is not among the certificate's names (SAN):"
    " compare them with advertised.listeners"
)
_CLIENTS_CERTIFICATE = (
    "ssl.client.auth wants one that a CA of ssl.truststore.location has signed; set it in the"
    " client (Java: ssl.keystore.location, librdkafka: ssl.certificate.location and"
    " ssl.key.location, kafka-python: ssl_certfile and ssl_keyfile)"
)
_VERSIONS = "compare ssl.enabled.protocols here with what the client is able to use, or upgrade it"

# Ends of OpenSSL's reasons for the alerts that clients send.
_ALERTS = {
    "unknown ca": f"the client does not trust this broker's certificate: {_OUR_CA}",
    "certificate unknown": f"the client does not accept this broker's certificate: {_OUR_CA};"
    f" {_OUR_NAME}",
    "bad certificate": f"the client does not accept this broker's certificate: {_OUR_CA};"
    f" {_OUR_NAME}",
    "certificate expired": "the client finds this broker's certificate expired: renew what"
    " ssl.keystore.location names and send SIGHUP, or set the client's clock",
    "protocol version": f"the client does not speak our versions of TLS: {_VERSIONS}",
    "handshake failure": "the client has no cipher suite in common with us, or needs another kind"
    " of certificate: compare ssl.cipher.suites",
}
_ERRORS = {
    "did not return a certificate": f"the client has shown no certificate: {_CLIENTS_CERTIFICATE}",
    "unsupported protocol": f"the client does not speak our versions of TLS: {_VERSIONS}",
    "version too low": f"the client does not speak our versions of TLS: {_VERSIONS}",
    "no shared cipher": "the client has no cipher suite in common with us: compare"
    " ssl.cipher.suites, and which kind of key (RSA, EC) the certificate has",
    "no suitable signature algorithm": "the client has no signature algorithm for the kind of key"
    " (RSA, EC) that our certificate has",
}
# OpenSSL's numbers for what is wrong with a certificate.
_NOT_YET_VALID, _EXPIRED, _SELF_SIGNED, _SELF_SIGNED_CA = 9, 10, 18, 19
_NO_ISSUER, _NO_SIGNER, _INVALID_PURPOSE = 20, 21, 26
_VERIFY_ERRORS = {
    _NOT_YET_VALID: "is not valid yet: set the clocks",
    _EXPIRED: "has expired: renew it",
    _INVALID_PURPOSE: "is not meant for clients: its extended key usage lacks clientAuth",
}
_UNKNOWN_CA = (
    "is signed by a CA we do not know: add the certificate of that CA to ssl.truststore.location"
    " and send SIGHUP"
)


def explain_handshake_failure(reason: str, *, verify_error: int, owner: str) -> Failure:
    """What went wrong in a handshake.

    Args:
        reason: OpenSSL's words.
        verify_error: OpenSSL's number for what is wrong with the client's certificate, or 0.
        owner: whose certificate that is.

    >>> explain_handshake_failure("tlsv1 alert unknown ca", verify_error=0, owner="").kind
    'alert unknown ca'
    """
    if verify_error:
        if verify_error in (_SELF_SIGNED, _SELF_SIGNED_CA, _NO_ISSUER, _NO_SIGNER):
            what = _UNKNOWN_CA
        else:
            what = _VERIFY_ERRORS.get(verify_error, f"is refused by OpenSSL, error {verify_error}")
        return Failure(f"client certificate {verify_error}", f"the certificate of {owner} {what}")
    _, is_alert, alert = reason.lower().rpartition("alert ")
    if is_alert:
        text = _ALERTS.get(alert, f"the client ended it, for the reason {alert!r}")
        return Failure(f"alert {alert}", text)
    for words, text in _ERRORS.items():
        if words in reason.lower():
            return Failure(words, text)
    return Failure("handshake", f"OpenSSL says {reason!r}")
