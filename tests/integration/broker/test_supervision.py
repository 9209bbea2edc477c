"""A real broker under a service manager that the test provides: its messages and exit codes.

tests/unit/test_supervision.py tests the texts; packaging/test-deb runs the units under systemd.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from plog.client.simple import SimpleClient
from plog.records.codec import Record
from tests.helpers.supervised_broker import SupervisedBroker

BATCHES = 20
LISTEN = {"listeners": "PLAINTEXT://127.0.0.1:0", "plog.http.port": "0"}

HELD_RECOVERY = """
import os, sys
from plogd.__main__ import main
from plogd.log.recovery.load_progress import LoadWork

gate = os.open(os.environ["GATE"], os.O_RDONLY)
scanned_to = LoadWork.scanned_to

def held(self, nbytes):
    os.read(gate, 1)
    scanned_to(self, nbytes)

LoadWork.scanned_to = held
sys.exit(main())
"""
"""A broker whose recovery waits for a byte from the pipe $GATE before each batch."""

BLOCKED_REACTOR = """
import os, signal, sys
from plogd.__main__ import main

def block(number, frame):
    with open(os.environ["GATE"]) as gate:  # Opens once the test has opened the other end.
        gate.read()

signal.signal(signal.SIGUSR1, block)
sys.exit(main())
"""
"""A broker whose reactor waits, on SIGUSR1, until the pipe $GATE is closed."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return the data directory of a broker that was killed, with one topic."""
    path = tmp_path / "data"
    with SupervisedBroker(tmp_path, {**LISTEN, "log.dirs": str(path)}) as broker:
        with _client(broker.address()) as client:
            client.create_topic("clicks")
            for number in range(BATCHES):
                client.produce("clicks", 0, [Record(value=b"%d" % number * 1000)])
        broker.process.kill()
    return path


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


def _client(address: str) -> SimpleClient:
    host, _, port = address.rpartition(":")
    return SimpleClient(host, int(port))


def _assert_all_present(folder: Path, data: Path) -> None:
    with SupervisedBroker(folder, {**LISTEN, "log.dirs": str(data)}) as broker:
        with _client(broker.address()) as client:
            values = [record.value for record in client.fetch("clicks", 0, 0)]
        assert values == [b"%d" % number * 1000 for number in range(BATCHES)]
        broker.stop()


def _held(folder: Path, data: Path, gate: Path) -> SupervisedBroker:
    return SupervisedBroker(
        folder, {**LISTEN, "log.dirs": str(data)}, program=HELD_RECOVERY, GATE=str(gate)
    )


# -- recovery -------------------------------------------------------------------------------------


def test_recovery_reports_progress_inside_a_log_and_extends_its_timeout(
    tmp_path: Path, data: Path, gate: Path
) -> None:
    with _held(tmp_path, data, gate) as broker, gate.open("wb", buffering=0) as opener:
        seen = set()
        while len(seen) < 3:
            opener.write(b"x")
            seen.add(broker.wait_for("STATUS", "recovering ", " logs, "))
            assert int(broker.messages[-1]["EXTEND_TIMEOUT_USEC"]) > 0
        assert not any("READY" in message for message in broker.messages)
        opener.write(b"x" * 1000)
        broker.address()
        broker.stop()


def test_stop_during_recovery_ends_it_and_the_next_start_recovers(
    tmp_path: Path, data: Path, gate: Path
) -> None:
    with _held(tmp_path, data, gate) as broker, gate.open("wb", buffering=0) as opener:
        opener.write(b"x")
        broker.wait_for("STATUS", "recovering ")
        broker.process.send_signal(signal.SIGTERM)
        broker.wait_for("STOPPING", "1")
        opener.write(b"x" * 2)  # One batch for each of the two threads that recover logs.
        assert broker.exit_code() == 0, broker.log_text()
    assert "Traceback" not in broker.log_text()
    assert not (data / ".kafka_cleanshutdown").exists()
    _assert_all_present(tmp_path, data)


