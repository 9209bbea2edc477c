"""The daemon as a process: command lines, settings, signals, HTTP pages and common mistakes."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from plogd.testing.broker_process import BrokerFailed, BrokerProcess
from plogd.testing.plugin import BrokerFactory
from plogd.testing.ready_socket import NotReadyError, ReadySocket
from tests.helpers.eventually import eventually
from tests.helpers.programs.kcat import Kcat

TIMEOUT_S = 60
# The `twistd` script, which Debian calls twistd3.
TWISTD = [sys.executable, "-c", "from twisted.scripts.twistd import run; run()"]


def _environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {**os.environ, "PYTHONPATH": path, **more}


def _check_config(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "plogd", "--check-config", *map(str, arguments)],
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def _running(command: list[str], folder: Path) -> Iterator[str]:
    """Start a broker with `command` and yield its address; check that it stops cleanly."""
    settings = [f"log.dirs={folder}/data", "listeners=PLAINTEXT://127.0.0.1:0"]
    options = [word for setting in settings for word in ("-o", setting)]
    with closing(ReadySocket()) as ready_socket:
        environment = _environment(NOTIFY_SOCKET=ready_socket.path)
        with (folder / "broker.log").open("wb") as log:
            process = subprocess.Popen(
                [*command, *options], cwd=folder, env=environment, stdout=log, stderr=log
            )
        try:
            [address] = ready_socket.wait(process, TIMEOUT_S)
            yield address
        except NotReadyError as error:
            raise AssertionError((folder / "broker.log").read_text()) from error
        finally:
            process.terminate()
            code = process.wait(TIMEOUT_S)
    # After its shutdown, twistd ends with the signal that requested it.
    assert code in (0, -signal.SIGTERM), (folder / "broker.log").read_text()


def test_twistd_runs_the_broker_as_a_plugin(tmp_path: Path) -> None:
    command = [*TWISTD, "-n", "--pidfile=", "plog", "-o", "plog.http.port=0"]
    with _running(command, tmp_path) as address:
        Kcat(address).produce("from-twistd", b"x\n")
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_twistd_fails_when_the_broker_cannot_start(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    command = [*TWISTD, "-n", "--pidfile=", "plog", "-o", "plog.http.port=0"]
    done = subprocess.run(
        [*command, "-o", f"log.dirs={tmp_path}/data", "-o", "listeners=PLAINTEXT://127.0.0.1:0"],
        cwd=tmp_path,
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 1
    assert f" ERROR plogd.service: cannot use log directory {tmp_path}/data: " in done.stderr
    assert " CRITICAL plogd.service: cannot start: cannot use any directory in" in done.stderr


def test_clean_shutdown_file_is_left_by_a_stop_but_not_by_a_kill(
    plog_broker: BrokerProcess,
) -> None:
    mark = plog_broker.data_dir / ".kafka_cleanshutdown"
    assert not mark.exists()
    plog_broker.stop()
    assert mark.exists()
    plog_broker.restart()
    assert not mark.exists()
    plog_broker.kill()
    assert not mark.exists()


def test_second_broker_cannot_use_the_same_directory(
    plog_broker: BrokerProcess, tmp_path: Path
) -> None:
    second = BrokerProcess(tmp_path, {"log.dirs": str(plog_broker.data_dir)})
    with pytest.raises(BrokerFailed, match="exited with code 1"):
        second.start()
    assert str(plog_broker.data_dir) in second.log_text()
    Kcat(plog_broker.bootstrap_servers).produce("unharmed", b"x\n")


def test_port_in_use_is_named_in_the_log(plog_broker: BrokerProcess, tmp_path: Path) -> None:
    taken = plog_broker.bootstrap_servers
    second = BrokerProcess(tmp_path, {"listeners": f"PLAINTEXT://{taken}"})
    with pytest.raises(BrokerFailed, match="exited with code 1"):
        second.start()
    assert taken.rpartition(":")[2] in second.log_text()


def test_check_config_accepts_the_example_file() -> None:
    example = Path(__file__).parents[3] / "etc" / "server.properties"
    done = _check_config("--config", example)
    assert (done.returncode, done.stderr) == (0, "")


def test_wrong_value_is_reported_with_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# ours\nnum.partitions=0\nlog.retention.ms=soon\n")
    done = _check_config("--config", file)
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert any("num.partitions" in line and f"{file}:2" in line for line in lines), done.stderr
    assert any("log.retention.ms" in line and f"{file}:3" in line for line in lines), done.stderr


def test_misspelled_setting_is_reported_together_with_a_wrong_value() -> None:
    done = _check_config("-o", "num.partitions=0", "-o", "num.partition=3")
    assert done.returncode == 2
    assert "num.partitions=0" in done.stderr
    assert "warning: -o num.partition is not a setting" in done.stderr


def test_nearest_name_is_suggested_for_an_unknown_setting() -> None:
    done = _check_config("-o", "log.retention.byte=1")
    assert done.returncode == 0
    assert "log.retention.bytes" in done.stdout + done.stderr


def test_conf_d_overrides_the_file(tmp_path: Path) -> None:
    conf_d = tmp_path / "conf.d"
    conf_d.mkdir()
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nlog.index.interval.bytes=1\nplog.log.level=warn\n")
    (conf_d / "10-first.properties").write_text("num.partitions=3\nplog.log.level=info\n")
    (conf_d / "20-second.properties").write_text("num.partitions=4\n")
    with BrokerProcess(
        tmp_path / "broker", {"default.replication.factor": "1"}, config_file=file
    ) as b:
        Kcat(b.bootstrap_servers).produce("spread", b"x\n")
        assert len(list(b.data_dir.glob("spread-*"))) == 4
        assert "INFO" in b.log_text()


def test_sighup_reloads_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("plog.log.level=info\n")
    with BrokerProcess(tmp_path / "broker", config_file=file) as broker:
        file.write_text("plog.log.level=info\nmessage.max.bytes=2000\n")
        broker.reload()
        assert "message.max.bytes" in broker.log_text().splitlines()[-1]
        file.write_text("message.max.bytes=wrong\n")
        broker.reload()
        assert "cannot reload the settings" in broker.log_text()
        Kcat(broker.bootstrap_servers).produce("still-here", b"x\n")


def test_clients_are_served_while_a_reload_waits_for_its_file(tmp_path: Path) -> None:
    """The file is a pipe, which blocks like a network file system that hangs."""
    file = tmp_path / "server.properties"
    file.write_text("message.max.bytes=1000000\n")
    with BrokerProcess(tmp_path / "broker", config_file=file) as broker:
        file.unlink()
        os.mkfifo(file)
        os.kill(broker.pid, signal.SIGHUP)
        with file.open("w") as config:  # Opens as soon as the broker has begun to read.
            Kcat(broker.bootstrap_servers).produce("served", b"x\n")
            config.write("message.max.bytes=2000\n")
        eventually(lambda: "changed message.max.bytes" in broker.log_text(), "the reload")


def test_stop_does_not_wait_for_a_reload_that_blocks(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("message.max.bytes=1000000\n")
    with BrokerProcess(tmp_path / "broker", config_file=file) as broker:
        file.unlink()
        os.mkfifo(file)
        os.kill(broker.pid, signal.SIGHUP)
        writer = os.open(file, os.O_WRONLY)  # Opens as soon as the broker has begun to read.
        broker.stop()
        assert "stopped" in broker.log_text().splitlines()[-1]
        with pytest.raises(BrokenPipeError):
            os.write(writer, b"message.max.bytes=2000\n")
        os.close(writer)


def test_broker_starts_with_settings_from_a_pipe(tmp_path: Path) -> None:
    """As with ``--config <(generate-settings)``; a reload logs that the pipe is empty."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=["message.max.bytes=2000\n"])
    writer.start()
    with BrokerProcess(tmp_path / "broker", config_file=pipe) as broker:
        writer.join()
        os.kill(broker.pid, signal.SIGHUP)
        os.close(os.open(pipe, os.O_WRONLY))
        eventually(lambda: "the pipe is empty" in broker.log_text(), "the reload")
        assert "cannot reload the settings" in broker.log_text()
        Kcat(broker.bootstrap_servers).produce("still-here", b"x\n")


