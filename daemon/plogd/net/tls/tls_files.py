"""Read and validate keys and certificates for TLS listeners from PEM files or settings.

Each error names the setting, the file and a remedy; OpenSSL would report only numbers, or report an
error only when the first client connects. Reading blocks, so a job does it, except at startup.
tls_context.py creates the TLS context.

Source: KIP-651 and Kafka 4.3 DefaultSslEngineFactory.PemStore, which also treats the first
certificate as the broker's own.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from plog.errors import PlogError
from plog.pem import is_encrypted, other_form, pem_blocks
from plog.pem_settings import CONVERT_TRUSTSTORE
from plogd.config.tls_settings import CONVERT_KEYSTORE, TlsSettings
from plogd.net.tls.x500_name import rfc2253_name

EXPIRES_SOON = timedelta(days=14)
"""Startup and reload log a warning if a certificate expires within this period."""
_FILE_MAX_BYTES = 8 << 20
"""Maximum size of a PEM file. All CAs that a system trusts take up a few hundred kilobytes."""


class TlsFileError(PlogError):
    """A key or certificate cannot be used; the text names the setting, the file and a remedy."""


# The exceptions of the cryptography library for invalid or unsupported keys and certificates.
_UNREADABLE = (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsMaterial:
    """The key, certificates and CAs of a listener; `chain` starts with its own certificate."""

    key: Any  # A private key; different versions of cryptography have different types for it.
    chain: tuple[x509.Certificate, ...]
    trusted: tuple[x509.Certificate, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Source:
    """PEM data, and where it came from, for use in error messages."""

    where: str
    data: bytes


def read_material(
    settings: TlsSettings, *, now: datetime, name_for: Callable[[str], str] = str
) -> TlsMaterial:
    """Read the keys and certificates in `settings`, which have passed `check_tls`.

    Args:
        name_for: returns the name under which the listener's settings contain a setting.

    Raises:
        TlsFileError: a file cannot be read, or the key does not match the certificate.
    """
    keys, certificates = _keystore(settings, name_for)
    key = _private_key(keys, settings.ssl_key_password, name_for("ssl.key.password"))
    chain = _certificates(certificates)
    _check_pair(key, chain, certificates.where)
    trusted: Sequence[x509.Certificate] = ()
    warnings = list(_validity_warnings(chain, now, certificates.where))
    if settings.ssl_client_auth != "none":
        source = _truststore(settings, name_for)
        trusted = _certificates(source)
        warnings += _validity_warnings(trusted, now, source.where)
    return TlsMaterial(key=key, chain=chain, trusted=tuple(trusted), warnings=tuple(warnings))


def _keystore(settings: TlsSettings, name_for: Callable[[str], str]) -> tuple[_Source, _Source]:
    """Return the sources of the key and of the certificates."""
    if settings.ssl_keystore_key:
        chain = settings.ssl_keystore_certificate_chain or ""
        return (
            _Source(name_for("ssl.keystore.key"), settings.ssl_keystore_key.encode()),
            _Source(name_for("ssl.keystore.certificate.chain"), chain.encode()),
        )
    path = settings.ssl_keystore_location or ""
    source = _read_file(name_for("ssl.keystore.location"), path, CONVERT_KEYSTORE)
    return source, source


def _truststore(settings: TlsSettings, name_for: Callable[[str], str]) -> _Source:
    inline = settings.ssl_truststore_certificates
    if inline:
        return _Source(name_for("ssl.truststore.certificates"), inline.encode())
    path = settings.ssl_truststore_location or ""
    return _read_file(name_for("ssl.truststore.location"), path, CONVERT_TRUSTSTORE)


def _read_file(name: str, path: str, how_to_convert: str) -> _Source:
    where = f"{name}={path}"
    try:
        # Opening a pipe without a writer would block forever, and so would every later reload.
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise TlsFileError(f"{where} is not a regular file")
            # One byte more than the limit shows whether the file is too large.
            data = file.read(_FILE_MAX_BYTES + 1)
    except OSError as error:
        raise TlsFileError(f"cannot read {where}: {error.strerror}") from error
    if len(data) > _FILE_MAX_BYTES:
        raise TlsFileError(f"{where} is larger than {_FILE_MAX_BYTES} bytes: it is not a PEM file")
    # Kafka's default type of a keystore is JKS, so Java keystores are a common mistake.
    form = other_form(data)
    if form is not None:
        raise TlsFileError(f"{where} is {form}, not PEM; {how_to_convert}")
    return _Source(where, data)


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _private_key(source: _Source, password: str | None, password_setting: str) -> Any:
    blocks = pem_blocks(source.data, "PRIVATE KEY")
    if not blocks:
        raise TlsFileError(
            f"{source.where} does not contain a private key (a block that starts with -----BEGIN"
            " PRIVATE KEY)"
        )
    needs_password = is_encrypted(blocks[0])
    if needs_password and not password:
        raise TlsFileError(f"{source.where}: the private key is encrypted; set {password_setting}")
    try:
        # The library rejects a password for a key that is not encrypted.
        return serialization.load_pem_private_key(
            blocks[0], (password or "").encode() if needs_password else None
        )
    except _UNREADABLE as error:
        why = f"check the password in {password_setting}" if needs_password else _first_line(error)
        raise TlsFileError(f"{source.where}: cannot read the private key: {why}") from error


def _certificates(source: _Source) -> tuple[x509.Certificate, ...]:
    certificates = []
    for number, block in enumerate(pem_blocks(source.data, "CERTIFICATE"), 1):
        try:
            certificate = x509.load_pem_x509_certificate(block)
            owner(certificate), validity(certificate)  # The library parses them only on access.
        except _UNREADABLE as error:
            raise TlsFileError(
                f"{source.where}: cannot read certificate {number}: {_first_line(error)}"
            ) from error
        certificates.append(certificate)
    if not certificates:
        raise TlsFileError(
            f"{source.where} does not contain a certificate (a block that starts with -----BEGIN"
            " CERTIFICATE)"
        )
    return tuple(certificates)


def _check_pair(key: Any, chain: Sequence[x509.Certificate], where: str) -> None:
    public = _public_bytes(key.public_key())
    fitting = [n for n, each in enumerate(chain, 1) if _key_of(each, n, where) == public]
    # TLS sends the chain in this order, so the first certificate must be the broker's own.
    if 1 in fitting:
        return
    if fitting:
        raise TlsFileError(
            f"{where}: the private key belongs to certificate {fitting[0]}; move that certificate"
            " to the front, followed by the CA certificates that sign it"
        )
    raise TlsFileError(
        f"{where}: the private key does not belong to the certificate of"
        f" {owner(chain[0])}; check whether only one of them was renewed"
    )


def _key_of(certificate: x509.Certificate, number: int, where: str) -> bytes:
    try:
        return _public_bytes(certificate.public_key())
    except _UNREADABLE as error:
        raise TlsFileError(
            f"{where}: cannot use the key of certificate {number}: {_first_line(error)}"
        ) from error


def _public_bytes(public_key: Any) -> bytes:
    encoding = serialization.Encoding.DER
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    # As bytes, because older versions of cryptography cannot compare key objects.
    return bytes(public_key.public_bytes(encoding, form))


def _validity_warnings(
    certificates: Sequence[x509.Certificate], now: datetime, where: str
) -> list[str]:
    warnings = []
    for certificate in certificates:
        begin, end = validity(certificate)
        subject = f"{where}: the certificate of {owner(certificate)}"
        if now >= end:
            warnings.append(f"{subject} expired on {end:%Y-%m-%d %H:%M} UTC: clients reject it")
        elif now < begin:
            warnings.append(f"{subject} is not valid before {begin:%Y-%m-%d %H:%M} UTC")
        elif end - now < EXPIRES_SOON:
            warnings.append(f"{subject} expires on {end:%Y-%m-%d %H:%M} UTC: renew it")
    return warnings


def owner(certificate: x509.Certificate) -> str:
    """Return the subject of a certificate."""
    return rfc2253_name(certificate.subject.public_bytes()) or "an empty subject"


def validity(certificate: x509.Certificate) -> tuple[datetime, datetime]:
    """Return the start and the end of a certificate's validity."""
    if hasattr(certificate, "not_valid_after_utc"):
        return certificate.not_valid_before_utc, certificate.not_valid_after_utc
    # cryptography before 42.
    return (
        certificate.not_valid_before.replace(tzinfo=UTC),
        certificate.not_valid_after.replace(tzinfo=UTC),
    )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
