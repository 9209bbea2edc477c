"""A broker whose listening sockets are opened by systemd: restarts that no client notices."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from tests.helpers.programs.kcat import Kcat
from tests.helpers.socket_unit import SocketUnit, receive_response, send_request

PLOGD = [sys.executable, "-m", "plogd"]
# The `twistd` script, which Debian calls twistd3.
TWISTD = [sys.executable, "-c", "from twisted.scripts.twistd import run; run()"]
TWISTD_PLOG = [*TWISTD, "-n", "--pidfile=", "plog"]


@pytest.mark.parametrize("command", [PLOGD, TWISTD_PLOG], ids=["plog-broker", "twistd"])
def test_client_that_connects_while_no_broker_runs_is_served(
    tmp_path: Path, command: list[str]
) -> None:
    with SocketUnit(tmp_path) as unit:
        settings = {"listeners": f"PLAINTEXT://{unit.address}"}
        with unit.run(command, settings) as broker:
            assert broker.wait_until_ready() == [unit.address]
            Kcat(unit.address).produce("kept", b"x\n")
            broker.stop()
        with unit.connect() as waiting:
            send_request(waiting)
            with unit.run(command, settings) as broker:
                receive_response(waiting)
                assert Kcat(unit.address).consume("kept") == b"x\n"
                broker.stop()


def test_client_that_connects_during_a_stop_is_served_by_the_next_broker(tmp_path: Path) -> None:
    with SocketUnit(tmp_path) as unit:
        # A broker that closed its HTTP port first would accept the client meanwhile.
        with socket.create_server(("127.0.0.1", 0)) as free:
            http_port = free.getsockname()[1]
        settings = {
            "listeners": f"PLAINTEXT://{unit.address}",
            "plog.http.port": str(http_port),
        }
        with unit.run(PLOGD, settings) as broker:
            broker.wait_until_ready()
            broker.freeze_during_stop()
            with unit.connect() as client:
                send_request(client)
                broker.thaw()
                assert broker.wait() == 0
                with unit.run(PLOGD, settings) as following:
                    receive_response(client)
                    following.stop()


def test_no_connection_is_refused_while_brokers_restart(tmp_path: Path) -> None:
    clients: list[socket.socket] = []
    with SocketUnit(tmp_path) as unit:
        settings = {"listeners": f"PLAINTEXT://{unit.address}"}
        for _ in range(3):
            with unit.run(PLOGD, settings) as broker:
                broker.wait_until_ready()
                broker.process.terminate()
                while broker.process.poll() is None:
                    clients.append(unit.connect())  # Fails if it is refused.
                    if len(clients) >= 1000:
                        broker.wait()
        with unit.run(PLOGD, settings) as broker:
            with unit.connect() as last:
                send_request(last)
                receive_response(last)
            broker.stop()
    for client in clients:
        client.close()


def test_listener_without_a_socket_is_opened_as_usual(tmp_path: Path) -> None:
    with SocketUnit(tmp_path) as unit:
        settings = {
            "listeners": f"PLAINTEXT://{unit.address},OTHER://127.0.0.1:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
        }
        with unit.run(PLOGD, settings) as broker:
            first, other = broker.wait_until_ready()
            assert first == unit.address
            Kcat(other).produce("elsewhere", b"x\n")
            broker.stop()


def test_tls_listener_uses_its_socket(tmp_path: Path, tls_settings: dict[str, str]) -> None:
    confluent = pytest.importorskip("tests.helpers.programs.confluent")
    with SocketUnit(tmp_path, ["SSL"]) as unit:
        settings = {**tls_settings, "listeners": f"SSL://{unit.address}"}
        ca = {"security.protocol": "SSL", "enable.ssl.certificate.verification": "false"}
        with unit.run(PLOGD, settings) as broker:
            assert broker.wait_until_ready() == [unit.address]
            assert confluent.produce(unit.address, "tls", [{"value": b"x"}], ca) == [None]
            broker.stop()


def test_socket_on_another_port_ends_the_broker_with_exit_code_2(tmp_path: Path) -> None:
    with SocketUnit(tmp_path) as unit:
        with unit.run(PLOGD, {"listeners": "PLAINTEXT://127.0.0.1:9092"}) as broker:
            assert broker.wait() == 2
        assert (
            "cannot start: cannot use the socket PLAINTEXT from systemd: it listens on"
            f" {unit.address}, but listeners contains PLAINTEXT://127.0.0.1:9092; change"
            " ListenStream= or listeners\n"
        ) in broker.log_text()


def test_socket_of_an_unknown_name_is_reported_and_the_broker_starts(tmp_path: Path) -> None:
    with SocketUnit(tmp_path, ["plog-broker.socket"]) as unit:
        with unit.run(PLOGD, {"listeners": "PLAINTEXT://127.0.0.1:0"}) as broker:
            [address] = broker.wait_until_ready()
            Kcat(address).produce("served", b"x\n")
            broker.stop()
        assert "closed the socket plog-broker.socket from systemd" in broker.log_text()


def test_broker_with_a_socket_reads_signals_while_no_client_connects(tmp_path: Path) -> None:
    """A blocking socket would stop the reactor in accept() after the first client."""
    with (
        SocketUnit(tmp_path) as unit,
        unit.run(PLOGD, {"listeners": f"PLAINTEXT://{unit.address}"}) as broker,
        unit.connect() as client,
    ):
        send_request(client)
        receive_response(client)
        broker.stop()
