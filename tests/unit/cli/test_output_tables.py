"""The tables that each admin tool prints on a terminal instead of Kafka's lines."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

import pytest

from plog.cli import broker_api_versions, cluster, features, get_offsets, log_dirs
from plog.cli.commands import Configure
from plog.cli.configs import command as configs
from plog.cli.consumer_groups import command as consumer_groups
from plog.cli.main import run_tool
from plog.cli.topics import command as topics
from tests.helpers.offsets import commit
from tests.helpers.sim.sim_broker import create_topic
from tests.unit.cli.conftest import CliSite

Show = Callable[[Configure, str], list[str]]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def show(site: CliSite, monkeypatch: pytest.MonkeyPatch) -> Show:
    """Runs a tool on a terminal of 100 columns, connected to a broker with a topic and a group."""
    create_topic(site.broker, "orders", 2, retention_ms="7")
    site.broker.produce("orders", b"1", b"2", b"3")
    commit(site.broker, "billing", {("orders", 0): 1})
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")

    def run(configure: Configure, line: str) -> list[str]:
        words = line.replace("SERVERS", f"--bootstrap-server {site.sim.bootstrap_servers[0]}")
        terminal = Terminal()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", terminal)
            assert run_tool("tool", configure, words.split()) == 0
        return terminal.getvalue().splitlines()

    return run


@pytest.mark.parametrize(
    ("configure", "line", "head", "row"),
    [
        (topics.configure, "SERVERS --list", "TOPIC", "orders"),
        (
            topics.configure,
            "SERVERS --describe --topic orders",
            "TOPIC   PARTITION  LEADER  REPLICAS  IN SYNC",
            "orders          0       1         1        1",
        ),
        (configs.configure, "SERVERS --describe --topic orders", "TOPIC orders", "retention.ms"),
        (
            get_offsets.configure,
            "SERVERS --topic orders",
            "TOPIC   PARTITION  OFFSET",
            "orders          0       3",
        ),
        (consumer_groups.configure, "SERVERS --list --state", "GROUP    STATE", "billing  Empty"),
        (
            consumer_groups.configure,
            "SERVERS --describe --group billing",
            "GROUP    TOPIC   PARTITION  OFFSET  END  LAG  CLIENT  HOST",
            "billing  orders          0       1    3    2       -     -",
        ),
        (
            consumer_groups.configure,
            "SERVERS --describe --group billing --state",
            "GROUP    STATE  MEMBERS",
            "billing  Empty        0",
        ),
        (
            consumer_groups.configure,
            "SERVERS --describe --group billing --members",
            "GROUP  CLIENT",
            "",
        ),
        (
            consumer_groups.configure,
            "SERVERS --reset-offsets --group billing --all-topics --to-earliest --dry-run",
            "GROUP    TOPIC   PARTITION  NEW OFFSET",
            "billing  orders          0           0",
        ),
        (log_dirs.configure, "SERVERS --describe", "BROKER  TOPIC", "     1  orders"),
        (cluster.configure, "cluster-id SERVERS", "CLUSTER ID", ""),
        (cluster.configure, "list-endpoints SERVERS", "ID  HOST       PORT", " 1  127.0.0.1  9092"),
        (features.configure, "SERVERS describe", "FEATURE", "metadata.version  3.5-IV2"),
        (broker_api_versions.configure, "SERVERS", "127.0.0.1:9092 (id: 1", "ApiVersions"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_terminal_shows_a_table(
    show: Show, configure: Configure, line: str, head: str, row: str
) -> None:
    lines = show(configure, line)
    assert any(each.startswith(head) for each in lines), lines
    assert any(each.startswith(row) for each in lines), lines
    assert not any("\t" in each or len(each) > 100 for each in lines)
