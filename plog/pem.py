"""Parse keys and certificates in PEM format, and detect other keystore formats.

Pure. The callers interpret the blocks: plogd/net/tls/tls_files.py for the broker,
plog/client/network/tls_context.py for clients.

Source: RFC 7468; KIP-651 and Kafka 4.3 DefaultSslEngineFactory.PemStore.
"""

from __future__ import annotations

import re

# A setting can contain PEM data in one line, so the body need not contain line breaks (KIP-651).
_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
# The magic numbers of Java's formats JKS and JCEKS.
_JKS_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
# PKCS12 and DER files start with an ASN.1 SEQUENCE.
_DER_SEQUENCE = b"\x30"


def pem_blocks(data: bytes, kind: str) -> list[bytes]:
    """Return the blocks whose labels end with `kind`, with standard line lengths.

    >>> pem_blocks(b"-----BEGIN CERTIFICATE----- QUJD -----END CERTIFICATE-----", "CERTIFICATE")
    [b'-----BEGIN CERTIFICATE-----\\nQUJD\\n-----END CERTIFICATE-----\\n']
    """
    found = []
    for label, body in _BLOCK.findall(data):
        # "PRIVATE KEY" also matches "RSA PRIVATE KEY" and "ENCRYPTED PRIVATE KEY".
        if label.decode().endswith(kind):
            begin, end = b"-----BEGIN %b-----\n" % label, b"-----END %b-----\n" % label
            found.append(begin + _with_line_ends(body) + end)
    return found


def _with_line_ends(body: bytes) -> bytes:
    # Encrypted keys in OpenSSL's traditional format have headers, in which line breaks matter.
    if b":" in body:
        return body.strip() + b"\n"
    text = b"".join(body.split())
    return b"".join(text[i : i + 64] + b"\n" for i in range(0, len(text), 64))


def is_encrypted(key: bytes) -> bool:
    """Return whether a private key block is encrypted with a password."""
    # PKCS #8 has the word in the label, OpenSSL's traditional format in the Proc-Type header.
    return b"ENCRYPTED" in key


def other_form(data: bytes) -> str | None:
    """Return the name of the keystore format of `data`; None if it is PEM or unknown."""
    if data.startswith(_JKS_MAGIC):
        return "a Java keystore (JKS)"
    return "a PKCS12 or DER file" if data.startswith(_DER_SEQUENCE) else None
