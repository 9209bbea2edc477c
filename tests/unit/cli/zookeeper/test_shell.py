"""plog/cli/zookeeper/shell.py: options at any position, and lines of standard input."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from plog.cli.main import run_tool
from plog.cli.zookeeper import client as zookeeper_client
from plog.cli.zookeeper.shell import configure
from tests.helpers.fake_zookeeper import FakeZooKeeper


class Connections:
    """Replaces `zookeeper_client.connect`: records its arguments and returns a fake."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.zookeeper = FakeZooKeeper()

    def __call__(self, hosts: str, on_event: object, **options: Any) -> FakeZooKeeper:
        self.calls.append((hosts, options))
        return self.zookeeper


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Connections:
    """Connections to a fake instead of kazoo."""
    connections = Connections()
    monkeypatch.setattr(zookeeper_client, "connect", connections)
    return connections


def _run(*arguments: object) -> int:
    return run_tool("zookeeper-shell", configure, [*map(str, arguments)])


@pytest.fixture
def tls_file(tmp_path: Path) -> Path:
    """A TLS file in the format of Kafka's tool."""
    file = tmp_path / "tls.properties"
    file.write_text(
        "zookeeper.ssl.client.enable=true\n"
        "zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty\n"
        "zookeeper.ssl.truststore.location=/ca.pem\n"
        "zookeeper.ssl.truststore.password=x\n"
        "zookeeper.ssl.keystore.location=/me.pem\n"
        "zookeeper.ssl.keystore.password=secret\n"
        "zookeeper.ssl.protocol=TLSv1.3\n"
        "zookeeper.ssl.endpoint.identification.algorithm=\n"
    )
    return file


def test_command_keeps_its_own_options(
    connections: Connections, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run("a:1,b:2/c", "create", "-s", "/n", "-5") == 0
    [(hosts, options)] = connections.calls
    assert (hosts, options["session_timeout_s"], options["read_only"]) == ("a:1,b:2/c", 30, False)
    assert options["security"] is None
    out = capsys.readouterr()
    assert out.err == "Created /n0000000001\n"
    assert out.out.startswith("Connecting to a:1,b:2/c\n\nWATCHER::\n")
    assert connections.zookeeper.nodes["/n0000000001"].data == b"-5"
    assert connections.zookeeper.state == "CLOSED"


@pytest.mark.parametrize(
    "words",
    [
        ("-zk-tls-config-file", "FILE", "-timeout", "500", "a:1", "ls", "/"),
        ("a:1", "-timeout", "500", "-zk-tls-config-file", "FILE", "ls", "/"),
        ("a:1", "-timeout", "500", "ls", "/", "-zk-tls-config-file", "FILE"),
    ],
)
def test_options_are_accepted_before_and_after_the_server(
    connections: Connections, tls_file: Path, words: tuple[str, ...]
) -> None:
    assert _run(*(tls_file if word == "FILE" else word for word in words)) == 0
    [(_, options)] = connections.calls
    assert options["session_timeout_s"] == 0.5
    security = options["security"]
    assert security.trusted.path == "/ca.pem"
    assert security.key.path == "/me.pem"
    assert security.key_password == "secret"
    assert security.versions == ("TLSv1.3",)
    assert not security.checks_host_name


def test_invalid_tls_file_is_an_error(
    connections: Connections, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.properties"
    file.write_text("zookeeper.ssl.truststore.lokation=/ca.pem\n")
    assert _run("a:1", "-zk-tls-config-file", file, "ls", "/") == 1
    assert "ssl.truststore.location" in capsys.readouterr().err
    file.write_text("zookeeper.ssl.truststore.type=JKS\n")
    assert _run("a:1", "-waitforconnection", "-zk-tls-config-file", file, "ls", "/") == 1
    assert "convert it once: keytool -list -rfc" in capsys.readouterr().err
    assert _run("a:1", "ls", "/", "-zk-tls-config-file") == 1
    assert "requires a file name" in capsys.readouterr().err
    assert connections.calls == []


def test_shell_reads_lines_until_end_of_input_or_quit(
    connections: Connections,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("create /a x\nget /a\n\nget /nope\n"))
    assert _run("a:1") == 1
    out = capsys.readouterr()
    assert out.out.splitlines()[1] == "Welcome to ZooKeeper!"
    assert out.out.endswith("\nx\n")
    assert out.err == "Created /a\nNode does not exist: /nope\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO("quit\nget /nope\n"))
    assert _run("a:1") == 0


def test_missing_kazoo_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "kazoo.client", None)
    monkeypatch.delitem(sys.modules, zookeeper_client.__name__)
    monkeypatch.delattr("plog.cli.zookeeper.client")
    assert run_tool("zookeeper-shell", configure, ["host:1", "ls", "/"]) == 1
    assert "kazoo is not installed; install Debian's python3-kazoo" in capsys.readouterr().err
