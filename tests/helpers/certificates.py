"""Certificates generated at run time: a CA, and certificates that it signs.

They use elliptic curves, because an RSA key takes a tenth of a second. All files are PEM, as plog
reads them.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("OpenSSL")
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """A certificate and its private key; `issuers` is the PEM of the CAs up to the root."""

    certificate: x509.Certificate
    key: Any
    issuers: bytes = b""

    @property
    def certificate_pem(self) -> bytes:
        """Return the certificate alone."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def key_pem(self, password: str | None = None) -> bytes:
        """Return the private key, encrypted if a password is given."""
        encryption: Any = (
            serialization.BestAvailableEncryption(password.encode())
            if password
            else serialization.NoEncryption()
        )
        return bytes(
            self.key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
            )
        )

    def keystore(self, path: Path, password: str | None = None) -> Path:
        """Write the file for ``ssl.keystore.location``: key, certificate, issuers."""
        path.write_bytes(self.key_pem(password) + self.certificate_pem + self.issuers)
        return path

    def files(self, directory: Path, stem: str) -> tuple[Path, Path]:
        """Write certificate and key to two files, as other clients need them."""
        certificate, key = directory / f"{stem}.crt", directory / f"{stem}.key"
        certificate.write_bytes(self.certificate_pem + self.issuers)
        key.write_bytes(self.key_pem())
        return certificate, key


class Authority:
    """A certificate authority; its clients trust the file `truststore`."""

    def __init__(self, name: str = "Test CA") -> None:
        self.signed = _sign(name, None, is_ca=True)

    @property
    def pem(self) -> bytes:
        """Return the certificate of the CA itself."""
        return self.signed.certificate_pem

    def truststore(self, path: Path) -> Path:
        """Write the certificate of the CA to a file."""
        path.write_bytes(self.pem)
        return path

    def server(self, *names: str, **dates: timedelta) -> Signed:
        """Return a broker's certificate, valid for these host names and addresses."""
        return _sign(
            "broker", self.signed, names=names or ("localhost", "127.0.0.1", "::1"), **dates
        )

    def client(self, name: str = "client", **dates: timedelta) -> Signed:
        """Return a client's certificate."""
        return _sign(name, self.signed, is_client=True, **dates)

    def broker(self) -> Signed:
        """Return a certificate with which a broker can also connect to other brokers."""
        names = ("localhost", "127.0.0.1", "::1")
        return _sign("broker", self.signed, names=names, is_client=True, is_server=True)

    def intermediate(self, name: str = "Intermediate CA") -> Authority:
        """Return a CA whose certificate this one has signed."""
        other = Authority.__new__(Authority)
        other.signed = _sign(name, self.signed, is_ca=True, issuers=b"")
        other.signed = Signed(
            certificate=other.signed.certificate,
            key=other.signed.key,
            issuers=other.signed.certificate_pem,
        )
        return other


def _sign(
    name: str,
    issuer: Signed | None,
    *,
    names: tuple[str, ...] = (),
    is_ca: bool = False,
    is_client: bool = False,
    is_server: bool = False,
    issuers: bytes | None = None,
    begins_in: timedelta = -DAY,
    ends_in: timedelta = 365 * DAY,
) -> Signed:
    key = ec.generate_private_key(ec.SECP256R1())
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if not is_ca:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Plog, Inc"))
    subject = x509.Name(attributes)
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins_in)
        .not_valid_after(now + ends_in)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if issuer is not None:
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key())
        builder = builder.add_extension(authority, critical=False)
    if names:
        alternatives = x509.SubjectAlternativeName([_general_name(each) for each in names])
        builder = builder.add_extension(alternatives, critical=False)
    if not is_ca:
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH] if is_client else []
        if is_server or not is_client:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    certificate = builder.sign(issuer.key if issuer else key, hashes.SHA256())
    above = issuer.issuers if issuer is not None else b""
    return Signed(certificate=certificate, key=key, issuers=above if issuers is None else issuers)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
