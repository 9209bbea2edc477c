"""Keys and certificates in PEM, as in settings: accepted, or refused with TlsFileError.

The input is the key, a NUL, and the certificates.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from plogd.config.tls_settings import TlsSettings
from plogd.net.tls.tls_files import TlsFileError, owner, read_material
from tests.fuzz.target import Target
from tests.helpers.certificates import Authority

_NOW = datetime(2030, 1, 1, tzinfo=UTC)


def fuzz(data: bytes) -> None:
    """Read key and certificates, and describe the certificate."""
    key, _, chain = data.decode("utf-8", "replace").partition("\0")
    settings = TlsSettings(ssl_keystore_key=key or "k", ssl_keystore_certificate_chain=chain)
    try:
        material = read_material(settings, now=_NOW)
    except TlsFileError:
        return
    assert material.chain
    for certificate in material.chain:
        owner(certificate)


def _seeds() -> Iterator[bytes]:
    authority = Authority()
    signed = authority.server()
    yield signed.key_pem() + b"\0" + signed.certificate_pem + authority.pem
    yield signed.key_pem("secret") + b"\0" + signed.certificate_pem
    yield signed.key_pem().replace(b"\n", b" ") + b"\0" + signed.certificate_pem[:200]


TARGET = Target(name="tls_files", fuzz=fuzz, seeds=_seeds)
