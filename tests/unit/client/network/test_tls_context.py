"""TLS contexts of the standard library: files, trust and error messages.

Both ends use Python's `ssl` module over memory buffers.
"""

from __future__ import annotations

import dataclasses
import ssl
from pathlib import Path

import pytest

from plog.client.errors import TlsFailed
from plog.client.network.tls_context import Security
from plog.client.network.tls_failures import tls_failure
from plog.client.settings import ClientSettings
from tests.helpers.certificates import DAY, Authority, Signed

CA = Authority()
BROKER = CA.server("localhost", "127.0.0.1")


def _security(**keywords: object) -> Security:
    settings = ClientSettings.from_options(
        bootstrap_servers="x", security_protocol="SSL", **keywords
    )
    security = Security.of(settings)
    assert security is not None
    return security


@pytest.fixture
def trusting(tmp_path: Path) -> dict[str, object]:
    """Return the settings that trust the tests' CA."""
    return {"ssl_truststore_location": CA.truststore(tmp_path / "ca.pem")}


def _server(
    tmp_path: Path, signed: Signed = BROKER, *, client_ca: Authority | None = None
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(signed.keystore(tmp_path / "broker.pem"))
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=client_ca.pem.decode())
    return context


class Handshake:
    """A TLS handshake between a client and a server, in memory."""

    def __init__(self, client: ssl.SSLContext, server: ssl.SSLContext, host: str) -> None:
        to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client.wrap_bio(to_client, to_server, server_hostname=host)
        self.server = server.wrap_bio(to_server, to_client, server_side=True)

    def begin(self) -> None:
        """Perform the handshake. Raises the client's error, which may appear only on a read."""
        for _ in range(10):
            try:
                self.client.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._serve()
        self._serve()
        try:
            self.client.read()
        except ssl.SSLWantReadError:
            return

    def _serve(self) -> None:
        try:
            self.server.do_handshake()
        except ssl.SSLError:
            return  # An alert reports the error to the client, or the server waits for more.


def _failure(security: Security, server: ssl.SSLContext, host: str = "localhost") -> str:
    meeting = Handshake(security.make_ssl_context(), server, host)
    with pytest.raises(ssl.SSLError) as caught:
        meeting.begin()
    failure = tls_failure(caught.value, address=f"{host}:9093", host=host)
    assert failure is not None
    return str(failure)


def test_client_without_tls_has_no_security() -> None:
    assert Security.of(ClientSettings()) is None
    assert Security.of(ClientSettings(security_protocol="SASL_PLAINTEXT")) is None


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_broker_of_a_trusted_ca_is_accepted(
    tmp_path: Path, trusting: dict[str, object], host: str
) -> None:
    meeting = Handshake(_security(**trusting).make_ssl_context(), _server(tmp_path), host)
    meeting.begin()
    assert meeting.client.version() == "TLSv1.3"


def test_truststore_may_be_inline_pem(tmp_path: Path) -> None:
    in_one_line = CA.pem.decode().replace("\n", " ")
    security = _security(ssl_truststore_certificates=in_one_line)
    Handshake(security.make_ssl_context(), _server(tmp_path), "localhost").begin()


def test_leaf_certificate_may_be_a_trust_anchor(tmp_path: Path) -> None:
    path = tmp_path / "broker.crt"
    path.write_bytes(BROKER.certificate_pem)
    context = _security(ssl_truststore_location=path).make_ssl_context()
    Handshake(context, _server(tmp_path), "localhost").begin()


def test_wrong_host_name_is_refused_unless_disabled(
    tmp_path: Path, trusting: dict[str, object]
) -> None:
    server = _server(tmp_path)
    for host in ("example.com", "127.0.0.2"):
        text = _failure(_security(**trusting), server, host)
        assert text.startswith(
            f"the certificate of {host}:9093 is not valid for {host}; connect using"
        )
    careless = _security(**trusting, ssl_endpoint_identification_algorithm="")
    Handshake(careless.make_ssl_context(), server, "example.com").begin()


