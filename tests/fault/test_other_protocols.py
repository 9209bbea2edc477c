"""F43, F49: clients of other protocols, over IPv4 and IPv6, and unresolvable advertised names.

On a real process, each greeting closes its connection with one log line that names the protocol,
while Kafka clients are served. test_readable_failures.py tests more cases, with TLS in detail.
"""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from plog.client.simple import SimpleClient
from plogd.testing.plugin import BrokerFactory
from tests.fault.peers import Peer, address_of, ping_frame
from tests.helpers.certificates import Authority
from tests.helpers.eventually import eventually
from tests.helpers.log.broker_log import assert_one_line

GREETINGS = {
    "ssh": (b"SSH-2.0-OpenSSH_9.2p1\r\n", "an SSH greeting"),
    "http1": (b"POST /topics HTTP/1.1\r\nHost: here\r\n\r\n", "an HTTP request"),
    "http2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "an HTTP request"),
    "tls": (bytes.fromhex("16030100c8010000c40303") + bytes(200), "a TLS handshake"),
    "redis": (b"*1\r\n$4\r\nPING\r\n", "text: it starts with '*1"),
    "redis inline": (b"PING\r\n", "text: it starts with 'PING'"),
    "smtp": (b"EHLO here\r\n", "text: it starts with 'EHLO'"),
    "postgres": (bytes.fromhex("0000000804d2162f"), "a PostgreSQL request"),
    "amqp": (b"AMQP\0\0\x09\x01", "an AMQP header"),
    "zookeeper": (b"ruok", "a ZooKeeper command"),
    "proxy": (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", "a PROXY protocol header"),
}


def hosts() -> list[str]:
    """Return the loopback addresses of this machine."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return ["127.0.0.1", "[::1]"]
    except OSError:
        return ["127.0.0.1"]


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_other_protocols_are_named_and_disconnected(start_broker: BrokerFactory, host: str) -> None:
    if host not in hosts():
        pytest.skip("NOT RUN: this machine has no IPv6")
    broker = start_broker({"listeners": f"PLAINTEXT://{host}:0"})
    with Peer(broker.bootstrap_servers) as kafka:
        for data, _ in GREETINGS.values():
            with Peer(broker.bootstrap_servers) as peer:
                peer.send(data)
                assert peer.read_until_closed() == b""
            kafka.ping()
    broker.stop()
    lines = [line for line in broker.log_text().splitlines() if "closed a connection" in line]
    # One line per kind, address and minute.
    kinds = dict.fromkeys(words for _, words in GREETINGS.values())
    unnamed = [words for words in kinds if not any(words in line for line in lines)]
    assert unnamed == ["text: it starts with 'PING'", "text: it starts with 'EHLO'"]
    assert all(host.strip("[]") in line for line in lines)


@pytest.mark.parametrize("name", [name for name in GREETINGS if name != "tls"])
def test_other_protocols_are_disconnected_by_a_tls_listener(
    start_broker: BrokerFactory, authority: Authority, tmp_path: Path, name: str
) -> None:
    keystore = authority.server().keystore(tmp_path / "broker.pem")
    broker = start_broker(
        {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(keystore)}
    )
    with Peer(broker.bootstrap_servers) as peer:
        peer.send(GREETINGS[name][0])
        peer.read_until_closed()
    assert_one_line(broker, "closed a connection to the TLS listener SSL", "127.0.0.1")


def test_localhost_is_served_on_all_its_addresses(start_broker: BrokerFactory) -> None:
    broker = start_broker({"listeners": "PLAINTEXT://localhost:0"})
    port = broker.bootstrap_servers.rpartition(":")[2]
    named = {entry[4][0] for entry in socket.getaddrinfo("localhost", None)}
    for host in hosts():
        if host.strip("[]") in named:
            with SimpleClient(host.strip("[]"), int(port)) as client:
                assert client.metadata([]).brokers[0].host == host.strip("[]")


def test_unresolvable_advertised_name_is_logged_and_clients_are_served(
    start_broker: BrokerFactory,
) -> None:
    """Further clients from the same address cause no further line."""
    broker = start_broker({"advertised.listeners": "PLAINTEXT://broker.invalid:9092"})
    for _ in range(3):
        with Peer(broker.bootstrap_servers) as peer:
            peer.send(ping_frame())
            peer.response()
    with SimpleClient(*address_of(broker.bootstrap_servers)) as client:
        assert client.metadata([]).brokers[0].host == "broker.invalid"
        client.create_topic("served", 1)
    eventually(lambda: "cannot resolve" in broker.log_text(), "the log line about the name")
    assert_one_line(broker, "cannot resolve broker.invalid", "set advertised.listeners")
