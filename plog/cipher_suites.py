"""Translate the standard cipher suite names in Kafka's settings into OpenSSL's names.

Pure. Names that OpenSSL already understands are passed through unchanged. Source: RFC 8446, RFC
5289, RFC 7905, openssl-ciphers(1).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# OpenSSL uses the standard names for the suites of TLS 1.3.
_TLS_1_3 = re.compile(r"TLS_(AES_(128|256)_(GCM|CCM)(_8)?|CHACHA20_POLY1305)_SHA(256|384)")
# Only key exchanges with forward secrecy: with the others (TLS_RSA_…), an attacker who obtains the
# server's key can decrypt recorded connections.
_TLS_1_2 = re.compile(
    r"TLS_(?P<exchange>ECDHE_RSA|ECDHE_ECDSA|DHE_RSA)_WITH_"
    r"(?:AES_(?P<bits>128|256)_(?P<mode>GCM|CBC)_(?P<hash>SHA(?:256|384)?)"
    r"|(?P<chacha>CHACHA20_POLY1305)_SHA256)"
)
# The same key exchanges by OpenSSL's names. Keywords such as HIGH do not match, because they also
# select suites without forward secrecy.
_OPENSSL = re.compile(r"(ECDHE-RSA|ECDHE-ECDSA|DHE-RSA)-[A-Z0-9-]+")


def openssl_cipher_lists(suites: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return OpenSSL's names for `suites`: a list for TLS 1.2 and a list for TLS 1.3.

    Raises ValueError for an unknown suite.

    >>> openssl_cipher_lists(["TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256"])
    (['ECDHE-RSA-AES256-GCM-SHA384'], ['TLS_AES_128_GCM_SHA256'])
    """
    # OpenSSL has separate functions for the suites of the two versions.
    tls_1_2: list[str] = []
    tls_1_3: list[str] = []
    for suite in suites:
        if _TLS_1_3.fullmatch(suite):
            tls_1_3.append(suite)
        elif _OPENSSL.fullmatch(suite):
            tls_1_2.append(suite)
        else:
            tls_1_2.append(_translated(suite))
    return tls_1_2, tls_1_3


def _translated(suite: str) -> str:
    match = _TLS_1_2.fullmatch(suite)
    if match is None:
        raise ValueError(
            f"{suite} is not supported; use TLS_AES_128_GCM_SHA256,"
            " TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 or another suite with ECDHE or DHE"
        )
    # OpenSSL omits "CBC" from its names, and the hash from the names of ChaCha20 suites.
    exchange = match["exchange"].replace("_", "-")
    if match["chacha"]:
        return f"{exchange}-CHACHA20-POLY1305"
    mode = "GCM-" if match["mode"] == "GCM" else ""
    return f"{exchange}-AES{match['bits']}-{mode}{match['hash']}"
