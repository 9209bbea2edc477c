"""Explain failed TLS handshakes: the cause, and the setting that fixes it.

OpenSSL's reason and its verification result for the client's certificate become one line, which
tls_port.py logs. An alert means that the client rejected the broker; an error means that the broker
rejected the client. Source: RFC 8446 section 6.2, openssl-verification-options(1).
"""

from __future__ import annotations

from typing import NamedTuple


class Failure(NamedTuple):
    """An explained failure: the log is rate-limited by `kind`, and `text` is the explanation."""

    kind: str
    text: str


_OUR_CA = (
    "add the CA that signed ssl.keystore.location to the client's trusted CAs (Java:"
    " ssl.truststore.location, librdkafka: ssl.ca.location, kafka-python: ssl_cafile)"
)
_OUR_NAME = (
    "if the client trusts the CA, the address it uses is not among the certificate's names (SAN):"
    " compare them with advertised.listeners"
)
_CLIENTS_CERTIFICATE = (
    "ssl.client.auth requires one that is signed by a CA in ssl.truststore.location; configure it"
    " in the client (Java: ssl.keystore.location, librdkafka: ssl.certificate.location and"
    " ssl.key.location, kafka-python: ssl_certfile and ssl_keyfile)"
)
_VERSIONS = "compare ssl.enabled.protocols with the versions that the client supports"
_NO_COMMON_VERSION = f"the client does not support any of the enabled TLS versions: {_VERSIONS}"

# The last words of OpenSSL's reasons for the alerts that clients send. Only these are compared,
# because the rest of a reason differs between OpenSSL versions.
_ALERTS = {
    "unknown ca": f"the client does not trust this broker's certificate: {_OUR_CA}",
    "certificate unknown": f"the client does not accept this broker's certificate: {_OUR_CA};"
    f" {_OUR_NAME}",
    "bad certificate": f"the client does not accept this broker's certificate: {_OUR_CA};"
    f" {_OUR_NAME}",
    "certificate expired": "the client reports that this broker's certificate has expired: renew"
    " ssl.keystore.location and send SIGHUP, or correct the client's clock",
    "protocol version": _NO_COMMON_VERSION,
    "handshake failure": "the client and the broker have no cipher suite in common, or the client"
    " requires a different type of certificate: compare ssl.cipher.suites",
}
_ERRORS = {
    "did not return a certificate": "the client did not send a certificate:"
    f" {_CLIENTS_CERTIFICATE}",
    "unsupported protocol": _NO_COMMON_VERSION,
    "version too low": _NO_COMMON_VERSION,
    "no shared cipher": "the client and the broker have no cipher suite in common: compare"
    " ssl.cipher.suites and the key type (RSA, EC) of the broker's certificate",
    "no suitable signature algorithm": "the client does not support any signature algorithm for"
    " the key type (RSA, EC) of the broker's certificate",
}
# OpenSSL's error numbers for certificates.
_NOT_YET_VALID, _EXPIRED, _SELF_SIGNED, _SELF_SIGNED_CA = 9, 10, 18, 19
_NO_ISSUER, _NO_SIGNER, _INVALID_PURPOSE = 20, 21, 26
_VERIFY_ERRORS = {
    _NOT_YET_VALID: "is not valid yet: check the clocks",
    _EXPIRED: "has expired: renew it",
    _INVALID_PURPOSE: "is not a client certificate: its extended key usage does not include"
    " clientAuth",
}
_UNKNOWN_CA = (
    "is signed by an unknown CA: add the certificate of that CA to ssl.truststore.location and send"
    " SIGHUP"
)


def explain_handshake_failure(reason: str, *, verify_error: int, owner: str) -> Failure:
    """Explain why a handshake failed.

    Args:
        reason: OpenSSL's reason.
        verify_error: OpenSSL's error number for the client's certificate, or 0.
        owner: the subject of that certificate.

    >>> explain_handshake_failure("tlsv1 alert unknown ca", verify_error=0, owner="").kind
    'alert unknown ca'
    """
    # Checked first, because OpenSSL's own reason is then only "certificate verify failed".
    if verify_error:
        if verify_error in (_SELF_SIGNED, _SELF_SIGNED_CA, _NO_ISSUER, _NO_SIGNER):
            problem = _UNKNOWN_CA
        else:
            problem = _VERIFY_ERRORS.get(
                verify_error, f"was rejected by OpenSSL with error {verify_error}"
            )
        text = f"the client certificate of {owner} {problem}"
        return Failure(f"client certificate {verify_error}", text)
    _, is_alert, alert = reason.lower().rpartition("alert ")
    if is_alert:
        text = _ALERTS.get(alert, f"the client sent the alert {alert!r}")
        return Failure(f"alert {alert}", text)
    for words, text in _ERRORS.items():
        if words in reason.lower():
            return Failure(words, text)
    return Failure("handshake", f"OpenSSL reports {reason!r}")
