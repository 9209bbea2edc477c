"""plog/cli/get_offsets.py at a whole broker."""

from __future__ import annotations

import json

import pytest

from plog.cli.get_offsets import configure
from tests.helpers.sim_broker import create_topic
from tests.unit.cli.conftest import CliSite, Run


@pytest.fixture
def get_offsets(site: CliSite) -> Run:
    """The tool, at a broker with two topics of records at known times."""
    create_topic(site.broker, "orders", 3)
    create_topic(site.broker, "clicks")
    for partition in range(3):
        for timestamp in range(partition):
            site.broker.produce("orders", b"v", partition=partition, now_ms=1000 + timestamp)
    return site.tool(configure)


def test_partitions_end_where_they_end(get_offsets: Run) -> None:
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
def test_partitions_are_chosen_by_pattern(
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
def test_times_are_names_numbers_or_moments(get_offsets: Run, time: str, offsets: str) -> None:
    found = get_offsets("--topic", "orders", "--time", time)
    assert found.lines == [f"orders:{each}" for each in offsets.split()]
    assert found.code == 0


def test_the_older_name_of_the_servers_is_known(site: CliSite, get_offsets: Run) -> None:
    servers = site.sim.bootstrap_servers[0]
    found = site.ended(configure, ["--broker-list", servers, "--topic", "clicks", "--json"])
    assert json.loads(found.out) == [{"topic": "clicks", "partition": 0, "offset": 0}]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--topic none", "no partition matches"),
        ("--time never", "'never' is not a time"),
        ("--topic orders --topic-partitions orders:1", "exclude each other"),
        ("--partitions x", "is not a whole number"),
        ("--topic-partitions orders:1:2", "is not of the form topic:partitions"),
        ("--topic-partitions a(", "not a regular expression"),
    ],
)
def test_what_makes_no_sense_is_one_line(get_offsets: Run, line: str, told: str) -> None:
    ended = get_offsets(*line.split())
    assert ended.code == 1
    assert told in ended.err
    assert len(ended.err.splitlines()) == 1
