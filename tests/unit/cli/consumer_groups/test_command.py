"""plog/cli/consumer_groups/command.py and report.py against a simulated broker."""

from __future__ import annotations

import json

import pytest

from plog.cli.consumer_groups.command import configure, states_of, types_of
from plog.cli.consumer_groups.report import OffsetRow, member_lines, offset_lines, state_lines
from plog.cli.options import UsageError
from plog.client.admin.values import (
    BrokerDescription,
    GroupDescription,
    GroupState,
    MemberDescription,
)
from plog.types import TopicPartition
from tests.helpers.group.group_frames import GROUP, stable
from tests.helpers.offsets import commit
from tests.helpers.sim.sim_broker import create_topic
from tests.unit.cli.conftest import CliSite, Run


@pytest.fixture
def groups(site: CliSite) -> Run:
    """The tool, connected to a broker where a group has consumed part of a topic."""
    create_topic(site.broker, "orders", 2)
    site.broker.produce("orders", b"1", b"2", b"3")
    commit(site.broker, "billing", {("orders", 0): 1, ("orders", 1): 0})
    return site.tool(configure)


def test_groups_are_listed(groups: Run) -> None:
    assert groups("--list").lines == ["billing"]
    head, row = groups("--list", "--state").lines
    assert head.split() == ["GROUP", "STATE"]
    assert row == "billing".ljust(25) + " " + "Empty".ljust(20)
    head, row = groups("--list", "--state", "--type").lines
    assert row.split() == ["billing", "Classic", "Empty"]
    assert groups("--list", "--state", "stable").lines == ["GROUP".ljust(25) + " STATE".ljust(21)]
    [listed] = json.loads(groups("--list", "--json").out)
    assert (listed["group"], listed["state"]) == ("billing", "Empty")


def test_describe_prints_offsets_and_lag(groups: Run) -> None:
    described = groups("--describe", "--group", "billing")
    blank, head, first, second = described.lines
    assert blank == ""
    assert head.split() == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET",
                            "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"]  # fmt: skip
    assert first.split() == ["billing", "orders", "0", "1", "3", "2", "-", "-", "-"]
    assert second.split() == ["billing", "orders", "1", "0", "0", "0", "-", "-", "-"]
    assert described.err == "\nConsumer group 'billing' has no active members.\n"
    verbose = groups("--describe", "--all-groups", "--verbose").lines
    assert verbose[1].split()[3] == "LEADER-EPOCH"
    [group] = json.loads(groups("--describe", "--all-groups", "--json").out)
    assert [each["lag"] for each in group["partitions"]] == [2, 0]


def test_describe_prints_members_and_states(site: CliSite, groups: Run) -> None:
    stable(site.broker, 2, instances=True)
    _, head, first, second = groups("--describe", "--group", GROUP, "--members").lines
    assert head.split() == ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID",
                            "#PARTITIONS"]  # fmt: skip
    assert {first.split()[2], second.split()[2]} == {"i0", "i1"}
    _, head, row = groups("--describe", "--group", GROUP, "--state").lines
    assert head.split() == ["GROUP", "COORDINATOR", "(ID)", "ASSIGNMENT-STRATEGY", "STATE",
                            "#MEMBERS"]  # fmt: skip
    assert row.split()[1:3] == ["127.0.0.1:9092", "(1)"]
    assert row.split()[-2:] == ["Stable", "2"]


def test_unknown_group_is_a_one_line_error(groups: Run) -> None:
    result = groups("--describe", "--group", "none")
    assert result.code == 1
    assert "none" in result.err
    assert len(result.err.splitlines()) == 1


def test_groups_are_deleted(site: CliSite, groups: Run) -> None:
    done = groups("--delete", "--group", "billing")
    assert (done.code, done.out) == (
        0,
        "Deletion of requested consumer groups ('billing') was successful.\n",
    )
    commit(site.broker, "again", {("orders", 0): 1})
    stable(site.broker)
    done = groups("--delete", "--group", "again", "--group", GROUP)
    assert done.code == 1
    _, title, reason, _, rest = done.lines
    assert title == "Error: Deletion of some consumer groups failed:"
    assert reason.startswith(f"* Group '{GROUP}' could not be deleted due to: ")
    assert rest == "These consumer groups were deleted successfully: 'again'"


def test_offsets_are_deleted(groups: Run) -> None:
    done = groups("--delete-offsets", "--group", "billing", "--topic", "orders:0")
    assert done.code == 0
    assert done.lines == [
        "Request succeeded for deleting offsets from group billing.",
        "",
        "TOPIC           PARTITION  STATUS         ",
        "orders          0          Successful     ",
    ]
    done = groups("--delete-offsets", "--group", "billing", "--topic", "orders", "--topic", "none")
    assert done.code == 1
    assert [line.split()[:2] for line in done.lines[2:]] == [
        ["none", "-"],
        ["orders", "0"],
        ["orders", "1"],
    ]
    assert groups("--describe", "--group", "billing").lines == []


