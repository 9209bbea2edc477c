"""ConsumerGroupCommand on groups without members: all ways to reset, export and delete offsets.

A classic group exists as soon as offsets are committed for it, so no test here starts a consumer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.programs.confluent import create_topic, produce
from tests.helpers.programs.kafka_tools import KafkaTools, table

HOUR_MS = 3_600_000
# Partition 0 has one record per hour, the last one half an hour old; partition 1 is empty.
RECORDS = 10


@pytest.fixture(scope="module")
def start_ms() -> int:
    """The timestamp of the first record."""
    return int(time.time() * 1000) - RECORDS * HOUR_MS + HOUR_MS // 2


@pytest.fixture(scope="module")
def topic(broker: BrokerProcess, start_ms: int) -> str:
    """A topic for all groups of this module."""
    name = f"java-resets-{start_ms}"
    create_topic(broker.bootstrap_servers, name, 2)
    messages = [
        {"value": b"", "partition": 0, "timestamp": start_ms + i * HOUR_MS} for i in range(RECORDS)
    ]
    assert set(produce(broker.bootstrap_servers, name, messages)) == {None}
    return name


@pytest.fixture
def run(kafka_tools: KafkaTools, broker: BrokerProcess) -> Callable[..., str]:
    """Run ConsumerGroupCommand and return its output; it exits with 0 even if it fails."""

    def run_tool(*arguments: str | Path) -> str:
        server = ("--bootstrap-server", broker.bootstrap_servers)
        return kafka_tools.attempt("ConsumerGroupCommand", *server, *arguments).text

    return run_tool


@pytest.fixture
def reset(run: Callable[..., str], topic: str, group: str) -> Callable[..., dict[int, int]]:
    """Reset this test's group, or only plan it; return the new offsets that the tool prints."""

    def reset_offsets(*how: str, scope: str = topic, act: str = "--execute") -> dict[int, int]:
        rows = table(run("--reset-offsets", "--group", group, "--topic", scope, *how, act))
        assert {(row["GROUP"], row["TOPIC"]) for row in rows} == {(group, topic)}
        return {int(row["PARTITION"]): int(row["NEW-OFFSET"]) for row in rows}

    return reset_offsets


@pytest.fixture
def group(new_topic: Callable[[], str]) -> str:
    """A unique group id."""
    return new_topic()


def committed(run: Callable[..., str], group: str) -> dict[int, int]:
    rows = table(run("--describe", "--group", group))
    offsets = {int(row["PARTITION"]): row["CURRENT-OFFSET"] for row in rows}
    return {partition: int(offset) for partition, offset in offsets.items() if offset != "-"}


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (("--to-earliest",), 0),
        (("--to-latest",), RECORDS),
        (("--to-current",), 4),
        (("--to-offset", "7"), 7),
        (("--to-offset", "99"), RECORDS),
        (("--shift-by", "3"), 7),
        (("--shift-by", "-2"), 2),
        (("--shift-by", "-100"), 0),
        (("--by-duration", "PT3H"), 7),
        (("--by-duration", "P30D"), 0),
    ],
)
def test_reset_is_planned_and_then_executed(
    run: Callable[..., str],
    reset: Callable[..., dict[int, int]],
    group: str,
    how: tuple[str, ...],
    expected: int,
) -> None:
    assert reset("--to-offset", "4") == {0: 4, 1: 0}
    # A reset stays within the log's offsets, and partition 1 is empty.
    assert reset(*how, act="--dry-run") == {0: expected, 1: 0}
    assert committed(run, group) == {0: 4, 1: 0}
    assert reset(*how) == {0: expected, 1: 0}
    assert committed(run, group) == {0: expected, 1: 0}


def test_reset_to_a_time_finds_the_first_record_at_or_after_it(
    run: Callable[..., str], reset: Callable[..., dict[int, int]], group: str, start_ms: int
) -> None:
    assert reset("--to-datetime", _moment(start_ms + 4 * HOUR_MS)) == {0: 4, 1: 0}
    assert reset("--to-datetime", _moment(start_ms + 4 * HOUR_MS + 1)) == {0: 5, 1: 0}
    # No record is that late, so the offset is the end.
    assert reset("--to-datetime", _moment(start_ms + 100 * HOUR_MS)) == {0: RECORDS, 1: 0}
    assert committed(run, group) == {0: RECORDS, 1: 0}


def test_one_partition_is_reset_and_the_others_are_unchanged(
    run: Callable[..., str], reset: Callable[..., dict[int, int]], group: str, topic: str
) -> None:
    assert reset("--to-offset", "3", scope=f"{topic}:0") == {0: 3}
    assert committed(run, group) == {0: 3}


def test_exported_plan_is_executed_from_its_file(
    run: Callable[..., str],
    reset: Callable[..., dict[int, int]],
    group: str,
    topic: str,
    tmp_path: Path,
) -> None:
    reset("--to-offset", "8")
    plan = run(
        "--reset-offsets", "--group", group, "--topic", topic, "--to-current", "--export",
        "--dry-run",
    )  # fmt: skip
    assert sorted(plan.split()) == [f'"{topic}",0,8', f'"{topic}",1,0']
    assert reset("--to-earliest") == {0: 0, 1: 0}

    file = tmp_path / "plan.csv"
    file.write_text(plan.strip() + "\n")
    done = run("--reset-offsets", "--group", group, "--from-file", file, "--execute")
    assert len(table(done)) == 2
    assert committed(run, group) == {0: 8, 1: 0}


def test_all_topics_of_a_group_are_reset_together(
    run: Callable[..., str], reset: Callable[..., dict[int, int]], group: str
) -> None:
    reset("--to-latest")
    run("--reset-offsets", "--group", group, "--all-topics", "--to-earliest", "--execute")
    assert committed(run, group) == {0: 0, 1: 0}


def test_group_without_members_is_described_as_such(
    run: Callable[..., str], reset: Callable[..., dict[int, int]], group: str
) -> None:
    reset("--to-latest")
    text = run("--describe", "--group", group)
    assert f"Consumer group '{group}' has no active members." in text
    # A group without a protocol leaves the column of its strategy blank.
    lines = run("--describe", "--group", group, "--state").splitlines()
    assert [x.split()[-2:] for x in lines if x.startswith(group)] == [["Empty", "0"]]
    assert group in run("--list", "--state", "empty").split()


def test_offsets_of_one_topic_are_deleted(
    run: Callable[..., str], reset: Callable[..., dict[int, int]], group: str, topic: str
) -> None:
    reset("--to-latest")
    rows = table(run("--delete-offsets", "--group", group, "--topic", f"{topic}:1"))
    assert [(row["PARTITION"], row["STATUS"]) for row in rows] == [("1", "Successful")]
    assert committed(run, group) == {0: RECORDS}


def test_group_is_deleted_with_its_offsets(
    run: Callable[..., str], reset: Callable[..., dict[int, int]], group: str
) -> None:
    reset("--to-latest")
    assert f"of requested consumer groups ('{group}') was successful" in run(
        "--delete", "--group", group
    )
    assert group not in run("--list").split()
    assert "GroupIdNotFoundException" in run("--delete", "--group", group)
    assert f"Group {group} not found." in run("--describe", "--group", group)
    assert reset("--to-current", act="--dry-run") == {0: RECORDS, 1: 0}


def _moment(time_ms: int) -> str:
    """Format a timestamp for --to-datetime."""
    moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z"
