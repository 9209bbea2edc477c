"""The check of ``advertised.listeners``: when it warns about an address that a client received."""

from __future__ import annotations

import socket

import pytest

from plogd.config import load_config
from plogd.connection_context import ConnectionContext
from plogd.net.advertised_listeners_check import WAIT_MS, AdvertisedCheck
from tests.helpers.net_parts import LogLines, ScriptedDispatch, make_connections
from tests.helpers.sim.sim_ports import SimPorts

ELSEWHERE, HERE = "192.0.2.7", "192.0.2.1"


class Harness:
    """A check over simulated time; names ending in ``.known`` can be resolved."""

    def __init__(self, advertised: str) -> None:
        self.ports = SimPorts()
        self.shared = make_connections(ScriptedDispatch(), self.ports)
        config = load_config([], [f"advertised.listeners=PLAINTEXT://{advertised}"]).config
        self.advertised = config.advertised_by_name()["PLAINTEXT"]
        self.check = AdvertisedCheck(
            config,
            self.shared,
            resolve=lambda host: self.ports.jobs.submit("dns", lambda: self.resolve(host)),
        )
        self.check.start()
        self.ports.settle()

    def resolve(self, host: str) -> None:
        if not host.endswith((".known", "container")):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    def connection(self, client: str = ELSEWHERE) -> ConnectionContext:
        return ConnectionContext(
            listener_name="PLAINTEXT",
            security_protocol="PLAINTEXT",
            client_address=(client, 5000),
            local_address=(HERE, 9092),
        )

    def send_address(self, client: str = ELSEWHERE) -> ConnectionContext:
        connection = self.connection(client)
        self.check.record_advertised(connection, self.advertised.host, self.advertised.port)
        return connection


@pytest.mark.parametrize(
    ("advertised", "why"),
    [
        ("localhost:9092", "refers to that host itself"),
        ("127.0.0.1:9092", "refers to that host itself"),
        ("[::1]:9092", "refers to that host itself"),
        ("container:9092", "like a container name"),
    ],
)
def test_client_that_does_not_return_is_logged_once(
    advertised: str, why: str, log_lines: LogLines
) -> None:
    harness = Harness(advertised)
    for _ in range(3):
        harness.send_address()
        harness.ports.advance(WAIT_MS)
    [line] = log_lines
    assert line.startswith(f"{ELSEWHERE}: received the advertised address {advertised}")
    assert why in line
    assert "set advertised.listeners" in line


@pytest.mark.parametrize("advertised", ["localhost:9092", "container:9092"])
def test_client_that_sends_requests_is_not_logged(advertised: str, log_lines: LogLines) -> None:
    """Port forwarding may make an address reachable that looks wrong."""
    harness = Harness(advertised)
    harness.send_address()
    harness.check.record_work(harness.connection())
    harness.send_address()
    harness.ports.advance(2 * WAIT_MS)
    assert log_lines == []


@pytest.mark.parametrize("client", [HERE, "127.0.0.1", "::1"])
@pytest.mark.parametrize("advertised", ["localhost:9092", "container:9092"])
def test_client_on_the_same_host_is_not_logged(
    client: str, advertised: str, log_lines: LogLines
) -> None:
    harness = Harness(advertised)
    harness.send_address(client)
    harness.ports.advance(WAIT_MS)
    assert log_lines == []


@pytest.mark.parametrize("advertised", ["broker.known:9092", "192.0.2.1:9092"])
def test_usual_advertised_address_is_not_logged(advertised: str, log_lines: LogLines) -> None:
    harness = Harness(advertised)
    harness.send_address()
    harness.ports.advance(WAIT_MS)
    assert log_lines == []


def test_unresolvable_advertised_name_is_logged_at_startup(log_lines: LogLines) -> None:
    harness = Harness("broker.nowhere:9092")
    [line] = log_lines
    assert "cannot resolve broker.nowhere (Name or service not known)" in line
    assert "PLAINTEXT://broker.nowhere:9092" in line
    harness.send_address("127.0.0.1")
    harness.ports.advance(WAIT_MS)
    assert "cannot resolve broker.nowhere" in log_lines[1]
    assert log_lines[1].startswith("127.0.0.1: received")


def test_check_remembers_a_limited_number_of_clients() -> None:
    harness = Harness("localhost:9092")
    for number in range(3000):
        harness.send_address(f"192.0.{number % 200}.{number // 200}")
        harness.check.record_work(harness.connection(f"198.51.{number % 200}.{number // 200}"))
    assert len(harness.check._waiting) <= 1000
    assert len(harness.check._working) <= 1000
