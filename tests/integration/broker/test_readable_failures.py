"""The broker logs each failure between it and a client in one line, with a remedy.

These tests use real processes and sockets; tests/unit checks the lines for all other cases.
"""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest

from plogd.testing.broker_process import BrokerFailed, BrokerProcess
from plogd.testing.plugin import BrokerFactory
from tests.helpers.certificates import DAY, Authority
from tests.helpers.log.broker_log import assert_one_line

API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000001 ffff")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ssl.keystore.location": "/nowhere/x.pem"}, ("/nowhere/x.pem", "No such file")),
        ({"ssl.client.auth": "required"}, ("ssl.client.auth", "ssl.truststore.location")),
        ({"ssl.keystore.type": "JKS"}, ("ssl.keystore.type", "keytool -importkeystore")),
    ],
)
def test_broker_with_incomplete_tls_settings_does_not_start(
    start_broker: BrokerFactory,
    tls_settings: dict[str, str],
    change: dict[str, str],
    words: tuple[str, ...],
) -> None:
    with pytest.raises(BrokerFailed) as failed:
        start_broker({**tls_settings, **change})
    assert [word for word in words if word not in str(failed.value)] == []


def handshake(broker: BrokerProcess, context: ssl.SSLContext) -> None:
    """Start a TLS handshake and wait until the broker closes the connection."""
    host, _, port = broker.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as plain:
        try:
            with context.wrap_socket(plain, server_hostname=host) as client:
                assert client.recv(1) == b""
        except (ssl.SSLError, ConnectionError):
            pass


def test_client_without_a_certificate_is_logged(
    mutual_broker: BrokerProcess, ca_file: Path
) -> None:
    for _ in range(3):
        handshake(mutual_broker, ssl.create_default_context(cafile=str(ca_file)))
    assert_one_line(
        mutual_broker, "the client did not send a certificate", "127.0.0.1", "ssl_certfile"
    )


def test_client_certificate_of_an_unknown_ca_is_logged(
    mutual_broker: BrokerProcess, ca_file: Path, tmp_path: Path
) -> None:
    context = ssl.create_default_context(cafile=str(ca_file))
    context.load_cert_chain(*Authority("Another CA").client("mallory").files(tmp_path, "mallory"))
    handshake(mutual_broker, context)
    assert_one_line(
        mutual_broker, "signed by an unknown CA", "CN=mallory", "ssl.truststore.location"
    )


def test_expired_client_certificate_is_logged(
    mutual_broker: BrokerProcess, authority: Authority, ca_file: Path, tmp_path: Path
) -> None:
    context = ssl.create_default_context(cafile=str(ca_file))
    late = authority.client("late", begins_in=-3 * DAY, ends_in=-DAY)
    context.load_cert_chain(*late.files(tmp_path, "late"))
    handshake(mutual_broker, context)
    assert_one_line(mutual_broker, "has expired: renew it", "CN=late,O=Plog\\, Inc")


def test_expired_broker_certificate_is_logged(
    start_broker: BrokerFactory, authority: Authority, tmp_path: Path
) -> None:
    old = authority.server(begins_in=-3 * DAY, ends_in=-DAY).keystore(tmp_path / "old.pem")
    broker = start_broker({"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(old)})
    assert_one_line(broker, "expired on", str(old), "ssl.keystore.location")


def send_raw(server: str, data: bytes) -> None:
    """Send bytes and wait until the broker closes the connection."""
    host, _, port = server.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as client:
        client.sendall(data)
        try:
            while client.recv(65536):
                pass
        except ConnectionResetError:
            pass


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (API_VERSIONS, ("sent an unencrypted Kafka request", "SSL", "security.protocol=SSL")),
        (b"GET / HTTP/1.1\r\n\r\n", ("sent an HTTP request", "plog.http.port")),
        (b"ruok", ("sent a ZooKeeper command", "2181")),
        (b"\x00\x01", ("unencrypted", "security.protocol=SSL")),
        (b"\xff\xfe\xfd\xfc", ("does not use TLS", "ff fe fd fc")),
    ],
)
def test_client_without_tls_on_a_tls_listener_is_logged(
    tls_broker: BrokerProcess, data: bytes, words: tuple[str, ...]
) -> None:
    send_raw(tls_broker.bootstrap_servers, data)
    send_raw(tls_broker.bootstrap_servers, data)
    assert_one_line(tls_broker, *words)


def test_tls_client_on_a_plain_listener_is_logged(own_broker: BrokerProcess) -> None:
    handshake(own_broker, ssl.create_default_context())
    assert_one_line(
        own_broker, "sent a TLS handshake", "listener PLAINTEXT", "security.protocol=PLAINTEXT"
    )


OLD_REQUESTS = {
    "Produce version 1 is not supported (only 3 to 13)": "0000 0001 00000007",
    "Fetch version 2 is not supported (only 4 to 18)": "0001 0002 00000007",
}


@pytest.mark.parametrize("line", OLD_REQUESTS)
def test_unsupported_request_version_is_logged(own_broker: BrokerProcess, line: str) -> None:
    body = bytes.fromhex(OLD_REQUESTS[line]) + b"\x00\x06kafka8" + bytes(20)
    send_raw(own_broker.bootstrap_servers, len(body).to_bytes(4, "big") + body)
    assert_one_line(own_broker, line, "client 'kafka8' (software unknown)", "2.1 or newer")


def test_old_kafka_python_client_is_logged(own_broker: BrokerProcess, topic: str) -> None:
    """A real client that is configured for an old broker version."""
    kafka = pytest.importorskip("kafka")
    producer = kafka.KafkaProducer(
        bootstrap_servers=own_broker.bootstrap_servers,
        api_version=(0, 9),
        client_id="old-one",
        enable_idempotence=False,
        acks=1,
        retries=0,
        request_timeout_ms=2000,
        delivery_timeout_ms=3000,
    )
    future = producer.send(topic, b"x")
    with pytest.raises(kafka.errors.KafkaError):
        future.get(60)
    producer.close(0)
    assert_one_line(own_broker, "'old-one'", "is not supported", "api_version")


def test_advertised_name_that_cannot_be_resolved_is_logged(start_broker: BrokerFactory) -> None:
    broker = start_broker({"advertised.listeners": "PLAINTEXT://broker.invalid:9092"})
    assert_one_line(
        broker, "cannot resolve broker.invalid", "advertised.listeners", "PLAINTEXT://broker.inv"
    )


def test_kafka_client_on_the_http_port_is_logged(start_broker: BrokerFactory) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    broker = start_broker({"plog.http.port": str(port)})
    send_raw(f"127.0.0.1:{port}", API_VERSIONS)
    assert_one_line(broker, "that sent a Kafka request", "plog.http.port", "advertised.listeners")
