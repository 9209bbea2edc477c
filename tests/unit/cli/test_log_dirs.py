"""plog/cli/log_dirs.py against a simulated broker."""

from __future__ import annotations

import json

import pytest

from plog.cli.log_dirs import configure
from tests.helpers.sim.sim_broker import create_topic
from tests.unit.cli.conftest import CliSite, Run


@pytest.fixture
def log_dirs(site: CliSite) -> Run:
    """The tool, connected to a broker with two topics."""
    create_topic(site.broker, "orders", 2)
    create_topic(site.broker, "clicks")
    site.broker.produce("orders", b"v" * 100)
    return site.tool(configure)


def test_directories_are_printed_as_json_after_two_lines(log_dirs: Run) -> None:
    first, second, document = log_dirs("--describe", "--topic-list", "orders").lines
    assert first == "Querying brokers for log directories information"
    assert second == "Received log directory information from brokers 1"
    data = json.loads(document)
    [broker] = data["brokers"]
    [log_dir] = broker["logDirs"]
    assert data["version"] == 1
    assert (broker["broker"], log_dir["error"]) == (1, None)
    assert [each["partition"] for each in log_dir["partitions"]] == ["orders-0", "orders-1"]
    sizes = [each["size"] for each in log_dir["partitions"]]
    assert sizes[0] > 100
    assert sizes[1] == 0
    assert all(not each["isFuture"] and not each["offsetLag"] for each in log_dir["partitions"])


def test_broker_list_selects_brokers_and_rejects_unknown_ones(log_dirs: Run) -> None:
    data = json.loads(log_dirs("--describe", "--broker-list", "1", "--json").out)
    assert [each["broker"] for each in data["brokers"]] == [1]
    missing = log_dirs("--describe", "--broker-list", "1,7,9")
    assert missing.code == 1
    assert missing.err == (
        "plog: unknown brokers in --broker-list: 7,9; the cluster's brokers are 1\n"
    )


def test_describe_option_is_required(log_dirs: Run) -> None:
    result = log_dirs()
    assert result.code == 1
    assert "--describe" in result.err