def test_kill_during_recovery_is_harmless(tmp_path: Path, data: Path, gate: Path) -> None:
    with _held(tmp_path, data, gate) as broker, gate.open("wb", buffering=0) as opener:
        opener.write(b"x" * (BATCHES // 2))
        broker.wait_for("STATUS", "recovering ")
        broker.process.kill()
        assert broker.exit_code() == -signal.SIGKILL
    _assert_all_present(tmp_path, data)


# -- watchdog and status --------------------------------------------------------------------------


def test_watchdog_is_fed_until_the_reactor_blocks(tmp_path: Path, gate: Path) -> None:
    with SupervisedBroker(
        tmp_path,
        {**LISTEN, "log.dirs": str(tmp_path / "data")},
        program=BLOCKED_REACTOR,
        WATCHDOG_USEC="200000",
        GATE=str(gate),
    ) as broker:
        broker.address()
        for _ in range(3):
            broker.wait_for("WATCHDOG", "1")
        broker.process.send_signal(signal.SIGUSR1)
        with gate.open("w"):  # Opens once the reactor is blocked.
            broker.receive_all()
            assert broker.receive(timeout_s=1.0) is None
        broker.wait_for("WATCHDOG", "1")
        broker.stop()


def test_status_is_updated_while_the_broker_serves(tmp_path: Path) -> None:
    settings = {**LISTEN, "log.dirs": str(tmp_path / "data"), "plog.status.interval.ms": "1000"}
    with SupervisedBroker(tmp_path, settings) as broker:
        with _client(broker.address()) as client:
            client.create_topic("clicks", 3)
            broker.wait_for("STATUS", "; 3 partitions, 1 connection; in ")
        broker.wait_for("STATUS", "; 3 partitions, 0 connections; in 0 B/s, out 0 B/s")
        broker.stop()


# -- failures of a start --------------------------------------------------------------------------


def _assert_cannot_start(broker: SupervisedBroker, problem: str) -> None:
    assert broker.exit_code() == 1
    assert {"STATUS": f"cannot start: {problem}"} in broker.messages
    assert "STATUS" not in broker.messages[-1]
    lines = [line for line in broker.log_text().splitlines() if " CRITICAL " in line]
    assert [line.partition(" CRITICAL ")[2] for line in lines] == [
        f"plogd.service: cannot start: {problem}"
    ]


@pytest.mark.parametrize("setting", ["listeners", "plog.http.port"])
def test_address_in_use_is_the_status_with_its_remedy(tmp_path: Path, setting: str) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        value = f"PLAINTEXT://127.0.0.1:{port}" if setting == "listeners" else str(port)
        settings = {**LISTEN, "log.dirs": str(tmp_path / "data"), setting: value}
        with SupervisedBroker(tmp_path, settings) as broker:
            _assert_cannot_start(
                broker,
                f"cannot listen on 127.0.0.1:{port}: address already in use by another process; "
                f"stop it (ss -ltnp shows it) or change {setting}",
            )


def test_directory_of_another_broker_is_the_status_with_both_ids(
    tmp_path: Path, data: Path
) -> None:
    with SupervisedBroker(tmp_path, {**LISTEN, "log.dirs": str(data), "node.id": "2"}) as broker:
        _assert_cannot_start(
            broker,
            f"{data} belongs to broker 1, but node.id is 2; set node.id=1 to continue using its "
            "data, or change log.dirs",
        )


def test_directory_in_use_is_the_status(tmp_path: Path) -> None:
    settings = {**LISTEN, "log.dirs": str(tmp_path / "data")}
    (tmp_path / "second").mkdir()
    with SupervisedBroker(tmp_path, settings) as first:
        first.address()
        with SupervisedBroker(tmp_path / "second", settings) as second:
            _assert_cannot_start(
                second,
                f"cannot lock {tmp_path}/data: in use by another broker; stop that broker, or give "
                "each broker its own log.dirs",
            )


def test_wrong_setting_is_the_status_and_exit_code_is_2(tmp_path: Path) -> None:
    with SupervisedBroker(tmp_path, {"num.partitions": "0"}) as broker:
        assert broker.exit_code() == 2
    assert "cannot use the settings: -o num.partitions=0" in broker.messages[0]["STATUS"]


# -- the environment ------------------------------------------------------------------------------


def test_data_is_stored_in_the_first_state_directory(tmp_path: Path) -> None:
    directories = f"{tmp_path}/state:{tmp_path}/other"
    with SupervisedBroker(tmp_path, LISTEN, STATE_DIRECTORY=directories) as broker:
        broker.address()
        broker.stop()
    assert (tmp_path / "state" / "meta.properties").exists()
    assert not (tmp_path / "other").exists()
    assert (
        f"data directory: {tmp_path}/state (from $STATE_DIRECTORY, because log.dirs is not set)"
        in broker.log_text()
    )


def test_log_dirs_override_the_state_directory(tmp_path: Path) -> None:
    settings = {**LISTEN, "log.dirs": f"{tmp_path}/data"}
    with SupervisedBroker(tmp_path, settings, STATE_DIRECTORY=f"{tmp_path}/state") as broker:
        broker.address()
    assert (tmp_path / "data" / "meta.properties").exists()
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(("max_connections", "warnings"), [("300", 0), ("301", 1), (None, 0)])
def test_max_connections_above_the_limit_of_files_is_a_warning(
    tmp_path: Path, max_connections: str | None, warnings: int
) -> None:
    settings = {**LISTEN, "log.dirs": str(tmp_path / "data")}
    if max_connections is not None:
        settings["max.connections"] = max_connections
    with SupervisedBroker(tmp_path, settings, max_files=480) as broker:
        broker.address()
    text = (
        "max.connections=301 exceeds the 300 connections that the limit of 480 open files allows; "
        "raise LimitNOFILE or ulimit -n, or lower max.connections"
    )
    assert broker.log_text().count("max.connections") == 2 * warnings
    assert broker.log_text().count(text) == warnings