def test_unknown_ca_is_refused(tmp_path: Path, trusting: dict[str, object]) -> None:
    server = _server(tmp_path, Authority("Other CA").server())
    careless = _security(**trusting, ssl_endpoint_identification_algorithm="")
    for security in (_security(**trusting), careless, _security()):
        assert "signed by a CA that is not trusted; set ssl.trust" in _failure(security, server)


def test_certificate_dates_are_checked(tmp_path: Path, trusting: dict[str, object]) -> None:
    expired = CA.server("localhost", begins_in=-2 * DAY, ends_in=-DAY)
    assert "has expired" in _failure(_security(**trusting), _server(tmp_path, expired))
    future = CA.server("localhost", begins_in=DAY)
    assert "not valid yet" in _failure(_security(**trusting), _server(tmp_path, future))


def test_client_certificate_is_refused_for_a_server(
    tmp_path: Path, trusting: dict[str, object]
) -> None:
    careless = _security(**trusting, ssl_endpoint_identification_algorithm="")
    assert "not a server certificate" in _failure(careless, _server(tmp_path, CA.client()))


def test_client_sends_its_certificate(tmp_path: Path, trusting: dict[str, object]) -> None:
    server = _server(tmp_path, client_ca=CA)
    me = CA.client("me")
    for keystore in (
        {"ssl_keystore_location": me.keystore(tmp_path / "me.pem")},
        {
            "ssl_keystore_location": me.keystore(tmp_path / "locked.pem", "hunter2"),
            "ssl_key_password": "hunter2",
        },
        {
            "ssl_keystore_key": me.key_pem().decode(),
            "ssl_keystore_certificate_chain": me.certificate_pem.decode(),
        },
    ):
        meeting = Handshake(
            _security(**trusting, **keystore).make_ssl_context(), server, "localhost"
        )
        meeting.begin()
        shown = meeting.server.getpeercert()
        assert shown is not None
        assert ((("commonName", "me"),)) in shown["subject"]


def test_missing_client_certificate_is_explained(
    tmp_path: Path, trusting: dict[str, object]
) -> None:
    server = _server(tmp_path, client_ca=CA)
    assert "set ssl.keystore.location" in _failure(_security(**trusting), server)
    stranger = Authority("Other CA").client().keystore(tmp_path / "stranger.pem")
    text = _failure(_security(**trusting, ssl_keystore_location=stranger), server)
    assert text.startswith("localhost:9093 does not accept this client's certificate")


def test_tls_versions_are_limited(tmp_path: Path, trusting: dict[str, object]) -> None:
    security = _security(**trusting, ssl_enabled_protocols="TLSv1.2")
    meeting = Handshake(security.make_ssl_context(), _server(tmp_path), "localhost")
    meeting.begin()
    assert meeting.client.version() == "TLSv1.2"
    newer = _server(tmp_path)
    newer.minimum_version = ssl.TLSVersion.TLSv1_3
    assert "not support any of this client's TLS versions" in _failure(security, newer)


