"""TlsClient over a StringTransport; the broker uses Python's `ssl` module."""

from __future__ import annotations

import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("OpenSSL")
from twisted.internet.interfaces import IHandshakeListener
from twisted.internet.protocol import ClientFactory, Protocol, connectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from zope.interface import implementer

from plog.client.errors import TlsFailed
from plog.client.network.tls_context import Security
from plog.client.network.twisted_tls import TlsClient, make_openssl_context
from plog.client.settings import ClientSettings
from tests.helpers.certificates import DAY, Authority, Signed

CA = Authority()
BROKER = CA.server("localhost", "127.0.0.1", "bücher.example".encode("idna").decode())


def _security(**keywords: object) -> Security:
    settings = ClientSettings.from_options(
        bootstrap_servers="x", security_protocol="SSL", **keywords
    )
    security = Security.of(settings)
    assert security is not None
    return security


@implementer(IHandshakeListener)
class Wrapped(Protocol):
    """A protocol above TLS; the data it sends must not reach an unverified peer."""

    def __init__(self) -> None:
        self.is_open = False
        self.reason: BaseException | None = None

    def connectionMade(self) -> None:
        assert self.transport is not None
        self.transport.write(b"secret")

    def handshakeCompleted(self) -> None:
        self.is_open = True

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.reason = reason.value


class _Wire(StringTransport):
    """A transport that can be aborted."""

    def abortConnection(self) -> None:
        self.disconnected = True


class Session:
    """A TLS client and a server, and the data that each has received."""

    def __init__(self, security: Security, server: ssl.SSLContext, host: str = "localhost") -> None:
        self.tls = TlsClient.of(security, host)
        self.above = Wrapped()
        factory = ClientFactory()
        factory.protocol = lambda: self.above  # type: ignore[assignment,return-value]
        self._clock = Clock()
        outer = self.tls.factory(factory, clock=self._clock)
        self.protocol: Any = outer.buildProtocol(None)  # type: ignore[arg-type]
        self.wire = _Wire()
        self._to_server, self._to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = server.wrap_bio(self._to_server, self._to_client, server_side=True)
        self.received = b""
        self.protocol.makeConnection(self.wire)

    def run(self) -> None:
        """Transfer bytes until neither side has any left."""
        for _ in range(10):
            # Newer versions of Twisted combine the writes of one reactor turn.
            self._clock.advance(0)
            self._to_server.write(self.wire.value())
            self.wire.clear()
            try:
                self.server.do_handshake()
                self.received += self.server.read()
            except ssl.SSLError:
                pass  # It needs more data, or sends an alert.
            if data := self._to_client.read():
                self.protocol.dataReceived(data)
        if self.wire.disconnecting or getattr(self.wire, "disconnected", False):
            self.protocol.connectionLost(Failure(connectionDone.value))

    def failure(self, host: str = "localhost") -> str:
        """Return the error that explains the end of the connection."""
        self.run()
        assert self.received == b"", "an unverified peer has received data"
        assert self.above.reason is not None
        found = self.tls.failure_of(self.above.reason, f"{host}:9093", has_begun=self.above.is_open)
        assert found is not None, self.above.reason
        return str(found)


def _server(
    tmp_path: Path, signed: Signed = BROKER, *, client_ca: Authority | None = None
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(signed.keystore(tmp_path / "broker.pem"))
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=client_ca.pem.decode())
    return context


@pytest.fixture
def trusting(tmp_path: Path) -> dict[str, object]:
    """Return the settings that trust the tests' CA."""
    return {"ssl_truststore_location": CA.truststore(tmp_path / "ca.pem")}


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "bücher.example", "localhost."])
def test_broker_of_a_trusted_ca_is_accepted(
    tmp_path: Path, trusting: dict[str, object], host: str
) -> None:
    session = Session(_security(**trusting), _server(tmp_path), host)
    session.run()
    assert session.above.is_open
    assert session.received == b"secret"


@pytest.mark.parametrize("host", ["example.com", "127.0.0.2"])
def test_wrong_host_receives_no_data(
    tmp_path: Path, trusting: dict[str, object], host: str
) -> None:
    session = Session(_security(**trusting), _server(tmp_path), host)
    assert f"is not valid for {host}; connect using a name" in session.failure()
    careless = _security(**trusting, ssl_endpoint_identification_algorithm="")
    other = Session(careless, _server(tmp_path), host)
    other.run()
    assert other.received == b"secret"