@pytest.mark.parametrize("levels", [("info", "WARN"), ("warn", "Info")])
def test_reload_that_changes_the_log_level_is_logged(
    tmp_path: Path, levels: tuple[str, str]
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"plog.log.level={levels[0]}\n")
    with BrokerProcess(tmp_path / "broker", config_file=file) as broker:
        file.write_text(f"plog.log.level={levels[1]}\n")
        broker.reload()
        assert "reloaded the settings: changed plog.log.level" in broker.log_text()


def test_http_server_has_metrics_health_and_readiness_pages(
    plog_broker_factory: BrokerFactory,
) -> None:
    port = _free_port()
    broker = plog_broker_factory({"plog.http.port": str(port)})
    Kcat(broker.bootstrap_servers).produce("watched", b"12345\n")

    def page(name: str) -> str:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}/{name}", timeout=TIMEOUT_S
        ) as response:
            return str(response.read().decode())

    metrics = page("metrics")
    assert 'kafka_server_brokertopicmetrics_messagesin_total{topic="watched"} 1' in metrics
    assert "kafka_network_requestmetrics_requests_total" in metrics
    assert "plog_log_sync_rounds_total" in metrics
    assert json.loads(page("health"))
    assert json.loads(page("ready"))
    with pytest.raises(urllib.error.HTTPError, match="404"):
        page("nothing")


