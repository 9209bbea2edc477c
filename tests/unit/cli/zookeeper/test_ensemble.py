"""plog/cli/zookeeper/ensemble.py: printing and changing the ensemble's configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from plog.cli.zookeeper.commands import run_command
from plog.cli.zookeeper.ensemble import client_string
from plog.cli.zookeeper.ports import Console
from plog.cli.zookeeper.text_format import CommandRefused
from tests.helpers.fake_zookeeper import FakeZooKeeper

_CONFIG = b"server.1=a:2:3:participant;c:2181\nserver.2=b:2:3:observer\nversion=10000"


def _run(zookeeper: FakeZooKeeper, *words: str) -> list[str]:
    return list(run_command(Console(zookeeper, print), words))


@pytest.fixture
def zookeeper() -> FakeZooKeeper:
    """A fake ZooKeeper with the configuration `_CONFIG`."""
    zookeeper = FakeZooKeeper()
    zookeeper.configuration = _CONFIG
    return zookeeper


def test_config_prints_and_watches_the_configuration(zookeeper: FakeZooKeeper) -> None:
    assert _run(zookeeper, "config") == [_CONFIG.decode()]
    assert zookeeper.watched == []
    assert _run(zookeeper, "config", "-cws")[:2] == ["10000 c:2181,", "cZxid = 0x1"]
    assert zookeeper.watched == ["config"]


@pytest.mark.parametrize(
    ("config", "shown"),
    [
        ("null", " "),
        ("server.1=a:2:3;2181\nserver.2=b:2:3;[::1]:9\nversion=0", "0 0.0.0.0:2181,[::1]:9"),
    ],
)
def test_client_string_lists_client_addresses(config: str, shown: str) -> None:
    assert client_string(config) == shown


@pytest.mark.parametrize(
    ("words", "request_"),
    [
        (("-add", "server.2=B:2:3;4"), "server.2=b:2:3;4 None None -1"),
        (("-remove", "2,3", "-v", "1f"), "None 2,3 None 31"),
        (("-add", "2=b:2:3;4", "-remove", "3"), "2=b:2:3;4 3 None -1"),
        (("-members", "server.1=a:2:3;4"), "None None server.1=a:2:3;4 -1"),
    ],
)
def test_reconfig_adds_and_removes_servers(
    zookeeper: FakeZooKeeper, words: tuple[str, ...], request_: str
) -> None:
    shown = _run(zookeeper, "reconfig", *words)
    assert zookeeper.calls == [f"reconfig {request_}"]
    assert shown == ["Committed new configuration:", _CONFIG.decode()]


def test_reconfig_reads_members_from_a_file(zookeeper: FakeZooKeeper, tmp_path: Path) -> None:
    file = tmp_path / "Zoo.cfg"
    file.write_text("# ours\nserver.1=A:2:3;4\n server.2 = b:2:3;4\nversion=7\n")
    assert _run(zookeeper, "reconfig", "-s", "-file", str(file))[2] == "cZxid = 0x1"
    members = "server.1=A:2:3;4\nserver.2=b:2:3;4\nversion=7"
    assert zookeeper.calls == [f"reconfig None None {members} -1"]
    file.write_text("tickTime=5\n")
    with pytest.raises(CommandRefused, match=r"Zoo\.cfg: Unrecognised parameter: tickTime"):
        _run(zookeeper, "reconfig", "-file", str(file))
    with pytest.raises(CommandRefused, match="Error processing /nope: "):
        _run(zookeeper, "reconfig", "-file", "/nope")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "reconfig [-s] [-v version] [[-file path] | "),
        (("-v", "1"), "reconfig [-s] [-v version] [[-file path] | "),
        (("-add",), "Missing argument for option: add"),
        (("-add", "x", "-v", "g"), "-v must be followed by a long (configuration version)"),
        (("-add", "x", "-v", "1" * 17), "-v must be followed by a long (configuration version)"),
        (("-add", "x", "-members", "y"), "Can't use -file or -members together with -add"),
        (("-file", "x", "-members", "y"), "Can't use -file and -members together ("),
    ],
)
def test_invalid_command_fails_with_zookeepers_message(
    zookeeper: FakeZooKeeper, words: tuple[str, ...], problem: str
) -> None:
    with pytest.raises(CommandRefused) as refused:
        _run(zookeeper, "reconfig", *words)
    assert str(refused.value).startswith(problem)
    assert zookeeper.calls == []
