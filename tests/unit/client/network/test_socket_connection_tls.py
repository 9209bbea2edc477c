"""Blocking sockets with TLS, and the errors of failed handshakes."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from plog.client.errors import ConnectionFailed, TlsFailed
from plog.client.network.socket_connection import SocketConnection
from plog.client.network.tls_context import Security
from plog.client.settings import ClientSettings
from plog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.helpers.certificates import Authority

CA = Authority()


@contextmanager
def _listening(tmp_path: Path, *, asks_for_certificate: bool = False) -> Iterator[int]:
    """Yield the port of a TLS server that closes its only connection without a response."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CA.server("localhost").keystore(tmp_path / "broker.pem"))
    if asks_for_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=CA.pem.decode())
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(60)  # Without a client, the test fails instead of hanging.

    def serve() -> None:
        accepted, _ = listener.accept()
        accepted.settimeout(60)
        try:
            with context.wrap_socket(accepted, server_side=True) as connection:
                connection.recv(1)
        except OSError:
            accepted.close()

    thread = Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        thread.join()
        listener.close()


def _connect(tmp_path: Path, port: int, ca: Authority = CA, host: str = "localhost") -> None:
    settings = ClientSettings.from_options(
        bootstrap_servers="x",
        security_protocol="SSL",
        ssl_truststore_location=ca.truststore(tmp_path / "ca.pem"),
    )
    connection = SocketConnection(
        host, port, timeout_s=10, client_id="test", security=Security.of(settings)
    )
    try:
        connection.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
    finally:
        connection.close()


def test_request_to_trusted_broker_succeeds(tmp_path: Path) -> None:
    with _listening(tmp_path) as port, pytest.raises(ConnectionFailed, match="was lost: "):
        _connect(tmp_path, port)  # The server closes after the first byte of the request.


def test_untrusted_ca_is_named_in_the_error(tmp_path: Path) -> None:
    with _listening(tmp_path) as port, pytest.raises(TlsFailed, match=r"signed by a CA that is"):
        _connect(tmp_path, port, Authority("Other CA"))


def test_wrong_host_name_is_named_in_the_error(tmp_path: Path) -> None:
    with (
        _listening(tmp_path) as port,
        pytest.raises(TlsFailed, match=r"is not valid for 127\.0\.0\.1"),
    ):
        _connect(tmp_path, port, host="127.0.0.1")


def test_missing_client_certificate_is_reported_after_the_handshake(tmp_path: Path) -> None:
    with (
        _listening(tmp_path, asks_for_certificate=True) as port,
        pytest.raises(TlsFailed, match=r"requires a certificate .* set ssl\.keystore\.location"),
    ):
        _connect(tmp_path, port)


def test_missing_file_is_reported_before_connecting(tmp_path: Path) -> None:
    security = Security.of(
        ClientSettings(
            security_protocol="SSL", ssl_truststore_location=str(tmp_path / "nowhere.pem")
        )
    )
    with pytest.raises(TlsFailed, match=r"cannot read .*nowhere.pem: No such file"):
        SocketConnection("localhost", 1, timeout_s=1, client_id="test", security=security)
