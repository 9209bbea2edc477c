"""plog/cipher_suites.py: the names of the standard, of Java and of OpenSSL."""

from __future__ import annotations

import ssl

import pytest

from plog.cipher_suites import openssl_cipher_lists

KAFKAS = [
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
]


@pytest.mark.parametrize("suite", KAFKAS)
def test_openssl_accepts_translated_names(suite: str) -> None:
    [name], [] = openssl_cipher_lists([suite])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(f"{name}:@SECLEVEL=0")
    assert name in {cipher["name"] for cipher in context.get_ciphers()}


def test_names_of_openssl_and_tls_1_3_are_unchanged() -> None:
    suites = ["ECDHE-RSA-AES128-GCM-SHA256", "TLS_AES_256_GCM_SHA384"]
    assert openssl_cipher_lists(suites) == ([suites[0]], [suites[1]])


@pytest.mark.parametrize("suite", ["TLS_RSA_WITH_AES_128_CBC_SHA", "ALL:!EXP", "none"])
def test_other_suite_is_rejected(suite: str) -> None:
    with pytest.raises(ValueError, match="is not supported"):
        openssl_cipher_lists([suite])