def test_deletion_json_contains_results_and_errors(site: CliSite, groups: Run) -> None:
    words = ("--group", "billing", "--json")
    done = groups("--delete-offsets", "--topic", "orders:0", "--topic", "none", *words)
    assert done.code == 1
    deleted = json.loads(done.out)
    assert [(x["topic"], x["partition"]) for x in deleted["partitions"]] == [
        ("none", -1),
        ("orders", 0),
    ]
    assert deleted["partitions"][1]["error"] is None
    done = groups("--delete", "--group", GROUP, *words)
    assert done.code == 1
    deleted = json.loads(done.out)
    assert deleted["deleted"] == ["billing"]
    assert list(deleted["errors"]) == [GROUP]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("orders-.*", "The regular expression `orders-.*` is valid."),
        ("a(", "The regular expression `a(` is invalid: "),
        ("(?=a)", "The regular expression `(?=a)` is invalid: RE2 does not support `(?=`."),
        (r"(a)\1", "is invalid: RE2 does not support"),
    ],
)
def test_validate_regex_works_without_a_broker(site: CliSite, pattern: str, message: str) -> None:
    result = site.run_line(configure, ["--validate-regex", pattern])
    assert result.code == 0
    assert message in result.out


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "exactly one of --list, --describe"),
        ("--list --delete --group g", "exactly one of"),
        ("--describe", "--describe requires --group or --all-groups"),
        ("--describe --group g --all-groups", "cannot be combined"),
        ("--list --group g", "--list lists all groups"),
        ("--describe --group g --members --offsets", "--describe accepts only one of"),
        ("--describe --group g --state Stable", "does not accept states"),
        ("--list --members", "--members requires --describe"),
        ("--list --state odd", "unknown state odd"),
        ("--list --type share", "unknown type share"),
        ("--describe --group g --topic t", "--topic requires"),
        ("--describe --group g --to-earliest", "--to-earliest requires --reset-offsets"),
        ("--delete-offsets --group g", "requires one --group, and at least one --topic"),
        ("--delete-offsets --group billing --topic orders:x", "partitions must be numbers"),
        ("--list --timeout 0", "0 is less than 1"),
    ],
)
def test_usage_error_is_one_line(groups: Run, line: str, message: str) -> None:
    result = groups(*line.split())
    assert result.code == 1
    assert message in result.err
    assert len(result.err.splitlines()) == 1


def test_bootstrap_server_is_required(site: CliSite) -> None:
    result = site.run_line(configure, ["--list"])
    assert result.err == "plog: no server specified; use --bootstrap-server HOST:PORT\n"


def test_states_and_types_are_case_insensitive() -> None:
    assert states_of("PREPARINGREBALANCE,dead") == ["PreparingRebalance", "Dead"]
    assert types_of("Classic") == ["classic"]
    with pytest.raises(UsageError):
        types_of("x")


# -- columns -----------------------------------------------------------------------------------

MEMBER = MemberDescription(
    member_id="consumer-1-abc",
    group_instance_id=None,
    client_id="consumer-1",
    host="/127.0.0.1",
    subscription=frozenset({"orders"}),
    assignment=frozenset({TopicPartition("orders", 1), TopicPartition("orders", 0)}),
)
STABLE = GroupDescription(
    group_id="a-group-with-a-long-name",
    state=GroupState.STABLE,
    protocol_type="consumer",
    protocol="range",
    type="classic",
    members=(MEMBER,),
    coordinator=BrokerDescription(id=1, host="a-host-with-a-long-name", port=9092),
)


def test_offset_columns_have_kafkas_widths() -> None:
    row = OffsetRow("g", "orders", 0, 3, 5, 9, MEMBER)
    unassigned = OffsetRow("g", "orders", 1, None, None, None, None)
    _, head, first, second = offset_lines([row, unassigned], verbose=False)
    assert head == (
        "GROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG"
        "             CONSUMER-ID     HOST            CLIENT-ID"
    )
    assert first == (
        "g               orders          0          5               9               4"
        "               consumer-1-abc  /127.0.0.1      consumer-1"
    )
    assert second == (
        "g               orders          1          -               -               -"
        "               -               -               -"
    )
    _, _, verbose, _ = offset_lines([row, unassigned], verbose=True)
    assert verbose.split()[3] == "3"


def test_member_columns_have_kafkas_widths() -> None:
    _, head, row = member_lines(STABLE, verbose=False)
    assert head == (
        "GROUP                    CONSUMER-ID     HOST            CLIENT-ID       #PARTITIONS     "
    )
    assert row == (
        "a-group-with-a-long-name consumer-1-abc  /127.0.0.1      consumer-1      2               "
    )
    _, head, row = member_lines(STABLE, verbose=True)
    assert head.endswith(
        "#PARTITIONS     CURRENT-EPOCH   CURRENT-ASSIGNMENT   TARGET-EPOCH    TARGET-ASSIGNMENT   "
    )
    assert row.split()[-4:] == ["-", "orders:0,1", "-", "-"]


def test_state_columns_have_kafkas_widths() -> None:
    _, head, row = state_lines(STABLE, verbose=False)
    assert head == (
        "GROUP                    COORDINATOR (ID)                  ASSIGNMENT-STRATEGY  STATE"
        "                #MEMBERS"
    )
    assert row == (
        "a-group-with-a-long-name a-host-with-a-long-name:9092  (1) range                Stable"
        "               1"
    )
    _, head, _ = state_lines(STABLE, verbose=True)
    assert head.split()[-3:] == ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH", "#MEMBERS"]
