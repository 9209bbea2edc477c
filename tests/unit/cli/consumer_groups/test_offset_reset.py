"""plog/cli/consumer_groups/offset_reset.py: every way of moving offsets, at a whole broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plog.cli.consumer_groups.command import configure
from plog.cli.consumer_groups.offset_reset import datetime_ms, duration_ms, parse_plan, reset_lines
from plog.cli.options import UsageError
from plog.types import TopicPartition
from tests.helpers.group_frames import GROUP, stable
from tests.helpers.offsets import commit
from tests.helpers.sim_broker import create_topic
from tests.unit.cli.conftest import CliSite, Output, Run

DAY_MS = 86_400_000
FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Reset:
    """The tool, asked to move the offsets of a group."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __call__(self, line: str, *words: object, group: str = "billing") -> Output:
        return self._run("--reset-offsets", "--group", group, *line.split(), *words)

    def planned(self, line: str, *words: object) -> dict[str, int]:
        """The new offsets, by partition."""
        ended = self(f"{line} --dry-run --json", *words)
        assert ended.code == 0, ended.err
        return {
            f"{row['topic']}-{row['partition']}": row["new_offset"] for row in json.loads(ended.out)
        }

    def committed(self) -> list[str]:
        """Where the group is."""
        told = self._run("--describe", "--group", "billing").lines[2:]
        return [line.split()[3] for line in told]


@pytest.fixture
def reset(site: CliSite) -> Reset:
    """A group that has read 2 of 4 records of one partition; the other one is empty."""
    create_topic(site.broker, "orders", 2)
    for day in range(4):
        site.broker.produce("orders", b"v", now_ms=day * DAY_MS)
    commit(site.broker, "billing", {("orders", 0): 2})
    return Reset(site.tool(configure))


@pytest.mark.parametrize(
    ("line", "offsets"),
    [
        ("--topic orders --to-earliest", {"orders-0": 0, "orders-1": 0}),
        ("--topic orders --to-latest", {"orders-0": 4, "orders-1": 0}),
        ("--all-topics --to-latest", {"orders-0": 4}),
        ("--topic orders:0 --to-offset 3", {"orders-0": 3}),
        ("--topic orders:0 --to-current", {"orders-0": 2}),
        ("--topic orders --to-current", {"orders-0": 2, "orders-1": 0}),
        ("--all-topics --shift-by -1", {"orders-0": 1}),
        ("--all-topics --shift-by 1", {"orders-0": 3}),
        ("--topic orders:0 --to-datetime 1970-01-02T12:00:00.000", {"orders-0": 2}),
        ("--topic orders:0 --to-datetime 1970-01-02T00:00:00Z", {"orders-0": 1}),
        ("--topic orders --topic orders:1 --to-offset 0", {"orders-0": 0, "orders-1": 0}),
    ],
)
def test_offsets_go_where_they_are_wanted(reset: Reset, line: str, offsets: dict[str, int]) -> None:
    assert reset.planned(line) == offsets


def test_an_offset_outside_the_log_is_brought_into_it(reset: Reset) -> None:
    ended = reset("--topic orders:0 --to-offset 99 --dry-run --json")
    assert json.loads(ended.out)[0]["new_offset"] == 4
    assert ended.err == (
        "plog: warning: offset 99 of orders-0 is outside its log, which has 0 to 4: using 4\n"
    )
    assert reset.planned("--all-topics --shift-by -9") == {"orders-0": 0}


def test_a_time_after_the_last_record_is_the_end(reset: Reset) -> None:
    ended = reset("--topic orders --to-datetime 2030-01-01T00:00:00 --dry-run --json")
    assert [row["new_offset"] for row in json.loads(ended.out)] == [4, 0]
    assert "Warn: Partition 0 from topic orders is empty." in ended.err
    assert reset.planned("--topic orders:0 --by-duration P1D") == {"orders-0": 4}
    assert reset.planned("--topic orders:0 --by-duration P99999D") == {"orders-0": 0}


