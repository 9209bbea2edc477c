"""``plog replay``: exact copies, ranges, speed and continuation."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plog import Producer
from plog.cli.replay.command import Topic
from plogd.testing.broker_process import BrokerProcess
from tests.helpers.client.plog_command import Plog
from tests.helpers.programs.kafka_tools import RunTool

START_MS = 1_700_000_000_000


@pytest.fixture
def plog(broker: BrokerProcess) -> Plog:
    """Runs `plog` against the shared broker."""
    return Plog(broker.bootstrap_servers)


@pytest.fixture
def source(broker: BrokerProcess, run: RunTool, topic: str) -> str:
    """A topic of three partitions with 300 records, whose timestamps are 10 ms apart."""
    run("TopicCommand", "--create", "--topic", topic, "--partitions", "3")
    _fill(broker.bootstrap_servers, topic)
    return topic


def _fill(servers: str, topic: str) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        for i in range(300):
            producer.send(
                topic, b"%d" % i, None if i % 5 else b"key %d" % i, partition=i % 3,
                timestamp=START_MS + 10 * i, headers=[("h", b"\xff"), ("null", None)],
            )  # fmt: skip


def _records(plog: Plog, topic: str, count: int) -> list[dict[str, Any]]:
    out = plog.run(
        "consume", "--topic", topic, "--from-beginning", "--json", "--max-messages", str(count),
        "--timeout-ms", "60000",
    )  # fmt: skip
    records = [json.loads(line) for line in out.splitlines()]
    assert len(records) == count
    return sorted(records, key=lambda x: (x["partition"], x["offset"]))


def _without_topic(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in x.items() if name != "topic"} for x in records]


def test_whole_topic_is_copied_exactly(plog: Plog, source: str) -> None:
    done = plog.attempt("replay", "--topic", source, "--to-topic", f"{source}-copy")
    assert done.returncode == 0
    assert done.stderr.decode().splitlines() == [
        f"Created topic {source}-copy with 3 partitions.",
        "Copied 300 records.",
    ]
    ours, theirs = (_records(plog, name, 300) for name in (source, f"{source}-copy"))
    assert _without_topic(ours) == _without_topic(theirs)


def test_topic_is_copied_to_a_cluster_with_another_number_of_partitions(
    plog: Plog, source: str, start_broker: Callable[..., BrokerProcess]
) -> None:
    other = Plog(start_broker().bootstrap_servers)
    other.run("produce", "--topic", source)  # Creates no topic, because there are no lines.
    other.run("produce", "--topic", source, stdin=b"first\n")
    plog.run(
        "replay", "--topic", source, "--to-topic", source, "--to-bootstrap-server",
        other.bootstrap_servers, "--timestamps", "now",
    )  # fmt: skip
    first, *copied = _records(other, source, 301)
    assert first["value"] == "first"
    assert {x["partition"] for x in copied} == {0}
    assert sorted(int(x["value"]) for x in copied) == list(range(300))
    assert all(x["timestamp"] > START_MS + 3000 for x in copied)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--from-offset", "90"], [*range(270, 300)]),
        (["--until-offset", "10"], [*range(30)]),
        (["--from-time", str(START_MS + 2000)], [*range(200, 300)]),
        (["--from-time", "2023-11-14T22:13:20.5", "--until-time", str(START_MS + 1000)],
         [*range(50, 100)]),
        (["--partitions", "2,0", "--until-offset", "2"], [0, 2, 3, 5]),
        (["--from-offset", "1000"], []),
    ],
)  # fmt: skip
def test_range_is_copied(plog: Plog, source: str, options: list[str], expected: list[int]) -> None:
    to = ("--topic", source, "--to-topic", f"{source}-copy")
    out = plog.run("replay", *to, *options, "--dry-run", "--json")
    assert sum(row["records"] for row in json.loads(out)) == len(expected)
    plog.run("replay", *to, *options)
    copied = _records(plog, f"{source}-copy", len(expected)) if expected else []
    assert sorted(int(x["value"]) for x in copied) == expected


def test_dry_run_changes_nothing(plog: Plog, source: str) -> None:
    done = plog.attempt("replay", "--topic", source, "--to-topic", f"{source}-no", "--dry-run")
    head, *rows = done.stdout.decode().splitlines()
    assert head.split() == ["TOPIC", "PARTITION", "FROM", "UNTIL", "RECORDS"]
    assert [row.split()[1:] for row in rows] == [[str(i), "0", "100", "100"] for i in range(3)]
    assert "does not exist and would be created" in done.stderr.decode()
    again = plog.attempt("replay", "--topic", source, "--to-topic", f"{source}-no", "--dry-run")
    assert again.stderr == done.stderr


def test_speed_and_order_follow_the_timestamps(plog: Plog, source: str) -> None:
    begin_s = time.monotonic()
    plog.run(
        "replay", "--topic", source, "--to-topic", f"{source}-copy", "--speed", "2x",
        "--timestamps", "now",
    )  # fmt: skip
    assert time.monotonic() - begin_s > 1.4
    copied = _records(plog, f"{source}-copy", 300)
    in_time = sorted(copied, key=lambda x: x["timestamp"])
    took_ms = in_time[-1]["timestamp"] - in_time[0]["timestamp"]
    assert took_ms > 1300
    values = [int(x["value"]) for x in in_time]
    assert all(abs(index - value) <= 30 for index, value in enumerate(values))


def test_rate_is_limited(plog: Plog, source: str) -> None:
    begin_s = time.monotonic()
    plog.run("replay", "--topic", source, "--to-topic", f"{source}-copy", "--speed", "200/s")
    assert time.monotonic() - begin_s > 1.4


def test_stopped_replay_continues_without_duplicates(
    plog: Plog, source: str, tmp_path: Path
) -> None:
    state = tmp_path / "state.json"
    to = ["--topic", source, "--to-topic", f"{source}-copy", "--state", str(state)]
    with plog.start("replay", *to, "--speed", "100/s") as replay:
        replay.wait_until(
            lambda _: state.exists() and "100" in state.read_text(), "the first checkpoint"
        )
        assert replay.stop() == 130
    assert "run the same command to continue from here" in "".join(replay.errors)
    done = json.loads(state.read_text())["partitions"]
    assert 0 < sum(x["next"] for x in done.values()) < 300
    plog.run("replay", *to)
    assert _without_topic(_records(plog, f"{source}-copy", 300)) == _without_topic(
        _records(plog, source, 300)
    )
    assert plog.attempt("replay", *to).stderr.decode() == "Copied 0 records.\n"
    assert len(_records(plog, f"{source}-copy", 300)) == 300


def test_replay_continues_after_a_broker_restart(own_broker: BrokerProcess) -> None:
    plog = Plog(own_broker.bootstrap_servers)
    plog.run("produce", "--topic", "t", stdin=b"".join(b"%d\n" % i for i in range(600)))
    with plog.start("replay", "--topic", "t", "--to-topic", "copy", "--speed", "300/s") as replay:
        replay.wait_until(lambda _: _end_offset(plog, "copy") > 0, "the first records")
        own_broker.kill()
        own_broker.restart()
        assert replay.wait() == 0
    values = [int(x["value"]) for x in _records(plog, "copy", 600)]
    assert values == list(range(600))


def test_topic_created_concurrently_is_used(plog: Plog, new_topic: Callable[[], str]) -> None:
    name = new_topic()
    plog.run("topics", "--create", "--topic", name, "--partitions", "3")
    target = Topic(name, "any cluster", None)
    target.create({"bootstrap.servers": plog.bootstrap_servers}, 5)
    assert target.partitions == 3


def _end_offset(plog: Plog, topic: str) -> int:
    return plog.record_count(topic)


def test_invalid_request_is_a_one_line_error(plog: Plog, source: str, tmp_path: Path) -> None:
    def error_of(*options: str) -> str:
        text = plog.refusal("replay", *options)
        assert len(text.splitlines()) == 1
        return text

    copy = ("--to-topic", f"{source}-copy")
    assert "itself" in error_of("--topic", source, "--to-topic", source)
    assert "does not exist on" in error_of("--topic", f"{source}-none", *copy)
    assert "has 3 partitions" in error_of("--topic", source, *copy, "--partitions", "7")
    assert "not a speed" in error_of("--topic", source, *copy, "--speed", "fast")
    assert "neither a time" in error_of("--topic", source, *copy, "--from-time", "noon")
    state = tmp_path / "state.json"
    state.write_text("[]")
    assert "not contain the state of a replay" in error_of(
        "--topic", source, *copy, "--state", str(state)
    )
