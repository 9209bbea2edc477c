"""Keys and certificates: reading them, and the errors for unusable ones."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from plogd.config.tls_settings import TlsSettings
from plogd.net.tls.tls_files import TlsFileError, TlsMaterial, owner, read_material
from tests.helpers.certificates import DAY, Authority

CA = Authority()
BROKER = CA.server()
NOW = datetime.now(UTC)


def read(**values: Any) -> TlsMaterial:
    return read_material(TlsSettings(**values), now=NOW)


def read_file(path: Path, data: bytes, **values: Any) -> TlsMaterial:
    path.write_bytes(data)
    return read(ssl_keystore_location=str(path), **values)


def problem(path: Path, data: bytes, **values: Any) -> str:
    with pytest.raises(TlsFileError) as error:
        read_file(path, data, **values)
    return str(error.value)


def test_key_certificate_and_issuers_come_from_one_file(tmp_path: Path) -> None:
    signed = CA.intermediate().server()
    material = read(ssl_keystore_location=str(signed.keystore(tmp_path / "k.pem")))
    names = [owner(certificate) for certificate in material.chain]
    assert names == ["CN=broker,O=Plog\\, Inc", "CN=Intermediate CA"]
    assert (material.trusted, material.warnings) == ((), ())


def test_pem_texts_in_settings_need_no_line_ends() -> None:
    """Line ends are lost in a .properties file or an environment variable."""

    def flat(pem: bytes) -> str:
        return pem.decode().replace("\n", " ")

    material = read(
        ssl_keystore_key=flat(BROKER.key_pem("geheim")),
        ssl_keystore_certificate_chain=flat(BROKER.certificate_pem),
        ssl_key_password="geheim",
        ssl_client_auth="required",
        ssl_truststore_certificates=flat(CA.pem),
    )
    assert material.chain == (BROKER.certificate,)
    assert material.trusted == (CA.signed.certificate,)


def test_unneeded_password_is_ignored(tmp_path: Path) -> None:
    data = BROKER.key_pem() + BROKER.certificate_pem
    assert read_file(tmp_path / "k.pem", data, ssl_key_password="x").chain


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "does not contain a private key"),
        (BROKER.certificate_pem, "does not contain a private key"),
        (BROKER.key_pem(), "does not contain a certificate"),
        (BROKER.key_pem("x") + BROKER.certificate_pem, "encrypted; set ssl.key.password"),
        (CA.server().key_pem() + BROKER.certificate_pem, "does not belong to the certificate of"),
        (BROKER.key_pem() + CA.pem + BROKER.certificate_pem, "belongs to certificate 2"),
        (
            BROKER.key_pem() + BROKER.certificate_pem.replace(b"MII", b"AII", 1),
            "cannot read certificate 1",
        ),
        (
            BROKER.key_pem().replace(b"MIG", b"AIG", 1) + BROKER.certificate_pem,
            "cannot read the private key",
        ),
        (b"\xfe\xed\xfe\xed\0\0\0\2", "a Java keystore (JKS), not PEM; convert it once: keytool"),
        (b"\x30\x82\x0a\x00", "a PKCS12 or DER file, not PEM; convert it once"),
    ],
)
def test_unusable_file_is_reported_with_setting_path_and_remedy(
    tmp_path: Path, data: bytes, words: str
) -> None:
    path = tmp_path / "k.pem"
    text = problem(path, data)
    assert text.startswith(f"ssl.keystore.location={path}")
    assert words in text


def test_wrong_password_is_reported(tmp_path: Path) -> None:
    data = BROKER.key_pem("right") + BROKER.certificate_pem
    text = problem(tmp_path / "k.pem", data, ssl_key_password="wrong")
    assert "check the password in ssl.key.password" in text


def test_missing_file_is_reported() -> None:
    with pytest.raises(TlsFileError, match=r"cannot read ssl.*=/nowhere/k\.pem: No such"):
        read(ssl_keystore_location="/nowhere/k.pem")


def test_error_names_the_prefixed_setting_of_a_listener(tmp_path: Path) -> None:
    settings = TlsSettings(ssl_keystore_location=str(tmp_path))
    with pytest.raises(TlsFileError, match=r"listener\.name\.x\.ssl\.keystore\.location="):
        read_material(settings, now=NOW, name_for=lambda name: f"listener.name.x.{name}")


def test_truststore_without_certificates_is_rejected(tmp_path: Path) -> None:
    empty = tmp_path / "ca.pem"
    empty.write_text("nothing\n")
    data = BROKER.key_pem() + BROKER.certificate_pem
    trust = {"ssl_client_auth": "required", "ssl_truststore_location": str(empty)}
    text = problem(tmp_path / "k.pem", data, **trust)
    assert text.startswith(f"ssl.truststore.location={empty} does not contain a certificate")


@pytest.mark.parametrize(
    ("dates", "words"),
    [
        ({"begins_in": -3 * DAY, "ends_in": -DAY}, "expired on"),
        ({"begins_in": DAY}, "is not valid before"),
        ({"ends_in": 3 * DAY}, "expires on"),
    ],
)
def test_validity_dates_cause_warnings(tmp_path: Path, dates: dict[str, Any], words: str) -> None:
    path = CA.server(**dates).keystore(tmp_path / "k.pem")
    [warning] = read(ssl_keystore_location=str(path)).warnings
    assert warning.startswith(f"ssl.keystore.location={path}: the certificate of CN=broker,")
    assert words in warning


def test_pipe_is_rejected_because_a_reload_would_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    path = str(tmp_path / "pipe")
    with pytest.raises(TlsFileError, match=f"={path} is not a regular file"):
        read(ssl_keystore_location=path)
