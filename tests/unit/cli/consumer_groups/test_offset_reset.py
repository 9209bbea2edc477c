"""plog/cli/consumer_groups/offset_reset.py: every kind of reset, against a simulated broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plog.cli.consumer_groups.command import configure
from plog.cli.consumer_groups.offset_reset import datetime_ms, duration_ms, parse_plan, reset_lines
from plog.cli.options import UsageError
from plog.types import TopicPartition
from tests.helpers.group.group_frames import GROUP, stable
from tests.helpers.offsets import commit
from tests.helpers.sim.sim_broker import create_topic
from tests.unit.cli.conftest import CliSite, Output, Run

DAY_MS = 86_400_000
FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Reset:
    """Runs the tool with ``--reset-offsets`` for a group."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __call__(self, line: str, *words: object, group: str = "billing") -> Output:
        return self._run("--reset-offsets", "--group", group, *line.split(), *words)

    def planned(self, line: str, *words: object) -> dict[str, int]:
        """Return the new offsets of a dry run, by partition."""
        result = self(f"{line} --dry-run --json", *words)
        assert result.code == 0, result.err
        return {
            f"{row['topic']}-{row['partition']}": row["new_offset"]
            for row in json.loads(result.out)
        }

    def committed(self) -> list[str]:
        """Return the committed offsets of the group."""
        lines = self._run("--describe", "--group", "billing").lines[2:]
        return [line.split()[3] for line in lines]


@pytest.fixture
def reset(site: CliSite) -> Reset:
    """A group that has consumed 2 of the 4 records of a partition; the other partition is empty."""
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
def test_target_option_sets_new_offsets(reset: Reset, line: str, offsets: dict[str, int]) -> None:
    assert reset.planned(line) == offsets


def test_offset_outside_the_log_is_limited_with_a_warning(reset: Reset) -> None:
    result = reset("--topic orders:0 --to-offset 99 --dry-run --json")
    assert json.loads(result.out)[0]["new_offset"] == 4
    assert result.err == (
        "plog: warning: offset 99 of orders-0 is outside its log, which ranges from 0 to 4:"
        " using 4\n"
    )
    assert reset.planned("--all-topics --shift-by -9") == {"orders-0": 0}


def test_time_after_the_last_record_selects_the_end(reset: Reset) -> None:
    result = reset("--topic orders --to-datetime 2030-01-01T00:00:00 --dry-run --json")
    assert [row["new_offset"] for row in json.loads(result.out)] == [4, 0]
    assert "Warn: Partition 0 from topic orders is empty." in result.err
    assert reset.planned("--topic orders:0 --by-duration P1D") == {"orders-0": 4}
    assert reset.planned("--topic orders:0 --by-duration P99999D") == {"orders-0": 0}


def test_offsets_change_only_with_execute(reset: Reset) -> None:
    assert reset("--topic orders:0 --to-earliest --dry-run").lines == [
        "",
        "GROUP           TOPIC           PARTITION  NEW-OFFSET",
        "billing         orders          0          0",
    ]
    preview = reset("--topic orders:0 --to-earliest")
    assert "add --execute to commit them" in preview.err
    assert reset.committed() == ["2"]
    assert reset("--topic orders:0 --to-earliest --execute").code == 0
    assert reset.committed() == ["0"]


def test_committing_offsets_creates_a_group(reset: Reset) -> None:
    result = reset("--topic orders:0 --to-offset 3 --execute --json", group="new")
    assert [row["group"] for row in json.loads(result.out)] == ["new"]
    assert reset("--all-topics --to-current --json", group="new").code == 0


def test_group_with_members_is_not_reset(site: CliSite, reset: Reset) -> None:
    stable(site.broker)
    result = reset("--topic orders --to-earliest --execute", group=GROUP)
    assert result.code == 1
    assert result.err == (
        f"plog: cannot reset offsets for group '{GROUP}': its state is "
        "Stable; stop its consumers first\n"
    )


def test_exported_plan_is_executed_from_a_file(reset: Reset, tmp_path: Path) -> None:
    exported = reset("--topic orders --to-earliest --dry-run --export")
    assert exported.out == "orders,0,0\norders,1,0\n"
    plan = tmp_path / "plan.csv"
    plan.write_text(exported.out.replace("orders,0,0", "orders,0,3"))
    assert reset("--from-file", plan, "--execute").code == 0
    assert reset.committed() == ["3", "0"]
    plan.write_text("other,orders,0,1\n")
    result = reset("--from-file", plan, "--dry-run")
    assert result.code == 1
    assert "does not contain offsets for group 'billing'" in result.err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--topic orders", "specify exactly one of"),
        ("--topic orders --to-earliest --to-latest", "specify exactly one of"),
        ("--to-earliest", "requires --topic, --all-topics or --from-file"),
        ("--topic orders --all-topics --to-earliest", "cannot be combined"),
        ("--topic orders --to-earliest --dry-run --execute", "cannot be combined"),
        ("--topic orders --to-datetime yesterday", "is not a time like"),
        ("--topic orders --to-datetime 2026-01-01", "is not a time like"),
        ("--topic orders --by-duration 1d", "is not a duration like"),
        ("--topic orders --shift-by x", "--shift-by"),
        ("--topic orders:7 --to-earliest --dry-run", "partitions orders-7 do not exist"),
        ("--topic none --to-earliest --dry-run", "none"),
        ("--topic orders --shift-by 1 --dry-run", "has no offset for orders-1"),
    ],
)
def test_error_is_one_line(reset: Reset, line: str, message: str) -> None:
    result = reset(line)
    assert result.code == 1
    assert message in result.err
    assert len(result.err.splitlines()) == 1


def test_datetime_is_utc_unless_it_has_a_zone() -> None:
    assert datetime_ms("1970-01-01T00:00:01.5") == 1500
    assert datetime_ms("1970-01-01T02:00:00+02:00") == 0
    assert duration_ms("PT1M") == 60_000


def test_plan_requires_group_names_unless_there_is_only_one() -> None:
    both = parse_plan("a,orders,0,1\nb,orders,1,2\n", ["a", "b"])
    assert both == {"a": {FIRST: 1}, "b": {SECOND: 2}}
    assert parse_plan('"orders",1,2\n\n', ["a"]) == {"a": {SECOND: 2}}
    for text in ("orders,0", "orders,0,1", "a,orders,x,1"):
        with pytest.raises(UsageError, match="line 1"):
            parse_plan(text, ["a", "b"])


def test_reset_of_no_groups_prints_an_empty_line() -> None:
    assert reset_lines([], []) == [""]
