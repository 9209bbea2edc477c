"""plog/cli/zookeeper/commands.py: the requests and output of each command."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from plog.cli.zookeeper.commands import hex_lines, run_command
from plog.cli.zookeeper.ports import Console
from plog.cli.zookeeper.text_format import CommandRefused, split_words
from tests.helpers.fake_zookeeper import FakeZooKeeper


@dataclass
class Shell:
    """A fake ZooKeeper and the notes that commands printed."""

    zookeeper: FakeZooKeeper = field(default_factory=FakeZooKeeper)
    notes: list[str] = field(default_factory=list)

    def run(self, *lines: str) -> list[str]:
        """Run `lines` and return their output."""
        console = Console(self.zookeeper, self.notes.append)
        return [each for line in lines for each in run_command(console, split_words(line))]

    def error_of(self, line: str) -> str:
        """Return the error message of `line`, which must fail."""
        with pytest.raises(CommandRefused) as refused:
            self.run(line)
        return str(refused.value)


@pytest.fixture
def shell() -> Shell:
    """A shell on a tree of /a with the data `x`, /a/b, /a/b/c, /a/d and /e."""
    shell = Shell()
    shell.run("create /a x", "create /a/b", "create /a/b/c", "create /a/d", "create /e")
    assert shell.notes[0] == "Created /a"
    shell.notes.clear()
    return shell


def test_ls_sorts_the_names(shell: Shell) -> None:
    assert shell.run("ls /", "ls /e") == ["[a, e]", "[]"]
    assert shell.run("ls -s /a")[:2] == ["[b, d]", "cZxid = 0x1"]


def test_ls_recursive_lists_children_before_their_descendants(shell: Shell) -> None:
    assert shell.run("ls -R /") == ["/", "/a", "/e", "/a/b", "/a/d", "/a/b/c"]
    assert shell.error_of("ls -R /nope") == "Node does not exist: /nope"


def test_option_and_deprecated_word_set_watches(shell: Shell) -> None:
    shell.run("get -w /a", "ls -w /a", "stat -w /a", "get /a true")
    assert shell.zookeeper.watched == ["/a"] * 4
    assert shell.notes == [
        "'get path [watch]' has been deprecated. Please use 'get [-s] [-w] path' instead."
    ]


def test_get_prints_data_in_the_requested_format(shell: Shell) -> None:
    assert shell.run("get /a", "get -b /a", "get /e") == ["x", "eA==", "null"]
    assert "|00000000| 78 " in shell.run("get -x /a")[3]
    assert shell.run("get -s /a")[-2:] == ["dataLength = 1", "numChildren = 0"]
    shell.zookeeper.nodes["/a"].data = b"\xff"
    assert shell.run("get /a") == ["\ufffd"]


def test_hex_dump_has_sixteen_bytes_per_line() -> None:
    rows = list(hex_lines(b"0123456789abcdef\n"))[3:-1]
    assert rows[0].endswith("|0123456789abcdef|")
    assert rows[1].startswith("|00000010| 0a ")
    assert rows[1].endswith("|.               |")


@pytest.mark.parametrize(
    ("line", "path", "mode"),
    [
        ("create -e /n x", "/n", "e"),
        ("create -c /n", "/n", "c"),
        ("create -t 500 /n x", "/n", "t500"),
        ("create -s -e /n- x", "/n-0000000006", "es"),
        ("create -s /a/", "/a/0000000006", "s"),
    ],
)
def test_create_supports_every_mode(shell: Shell, line: str, path: str, mode: str) -> None:
    assert shell.run(line) == []
    assert shell.notes == [f"Created {path}"]
    assert shell.zookeeper.nodes[path].mode == mode


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("create -c -e /n", "-c cannot be combined with -s or -e."),
        ("create -t 5 -e /n", "TTLs cannot be used with Ephemeral znodes"),
        ("create -t 5 -c /n", "TTLs cannot be used with Container znodes"),
        ("create -t x /n", "-t argument must be a long value"),
        ("create -t 0 /n", "ttl must be positive and cannot be larger than: 1099511627775"),
        ("create", r"create [-s] [-e] [-c] [-t ttl] path [data] [acl]"),
        ("create /n x world", "Acl is not valid : /n"),
        ("create n", "Path must start with / character"),
        ("set /a", "set [-s] [-v version] [-b] path data"),
        ("set -b /a ?", "cannot decode the data as base64"),
        ("set -v 7 /a y", "version No is not valid : /a"),
        ("set -v 99999999999 /a y", "-v argument must be an int value"),
        ("stat /nope", "Node does not exist: /nope"),
        ("deleteall /nope", "Node does not exist: /nope"),
        ("ls", "ls [-s] [-w] [-R] path"),
    ],
)
def test_invalid_command_fails_with_zookeepers_message(
    shell: Shell, line: str, problem: str
) -> None:
    before = dict(shell.zookeeper.nodes)
    assert shell.error_of(line).startswith(problem)
    assert shell.zookeeper.nodes == before


def test_set_changes_data_and_prints_statistics(shell: Shell) -> None:
    assert shell.run("set /a y", "set -b /e aGk=") == []
    assert "dataVersion = 2" in shell.run("set -s -v 1 /a z")
    assert shell.run("get /a", "get /e") == ["z", "hi"]


def test_delete_passes_version_only_from_the_option(shell: Shell) -> None:
    shell.run("delete -v 3 /e", "delete /a/d 1")
    assert shell.zookeeper.calls == ["delete /e 3", "delete /a/d -1"]
    assert shell.notes == [
        "'delete path [version]' has been deprecated. "
        "Please use 'delete [-v version] path' instead."
    ]


def test_deleteall_deletes_children_first_in_batches(shell: Shell) -> None:
    shell.run("deleteall /a -b 3")
    assert shell.zookeeper.calls == ["delete /a/b/c /a/d /a/b", "delete /a"]
    assert shell.run("ls -R /") == ["/", "/e"]


def test_deleteall_prints_a_note_and_stops_when_a_batch_fails(shell: Shell) -> None:
    shell.zookeeper.is_undeletable = True
    shell.run("deleteall -b 1 /a")
    assert shell.zookeeper.calls == ["delete /a/b/c"]
    assert shell.notes == ["Failed to delete some node(s) in the subtree!"]


def test_acls_are_printed_and_changed(shell: Shell) -> None:
    assert shell.run("getAcl /a") == ["'world,'anyone", ": cdrwa"]
    assert shell.run("setAcl -s /a world:anyone:r")[0] == "cZxid = 0x1"
    assert shell.run("getAcl -s /a")[:3] == ["'world,'anyone", ": r", "cZxid = 0x1"]
    shell.zookeeper.calls.clear()
    assert shell.run("setAcl -R -v 2 /a ip:10.0.0.1:rx") == []
    assert shell.zookeeper.calls == ["acls /a 2", "acls /a/b 2", "acls /a/d 2", "acls /a/b/c 2"]
    assert shell.notes == ["Unknown perm type: x"]


def test_session_and_server_commands_print_results(shell: Shell) -> None:
    shell.run("create -e /a/eph", "addauth digest u:p", "addauth ip")
    assert shell.run("getEphemerals", "getEphemerals /e") == ["[/a/eph]", "[]"]
    assert shell.run("getAllChildrenNumber /a") == ["4"]
    assert shell.run("sync /", "whoami")[:2] == ["Sync is OK", "Auth scheme: User"]
    assert shell.run("whoami")[1:] == ["ip: 127.0.0.1", "digest: u"]
    assert shell.run("config -s")[:2] == ["version=0", "cZxid = 0x1"]
    assert shell.run("version")[0].startswith("ZooKeeper CLI version: plog ")
    assert shell.zookeeper.calls == ["auth digest u:p", "auth ip ", "sync /"]


def test_persistent_watches_are_added_and_removed(shell: Shell) -> None:
    shell.run("addWatch /a", "addWatch -m persistent /nope", "removewatches /a")
    shell.run("removewatches -d /a", "removewatches /a -c -l")
    assert shell.zookeeper.calls == [
        "watch /a True",
        "watch /nope False",
        "unwatch /a a False",
        "unwatch /a d False",
        "unwatch /a c True",
    ]
    usage = shell.error_of("addWatch -m ever /a")
    assert usage.endswith("of [PERSISTENT, PERSISTENT_RECURSIVE] - default is PERSISTENT_RECURSIVE")
    assert shell.error_of("addWatch /a /b") == shell.error_of("addWatch") == usage
