"""plog/pem.py: keys and certificates in PEM data."""

from __future__ import annotations

import pytest

from plog.pem import is_encrypted, other_form, pem_blocks

BODY = b"QUJDRA" * 20
CERTIFICATE = b"-----BEGIN CERTIFICATE-----\n%b\n-----END CERTIFICATE-----\n"
KEY = b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nQUJD\n-----END ENCRYPTED PRIVATE KEY-----\n"


def test_blocks_of_kind_are_found_in_order() -> None:
    text = b"Bag Attributes\n" + KEY + CERTIFICATE % b"MQ==" + b"# x\n" + CERTIFICATE % b"Mg=="
    assert pem_blocks(text, "CERTIFICATE") == [CERTIFICATE % b"MQ==", CERTIFICATE % b"Mg=="]
    assert pem_blocks(text, "PRIVATE KEY") == [KEY]
    assert pem_blocks(b"no PEM", "CERTIFICATE") == []


def test_missing_line_ends_are_added() -> None:
    (block,) = pem_blocks((CERTIFICATE % BODY).replace(b"\n", b" "), "CERTIFICATE")
    assert block == CERTIFICATE % (BODY[:64] + b"\n" + BODY[64:])


def test_headers_keep_line_ends() -> None:
    old = (
        b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nQUJD\n"
        b"-----END RSA PRIVATE KEY-----\n"
    )
    assert pem_blocks(old, "PRIVATE KEY") == [old]
    assert is_encrypted(old)


def test_encrypted_key_is_recognized() -> None:
    assert is_encrypted(KEY)
    assert not is_encrypted(KEY.replace(b"ENCRYPTED ", b""))


@pytest.mark.parametrize(
    ("data", "form"),
    [
        (b"\xfe\xed\xfe\xed\x00", "a Java keystore (JKS)"),
        (b"0\x82\x01", "a PKCS12 or DER file"),
        (KEY, None),
        (b"", None),
    ],
)
def test_other_formats_are_recognized_by_first_bytes(data: bytes, form: str | None) -> None:
    assert other_form(data) == form