def test_nothing_is_changed_without_being_told_to(reset: Reset) -> None:
    assert reset("--topic orders:0 --to-earliest --dry-run").lines == [
        "",
        "GROUP           TOPIC           PARTITION  NEW-OFFSET",
        "billing         orders          0          0",
    ]
    told = reset("--topic orders:0 --to-earliest")
    assert "add --execute to commit them" in told.err
    assert reset.committed() == ["2"]
    assert reset("--topic orders:0 --to-earliest --execute").code == 0
    assert reset.committed() == ["0"]


def test_a_group_nobody_knew_begins_with_its_offsets(reset: Reset) -> None:
    ended = reset("--topic orders:0 --to-offset 3 --execute --json", group="new")
    assert [row["group"] for row in json.loads(ended.out)] == ["new"]
    assert reset("--all-topics --to-current --json", group="new").code == 0


def test_a_group_with_members_is_left_alone(site: CliSite, reset: Reset) -> None:
    stable(site.broker)
    ended = reset("--topic orders --to-earliest --execute", group=GROUP)
    assert ended.code == 1
    assert ended.err == (
        f"plog: cannot reset offsets of group '{GROUP}': its state is "
        "Stable; stop its consumers first\n"
    )


def test_a_plan_is_exported_and_carried_out(reset: Reset, tmp_path: Path) -> None:
    exported = reset("--topic orders --to-earliest --dry-run --export")
    assert exported.out == "orders,0,0\norders,1,0\n"
    plan = tmp_path / "plan.csv"
    plan.write_text(exported.out.replace("orders,0,0", "orders,0,3"))
    assert reset("--from-file", plan, "--execute").code == 0
    assert reset.committed() == ["3", "0"]
    plan.write_text("other,orders,0,1\n")
    ended = reset("--from-file", plan, "--dry-run")
    assert ended.code == 1
    assert "has no offsets for group 'billing'" in ended.err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--topic orders", "give exactly one of"),
        ("--topic orders --to-earliest --to-latest", "give exactly one of"),
        ("--to-earliest", "requires --topic, --all-topics or --from-file"),
        ("--topic orders --all-topics --to-earliest", "exclude each other"),
        ("--topic orders --to-earliest --dry-run --execute", "exclude each other"),
        ("--topic orders --to-datetime yesterday", "is not a time like"),
        ("--topic orders --to-datetime 2026-01-01", "is not a time like"),
        ("--topic orders --by-duration 1d", "is not a duration like"),
        ("--topic orders --shift-by x", "--shift-by"),
        ("--topic orders:7 --to-earliest --dry-run", "partitions orders-7 do not exist"),
        ("--topic none --to-earliest --dry-run", "none"),
        ("--topic orders --shift-by 1 --dry-run", "has no offset for orders-1"),
    ],
)
def test_what_cannot_be_is_one_line(reset: Reset, line: str, told: str) -> None:
    ended = reset(line)
    assert ended.code == 1
    assert told in ended.err
    assert len(ended.err.splitlines()) == 1


def test_moments_are_in_utc_unless_they_say() -> None:
    assert datetime_ms("1970-01-01T00:00:01.5") == 1500
    assert datetime_ms("1970-01-01T02:00:00+02:00") == 0
    assert duration_ms("PT1M") == 60_000


def test_a_plan_names_its_groups_or_there_is_one() -> None:
    both = parse_plan("a,orders,0,1\nb,orders,1,2\n", ["a", "b"])
    assert both == {"a": {FIRST: 1}, "b": {SECOND: 2}}
    assert parse_plan('"orders",1,2\n\n', ["a"]) == {"a": {SECOND: 2}}
    for text in ("orders,0", "orders,0,1", "a,orders,x,1"):
        with pytest.raises(UsageError, match="line 1"):
            parse_plan(text, ["a", "b"])


def test_no_groups_are_an_empty_line() -> None:
    assert reset_lines([], []) == [""]
