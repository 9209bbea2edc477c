"""plog/cli/zookeeper/quotas.py: the znodes of quotas and the messages of their commands."""

from __future__ import annotations

import pytest

from plog.cli.zookeeper.commands import run_command
from plog.cli.zookeeper.ports import Console
from plog.cli.zookeeper.quotas import parse_track, track_text
from plog.cli.zookeeper.text_format import CommandRefused, split_words
from tests.helpers.fake_zookeeper import FakeZooKeeper

_LIMITS = "/zookeeper/quota/a/b/zookeeper_limits"
_NO_NUMBER = "NumberFormatException happens when parsing the option value"
_COUNTED = "/zookeeper/quota/a/b/zookeeper_stats"


class Shell:
    """A shell on a fake ZooKeeper with /a, /a/b and /a/b/c."""

    def __init__(self) -> None:
        self.zookeeper = FakeZooKeeper()
        self.notes: list[str] = []
        self.run("create /a", "create /a/b", "create /a/b/c")
        self.notes.clear()

    def run(self, *lines: str) -> list[str]:
        """Run `lines` and return their output."""
        console = Console(self.zookeeper, self.notes.append)
        return [each for line in lines for each in run_command(console, split_words(line))]

    def data(self, path: str) -> bytes | None:
        """Return the data of a znode."""
        return self.zookeeper.nodes[path].data


@pytest.fixture
def shell() -> Shell:
    """A shell on a tree without quotas."""
    return Shell()


def test_first_limit_creates_the_znodes_and_later_limits_change_them(shell: Shell) -> None:
    assert shell.run("setquota -n 5 /a/b") == []
    assert shell.data(_LIMITS) == b"count=5,bytes=-1=;byteHardLimit=-1;countHardLimit=-1"
    assert shell.data(_COUNTED) == b"count=0,bytes=0"
    assert shell.run("setquota -B 70 /a/b", "setquota -b 0 /a/b") == []
    assert shell.data(_LIMITS) == b"count=5,bytes=0=;byteHardLimit=70;countHardLimit=-1"


def test_limit_below_usage_is_set_with_a_warning(shell: Shell) -> None:
    shell.run("setquota -n 5 /a/b")
    shell.zookeeper.nodes[_COUNTED].data = b"count=7,bytes=20"
    assert shell.run("setquota -B 19 /a/b") == [
        "[Warning]: the count quota you create is less than the existing count:7",
        "[Warning]: the bytes quota you create is less than the existing bytes:20",
    ]
    assert b"byteHardLimit=19" in (shell.data(_LIMITS) or b"")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("setquota /a", "Missing required option: [-n num soft quota, -b bytes soft quota, "),
        (
            "setquota -n 5 -B 6 /a",
            "The option 'B' was specified but an option from this group ",
        ),
        ("setquota -n", "Missing argument for option: n"),
        ("setquota -n 5", "setquota -n|-b|-N|-B val path"),
        ("setquota -n 5 /nope", "/nope does not exist."),
        ("setquota -n 5 a", "Path must start with / character"),
        ("setquota -n 5 /", "Path must not end with / character"),
        ("setquota -n 5 /a", "/a has a child /a/b which has a quota"),
        ("setquota -n 5 /a/b/c", "/a/b/c has a parent /a/b which has a quota"),
        ("delquota -n -b /a/b", "The option 'b' was specified but an option from this group "),
        ("delquota", "delquota [-n|-b|-N|-B] path"),
        ("listquota", "listquota path"),
        ("listquota /", 'Invalid path string "/zookeeper/quota//zookeeper_limits" caused by '),
    ],
)
def test_invalid_command_fails_with_zookeepers_message(
    shell: Shell, line: str, problem: str
) -> None:
    shell.run("setquota -n 5 /a/b")
    before = {path: node.data for path, node in shell.zookeeper.nodes.items()}
    with pytest.raises(CommandRefused) as refused:
        shell.run(line)
    assert str(refused.value).startswith(problem)
    assert {path: node.data for path, node in shell.zookeeper.nodes.items()} == before


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("setquota -n 0 /a", "the num quota must be greater than zero"),
        ("setquota -N -1 /a", "the num quota must be greater than zero"),
        ("setquota -b -1 /a", "the bytes quota must be greater than or equal to zero"),
        ("setquota -n x /a", _NO_NUMBER),
        (
            "setquota -N 2147483648 /a",
            _NO_NUMBER,
        ),
        ("setquota -n 5 /zookeeper/quota/a", "cannot set a quota under the path: /zookeeper/quota"),
        ("listquota /a", "quota for /a does not exist."),
    ],
)
def test_some_errors_are_printed_as_notes(shell: Shell, line: str, note: str) -> None:
    assert shell.run(line) == []
    assert shell.notes[-1] == note
    assert "/zookeeper" not in shell.zookeeper.nodes


def test_listquota_prints_limits_and_usage(shell: Shell) -> None:
    shell.run("setquota -N 5 /a/b")
    assert shell.run("listquota /a/b") == [
        "Output quota for /a/b count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=5",
        "Output stat for /a/b count=0,bytes=0",
    ]
    assert shell.notes == [f"absolute path is {_LIMITS}"]


def test_delquota_removes_only_the_given_limit(shell: Shell) -> None:
    shell.run("setquota -n 5 /a/b", "setquota -b 6 /a/b", "delquota -n /a/b")
    assert parse_track(shell.data(_LIMITS))["count"] == -1
    assert parse_track(shell.data(_LIMITS))["bytes"] == 6


def test_delquota_deletes_empty_parents(shell: Shell) -> None:
    shell.run("create /a/x", "setquota -n 5 /a/b", "setquota -n 5 /a/x", "delquota /a/b")
    below = [path for path in shell.zookeeper.nodes if path.startswith("/zookeeper/quota/")]
    assert below[:2] == ["/zookeeper/quota/a", "/zookeeper/quota/a/x"]
    assert len(below) == 4
    shell.run("delquota /a/x")
    assert [path for path in shell.zookeeper.nodes if path.startswith("/zookeeper")] == [
        "/zookeeper",
        "/zookeeper/quota",
    ]
    assert shell.run("delquota /a/x") == ["Quota does not exist for /a/x"]


def test_invalid_quota_data_is_an_error() -> None:
    with pytest.raises(CommandRefused, match="cannot parse 'count=x' as a quota"):
        parse_track(b"count=x")
    assert track_text(parse_track(None)) == "count=-1,bytes=-1"
