"""TLS with other clients, all of which verify the broker.

The certificates are created for each run; other files test plaintext listeners.
"""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from plogd.testing.broker_process import BrokerProcess
from plogd.testing.plugin import BrokerFactory
from tests.helpers.certificates import Authority
from tests.helpers.log.broker_log import assert_one_line
from tests.helpers.programs.kafka_tools import KafkaTools
from tests.helpers.recording_proxy import RecordingProxy

MEGABYTE = 1_000_000
MARKER = b"this marker must not be readable on the wire"


# -- librdkafka ----------------------------------------------------------------------------------


def librdkafka_settings(ca_file: Path, **more: Any) -> dict[str, Any]:
    return {
        "security.protocol": "SSL",
        "ssl.ca.location": str(ca_file),
        "ssl.endpoint.identification.algorithm": "https",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def by_librdkafka(server: str, topic: str, values: list[bytes], settings: dict[str, Any]) -> None:
    """Produce `values` with librdkafka and read them back."""
    confluent = pytest.importorskip("tests.helpers.programs.confluent")
    messages = [{"value": value} for value in values]
    large = {"message.max.bytes": 30 * MEGABYTE}
    assert set(confluent.produce(server, topic, messages, {**settings, **large})) == {None}
    own = {name.replace(".", "_"): value for name, value in settings.items()}
    assert [m.value() for m in confluent.read(server, topic, **own)] == values


def test_librdkafka_verifies_the_broker(
    tls_broker: BrokerProcess, topic: str, ca_file: Path
) -> None:
    values = [b"page view %d" % i * (i % 50) for i in range(2000)]
    by_librdkafka(tls_broker.bootstrap_servers, topic, values, librdkafka_settings(ca_file))


def test_messages_of_ten_megabytes_are_read_back(
    start_broker: BrokerFactory, tls_settings: dict[str, str], topic: str, ca_file: Path
) -> None:
    large = {"message.max.bytes": str(20 * MEGABYTE)}
    broker = start_broker({**tls_settings, **large})
    values = [bytes([i]) * (size * MEGABYTE) for i, size in enumerate([1, 10, 3, 10, 1])]
    settings = librdkafka_settings(ca_file, fetch_message_max_bytes=12 * MEGABYTE)
    by_librdkafka(broker.bootstrap_servers, topic, values, settings)


def test_librdkafka_presents_its_certificate(
    mutual_broker: BrokerProcess, authority: Authority, topic: str, ca_file: Path, tmp_path: Path
) -> None:
    certificate, key = authority.client("analyst").files(tmp_path, "analyst")
    settings = librdkafka_settings(
        ca_file, ssl_certificate_location=str(certificate), ssl_key_location=str(key)
    )
    by_librdkafka(mutual_broker.bootstrap_servers, topic, [b"x"], settings)


def error_of_librdkafka(server: str, settings: dict[str, Any]) -> str:
    """Return librdkafka's error for the first connection that fails."""
    confluent = pytest.importorskip("tests.helpers.programs.confluent")
    errors: list[str] = []
    client = confluent.confluent_kafka.Producer(
        {
            "bootstrap.servers": server,
            "error_cb": lambda error: errors.append(str(error)),
            **settings,
        }
    )
    while not errors:
        client.poll(0.1)
    return errors[0]


def test_librdkafka_refuses_a_wrong_ca(tls_broker: BrokerProcess, tmp_path: Path) -> None:
    other = Authority("Another CA").truststore(tmp_path / "other.pem")
    error = error_of_librdkafka(tls_broker.bootstrap_servers, librdkafka_settings(other))
    assert "certificate verify failed" in error
    assert_one_line(tls_broker, "does not trust this broker's certificate", "ssl.ca.location")


def test_librdkafka_refuses_a_wrong_name(
    start_broker: BrokerFactory, authority: Authority, tmp_path: Path, ca_file: Path
) -> None:
    keystore = authority.server("elsewhere.test").keystore(tmp_path / "elsewhere.pem")
    broker = start_broker(
        {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(keystore)}
    )
    error = error_of_librdkafka(broker.bootstrap_servers, librdkafka_settings(ca_file))
    assert "certificate verify failed" in error


# -- kafka-python --------------------------------------------------------------------------------


def by_kafka_python(server: str, topic: str, **settings: Any) -> list[bytes]:
    """Produce three messages with kafka-python and read them back."""
    kafka = pytest.importorskip("kafka")
    common = {"bootstrap_servers": server, "security_protocol": "SSL", **settings}
    producer = kafka.KafkaProducer(**common)
    for i in range(3):
        producer.send(topic, b"kafka-python %d" % i).get(60)
    producer.close()
    consumer = kafka.KafkaConsumer(**common, consumer_timeout_ms=60_000)
    consumer.assign([kafka.TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    try:
        return [next(consumer).value for _ in range(3)]
    finally:
        consumer.close()


def test_kafka_python_verifies_the_broker(
    tls_broker: BrokerProcess, topic: str, ca_file: Path
) -> None:
    values = by_kafka_python(
        tls_broker.bootstrap_servers, topic, ssl_cafile=str(ca_file), ssl_check_hostname=True
    )
    assert values == [b"kafka-python %d" % i for i in range(3)]


def test_kafka_python_presents_its_certificate(
    mutual_broker: BrokerProcess, authority: Authority, topic: str, ca_file: Path, tmp_path: Path
) -> None:
    certificate, key = authority.client().files(tmp_path, "client")
    values = by_kafka_python(
        mutual_broker.bootstrap_servers,
        topic,
        ssl_cafile=str(ca_file),
        ssl_check_hostname=True,
        ssl_certfile=str(certificate),
        ssl_keyfile=str(key),
    )
    assert len(values) == 3


def test_kafka_python_refuses_a_wrong_ca(tls_broker: BrokerProcess, tmp_path: Path) -> None:
    kafka = pytest.importorskip("kafka")
    other = Authority("Another CA").truststore(tmp_path / "other.pem")
    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaProducer(
            bootstrap_servers=tls_broker.bootstrap_servers,
            security_protocol="SSL",
            ssl_cafile=str(other),
            bootstrap_timeout_ms=5000,
            max_block_ms=5000,
        ).partitions_for("any")


# -- Java ----------------------------------------------------------------------------------------


def java_settings(path: Path, ca_file: Path, keystore: Path | None = None) -> Path:
    """Write a client's properties file; Java verifies the host name by default."""
    lines = [
        "security.protocol=SSL",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={ca_file}",
    ]
    if keystore is not None:
        lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={keystore}"]
    path.write_text("\n".join(lines) + "\n")
    return path


def by_java(tools: KafkaTools, server: str, topic: str, settings: Path) -> None:
    """Produce two lines with Kafka's console tools and read them back."""
    common = ("--bootstrap-server", server, "--command-config", str(settings))
    tools.run("ConsoleProducer", *common, "--topic", topic, stdin="eins\nzwei\n")
    read = tools.run(
        "ConsoleConsumer", *common, "--topic", topic, "--partition", "0", "--offset", "earliest",
        "--max-messages", "2", "--timeout-ms", "60000",
    )  # fmt: skip
    assert read.splitlines() == ["eins", "zwei"]


def test_java_verifies_the_broker(
    kafka_tools: KafkaTools, tls_broker: BrokerProcess, topic: str, ca_file: Path, tmp_path: Path
) -> None:
    settings = java_settings(tmp_path / "client.properties", ca_file)
    by_java(kafka_tools, tls_broker.bootstrap_servers, topic, settings)


def test_java_presents_its_certificate(
    kafka_tools: KafkaTools,
    mutual_broker: BrokerProcess,
    authority: Authority,
    topic: str,
    ca_file: Path,
    tmp_path: Path,
) -> None:
    keystore = authority.client("java").keystore(tmp_path / "java.pem")
    settings = java_settings(tmp_path / "client.properties", ca_file, keystore)
    by_java(kafka_tools, mutual_broker.bootstrap_servers, topic, settings)


def test_java_refuses_a_wrong_ca(
    kafka_tools: KafkaTools, tls_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    other = Authority("Another CA").truststore(tmp_path / "other.pem")
    settings = java_settings(tmp_path / "client.properties", other)
    output = kafka_tools.attempt(
        "TopicCommand", "--bootstrap-server", tls_broker.bootstrap_servers,
        "--command-config", settings, "--list",
    )  # fmt: skip
    assert output.code != 0
    assert "SSL" in output.stdout + output.stderr
    assert_one_line(tls_broker, "does not accept this broker's certificate")


# -- bytes on the wire ---------------------------------------------------------------------------


def test_messages_are_encrypted_on_the_wire(
    start_broker: BrokerFactory, tls_settings: dict[str, str], topic: str, ca_file: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    advertised = {"advertised.listeners": f"SSL://127.0.0.1:{port}"}
    broker = start_broker({**tls_settings, **advertised})
    # The broker advertises the proxy's address, so all bytes of clients pass through it.
    with RecordingProxy(broker.bootstrap_servers, port) as proxy:
        values = [MARKER * 2000, MARKER, MARKER * 20_000]
        settings = librdkafka_settings(ca_file)
        by_librdkafka(proxy.bootstrap_servers, topic, values, settings)
    nbytes = sum(map(len, values))
    assert len(proxy.to_broker) > nbytes
    assert len(proxy.to_client) > nbytes
    for passed in (proxy.to_broker, proxy.to_client):
        assert MARKER not in passed
        assert topic.encode() not in passed


def test_messages_are_visible_on_the_wire_without_tls(
    own_broker: BrokerProcess, start_broker: BrokerFactory, topic: str
) -> None:
    """The test above can fail: without TLS, the proxy sees the marker."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    broker = start_broker({"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"})
    with RecordingProxy(broker.bootstrap_servers, port) as proxy:
        by_librdkafka(proxy.bootstrap_servers, topic, [MARKER], {})
    assert MARKER in proxy.to_broker
    assert MARKER in proxy.to_client


# -- listeners -----------------------------------------------------------------------------------


def test_plaintext_and_tls_listeners_serve_the_same_topics(
    start_broker: BrokerFactory, authority: Authority, topic: str, ca_file: Path, tmp_path: Path
) -> None:
    keystore = authority.server().keystore(tmp_path / "outside.pem", password="geheim")
    broker = start_broker(
        {
            "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SSL",
            "inter.broker.listener.name": "INSIDE",
            "listener.name.outside.ssl.keystore.location": str(keystore),
            "listener.name.outside.ssl.key.password": "geheim",
        }
    )
    confluent = pytest.importorskip("tests.helpers.programs.confluent")
    inside, outside = broker.addresses
    by_librdkafka(outside, topic, [b"from outside"], librdkafka_settings(ca_file))
    assert [m.value() for m in confluent.read(inside, topic)] == [b"from outside"]


# -- replaced certificates -----------------------------------------------------------------------


def connect_and_get_certificate(server: str, ca_file: Path) -> tuple[ssl.SSLSocket, bytes]:
    """Return a new connection and the certificate that the broker presented."""
    host, _, port = server.rpartition(":")
    context = ssl.create_default_context(cafile=str(ca_file))
    client = context.wrap_socket(socket.create_connection((host, int(port))), server_hostname=host)
    certificate = client.getpeercert(binary_form=True)
    assert certificate is not None
    return client, certificate


def test_reload_replaces_the_certificate_for_new_connections(
    tls_broker: BrokerProcess, authority: Authority, tmp_path: Path, ca_file: Path
) -> None:
    keystore = tmp_path / "broker.pem"
    old_connection, first = connect_and_get_certificate(tls_broker.bootstrap_servers, ca_file)
    authority.server().keystore(keystore)
    tls_broker.reload()
    with (
        old_connection,
        connect_and_get_certificate(tls_broker.bootstrap_servers, ca_file)[0] as new,
    ):
        second = new.getpeercert(binary_form=True)
        assert second != first
        old_connection.sendall(API_VERSIONS)
        assert len(old_connection.recv(4)) == 4, "the reload broke the old connection"
    keystore.write_text("broken")
    tls_broker.reload()
    connection, third = connect_and_get_certificate(tls_broker.bootstrap_servers, ca_file)
    connection.close()
    assert third == second
    assert_one_line(tls_broker, "cannot reload the certificates", str(keystore))


API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000001 ffff")