def test_cipher_suites_have_standard_names(tmp_path: Path, trusting: dict[str, object]) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    security = _security(**trusting, ssl_cipher_suites=suite)
    meeting = Handshake(security.make_ssl_context(), _server(tmp_path), "localhost")
    meeting.begin()
    cipher = meeting.client.cipher()
    assert cipher is not None
    assert cipher[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"


@pytest.mark.parametrize(
    ("keywords", "problem"),
    [
        (
            {"ssl_cipher_suites": "TLS_AES_128_GCM_SHA256"},
            "cannot select TLSv1.3 cipher suites",
        ),
        ({"ssl_cipher_suites": "FROBNICATE"}, "FROBNICATE is not supported"),
        (
            {
                "ssl_cipher_suites": "ECDHE-RSA-AES128-GCM-SHA256",
                "ssl_enabled_protocols": "TLSv1.3",
            },
            "does not support any of the ssl.enabled.protocols",
        ),
        ({"ssl_cipher_suites": "ECDHE-RSA-NONE"}, "ssl.cipher.suites: No cipher"),
    ],
)
def test_unsupported_suites_and_versions_are_refused(
    keywords: dict[str, object], problem: str
) -> None:
    with pytest.raises(TlsFailed, match=problem):
        _security(**keywords).make_ssl_context()


def test_unusable_file_is_named_with_its_setting(tmp_path: Path) -> None:
    jks, der, empty = (tmp_path / name for name in ("a.jks", "a.p12", "a.pem"))
    jks.write_bytes(b"\xfe\xed\xfe\xed")
    der.write_bytes(b"0\x82")
    empty.write_bytes(b"")
    bad = tmp_path / "bad.pem"
    bad.write_bytes(b"-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n")
    for path, problem in (
        (tmp_path / "none.pem", "none.pem: No such file"),
        (tmp_path, ": Is a directory"),
        (jks, r"Java keystore \(JKS\), not PEM; convert it once: keytool -list"),
        (der, "PKCS12 or DER file, not PEM; convert"),
        (empty, "does not contain a certificate .a block that starts with -----BEGIN CERTIFICATE"),
        (bad, "bad.pem: cannot read a certificate"),
    ):
        with pytest.raises(TlsFailed, match=f"ssl.truststore.location=.*{problem}"):
            _security(ssl_truststore_location=path).make_ssl_context()


def test_unusable_key_error_has_a_remedy(tmp_path: Path) -> None:
    me = CA.client()
    locked = me.keystore(tmp_path / "locked.pem", "hunter2")
    mixed = tmp_path / "mixed.pem"
    mixed.write_bytes(CA.client().key_pem() + me.certificate_pem)
    alone = tmp_path / "alone.pem"
    alone.write_bytes(me.certificate_pem)
    for keywords, problem in (
        ({"ssl_keystore_location": locked}, "is encrypted; set ssl.key.password"),
        ({"ssl_keystore_location": locked, "ssl_key_password": "x"}, "check ssl.key.password"),
        ({"ssl_keystore_location": mixed}, "does not belong to the first certificate"),
        ({"ssl_keystore_location": alone}, "does not contain a private key"),
        (
            {"ssl_keystore_key": "x", "ssl_keystore_certificate_chain": "y"},
            "ssl.keystore.key does not contain",
        ),
    ):
        with pytest.raises(TlsFailed, match=problem) as caught:
            _security(**keywords).make_ssl_context()
        assert "hunter2" not in str(caught.value)


def test_context_is_cached_until_a_file_changes(
    tmp_path: Path, trusting: dict[str, object]
) -> None:
    security = _security(**trusting)
    first = security.make_ssl_context()
    assert security.make_ssl_context() is first
    other = Authority("Other CA")
    other.truststore(tmp_path / "new.pem").replace(tmp_path / "ca.pem")
    second = security.make_ssl_context()
    assert second is not first
    Handshake(second, _server(tmp_path, other.server()), "localhost").begin()
    (tmp_path / "ca.pem").unlink()
    with pytest.raises(TlsFailed, match="No such file"):
        security.make_ssl_context()


def test_repr_hides_secrets() -> None:
    me = CA.client()
    security = _security(
        ssl_keystore_key=me.key_pem("hunter2").decode(),
        ssl_keystore_certificate_chain=me.certificate_pem.decode(),
        ssl_key_password="hunter2",
    )
    assert "hunter2" not in repr(security)
    assert "BEGIN" not in repr(security)
    assert dataclasses.replace(security, key_password=None) != security


def test_port_without_tls_is_explained() -> None:
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = _security().make_ssl_context().wrap_bio(to_client, to_server, server_hostname="x")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    to_client.write(b"\x00\x00\x00\x04what else")
    with pytest.raises(ssl.SSLError) as caught:
        client.do_handshake()
    failure = tls_failure(caught.value, address="x:9092", host="x")
    assert failure is not None
    assert "x:9092 does not use TLS; check the port" in str(failure)
    # On an established connection, the same error may be transient.
    assert tls_failure(caught.value, address="x:9092", host="x", has_begun=True) is None
    assert tls_failure(OSError("reset"), address="x:9092", host="x") is None