def test_certificate_without_names_is_refused(tmp_path: Path, trusting: dict[str, object]) -> None:
    nameless = CA.intermediate().signed
    careless = _security(**trusting, ssl_endpoint_identification_algorithm="")
    assert Session(careless, _server(tmp_path, nameless)).tls is not None
    text = Session(_security(**trusting), _server(tmp_path, nameless)).failure()
    assert text.startswith("the certificate of localhost:9093 is not")


def test_broker_of_an_unknown_ca_receives_no_data(
    tmp_path: Path, trusting: dict[str, object]
) -> None:
    server = _server(tmp_path, Authority("Other CA").server())
    careless = _security(**trusting, ssl_endpoint_identification_algorithm="")
    for security in (_security(**trusting), careless, _security()):
        assert "signed by a CA that is not trusted" in Session(security, server).failure()


def test_certificate_dates_are_checked(tmp_path: Path, trusting: dict[str, object]) -> None:
    expired = CA.server("localhost", begins_in=-2 * DAY, ends_in=-DAY)
    server = _server(tmp_path, expired)
    assert "has expired" in Session(_security(**trusting), server).failure()


def test_client_sends_its_certificate(tmp_path: Path, trusting: dict[str, object]) -> None:
    server = _server(tmp_path, client_ca=CA)
    keystore = CA.client("me").keystore(tmp_path / "me.pem", "hunter2")
    security = _security(**trusting, ssl_keystore_location=keystore, ssl_key_password="hunter2")
    session = Session(security, server)
    session.run()
    assert session.received == b"secret"
    shown = session.server.getpeercert()
    assert shown is not None
    assert (("commonName", "me"),) in shown["subject"]


def test_versions_and_suites_are_limited(tmp_path: Path, trusting: dict[str, object]) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    session = Session(_security(**trusting, ssl_cipher_suites=suite), _server(tmp_path))
    session.run()
    assert session.server.version() == "TLSv1.2"
    newer = _server(tmp_path)
    newer.minimum_version = ssl.TLSVersion.TLSv1_3
    old = _security(**trusting, ssl_enabled_protocols="TLSv1.2")
    assert "not support any of this client's TLS versions" in Session(old, newer).failure()


def test_unusable_settings_are_refused(tmp_path: Path, trusting: dict[str, object]) -> None:
    me = CA.client()
    locked = me.keystore(tmp_path / "locked.pem", "hunter2")
    mixed = tmp_path / "mixed.pem"
    mixed.write_bytes(CA.client().key_pem() + me.certificate_pem)
    bad = tmp_path / "bad.pem"
    bad.write_bytes(b"-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n")
    for keywords, problem in (
        ({"ssl_keystore_location": locked}, "is encrypted; set ssl.key.password"),
        ({"ssl_keystore_location": locked, "ssl_key_password": "x"}, "check ssl.key.password"),
        ({"ssl_keystore_location": mixed}, "does not belong to the first certificate"),
        ({"ssl_truststore_location": bad}, "bad.pem: cannot read a certificate"),
        ({"ssl_truststore_location": tmp_path / "none"}, "No such file"),
        ({"ssl_cipher_suites": "FROBNICATE"}, "ssl.cipher.suites: FROBNICATE"),
    ):
        with pytest.raises(TlsFailed, match=problem):
            make_openssl_context(_security(**keywords))


def test_context_is_cached(trusting: dict[str, object]) -> None:
    security = _security(**trusting)
    assert make_openssl_context(security) is make_openssl_context(security)


def test_non_tls_failure_has_no_explanation(tmp_path: Path, trusting: dict[str, object]) -> None:
    session = Session(_security(**trusting), _server(tmp_path))
    assert session.tls.failure_of(ConnectionResetError(), "x") is None


def test_global_reactor_is_not_imported() -> None:
    program = (
        "import sys, plog.client.network.twisted_tls as t\n"
        "from twisted.internet.protocol import Factory\n"
        "from twisted.internet.task import Clock\n"
        "from plog.client.network.tls_context import Security\n"
        "t.TlsClient.of(Security(), 'x').factory(Factory(), clock=Clock())\n"
        "print('twisted.internet.reactor' in sys.modules)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout == "False\n"
