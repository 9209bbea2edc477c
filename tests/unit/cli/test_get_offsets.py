"""plog/cli/get_offsets.py against a simulated broker."""

from __future__ import annotations

import json

import pytest

from plog.cli.get_offsets import configure
from tests.helpers.sim.sim_broker import create_topic
from tests.unit.cli.conftest import CliSite, Run


@pytest.fixture
def get_offsets(site: CliSite) -> Run:
    """The tool, connected to a broker with two topics of records with known timestamps."""
    create_topic(site.broker, "orders", 3)
    create_topic(site.broker, "clicks")
    for partition in range(3):
        for timestamp in range(partition):
            site.broker.produce("orders", b"v", partition=partition, now_ms=1000 + timestamp)
    return site.tool(configure)


def test_end_offsets_are_printed_by_default(get_offsets: Run) -> None:
    assert get_offsets().lines == ["clicks:0:0", "orders:0:0", "orders:1:1", "orders:2:2"]
    assert get_offsets("--topic", "o.*", "--partitions", "1,2").lines == [
        "orders:1:1",
        "orders:2:2",
    ]


@pytest.mark.parametrize(
    ("patterns", "numbers"),
    [
        ("orders:1", [1]),
        ("orders:0-2", [0, 1]),
        ("orders:1-", [1, 2]),
        ("orders:-2", [0, 1]),
        (":2", [2]),
        ("orders", [0, 1, 2]),
        ("none,orders:0", [0]),
    ],
)
def test_topic_partitions_option_selects_partitions(
    get_offsets: Run, patterns: str, numbers: list[int]
) -> None:
    found = get_offsets("--topic-partitions", patterns)
    assert found.lines == [f"orders:{number}:{number}" for number in numbers]


@pytest.mark.parametrize(
    ("time", "offsets"),
    [
        ("earliest", "0:0 1:0 2:0"),
        ("-2", "0:0 1:0 2:0"),
        ("-1", "0:0 1:1 2:2"),
        ("max-timestamp", "1:0 2:1"),
        ("1001", "2:1"),
        ("5000", ""),
    ],
)
def test_time_option_accepts_names_numbers_and_timestamps(
    get_offsets: Run, time: str, offsets: str
) -> None:
    found = get_offsets("--topic", "orders", "--time", time)
    assert found.lines == [f"orders:{each}" for each in offsets.split()]
    assert found.code == 0


def test_broker_list_option_is_accepted(site: CliSite, get_offsets: Run) -> None:
    servers = site.sim.bootstrap_servers[0]
    found = site.run_line(configure, ["--broker-list", servers, "--topic", "clicks", "--json"])
    assert json.loads(found.out) == [{"topic": "clicks", "partition": 0, "offset": 0}]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--topic none", "no partition matches"),
        ("--time never", "'never' is not a time"),
        ("--topic orders --topic-partitions orders:1", "cannot be combined"),
        ("--partitions x", "is not a whole number"),
        ("--topic-partitions orders:1:2", "is not of the form topic:partitions"),
        ("--topic-partitions a(", "not a regular expression"),
    ],
)
def test_usage_error_is_one_line(get_offsets: Run, line: str, message: str) -> None:
    result = get_offsets(*line.split())
    assert result.code == 1
    assert message in result.err
    assert len(result.err.splitlines()) == 1