def test_broker_starts_when_the_default_http_port_is_in_use(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "plogd"]
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    with _running(command, folders[0]) as one, _running(command, folders[1]) as two:
        Kcat(one).produce("served", b"x\n")
        Kcat(two).produce("served", b"x\n")
    # The first broker logs it too if another process on this machine has the port.
    assert ":9080" in (folders[1] / "broker.log").read_text()


def test_broker_does_not_start_when_the_configured_http_port_is_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        broker = BrokerProcess(tmp_path, {"plog.http.port": port})
        with pytest.raises(BrokerFailed, match="exited with code 1"):
            broker.start()
    [reason] = [line for line in broker.log_text().splitlines() if "cannot start" in line]
    assert port in reason


def _talk(broker: BrokerProcess, data: bytes) -> None:
    """Send `data` and wait until the broker closes the connection."""
    host, _, port = broker.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
        connection.sendall(data)
        while connection.recv(4096):
            pass


def test_http_client_on_a_kafka_port_is_logged_in_one_line(plog_broker: BrokerProcess) -> None:
    _talk(plog_broker, b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
    assert plog_broker.log_text().count("an HTTP request") == 1


def test_tls_client_on_a_plaintext_port_is_logged_in_one_line(plog_broker: BrokerProcess) -> None:
    host, _, port = plog_broker.bootstrap_servers.rpartition(":")
    context = ssl.create_default_context()
    with (
        socket.create_connection((host, int(port)), TIMEOUT_S) as connection,
        pytest.raises(OSError, match=r"EOF|reset"),
    ):
        context.wrap_socket(connection, server_hostname="here")
    assert plog_broker.log_text().count("a TLS handshake") == 1


def test_request_over_the_size_limit_closes_the_connection(plog_broker: BrokerProcess) -> None:
    _talk(plog_broker, (200 << 20).to_bytes(4, "big") + bytes(100))
    assert "socket.request.max.bytes" in plog_broker.log_text()


def test_metadata_contains_the_address_that_the_client_used(
    plog_broker_factory: BrokerFactory,
) -> None:
    broker = plog_broker_factory({"listeners": "PLAINTEXT://0.0.0.0:0"})
    port = broker.bootstrap_servers.rpartition(":")[2]
    for host in ("127.0.0.1", "127.0.0.2"):
        listing = json.loads(Kcat(f"{host}:{port}").run("-L", "-J"))
        assert [each["name"] for each in listing["brokers"]] == [f"{host}:{port}"]
