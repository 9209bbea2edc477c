"""plog/cli/zookeeper/session.py: command history, connection and completion."""

from __future__ import annotations

import pytest

from plog.cli.zookeeper.session import OnEvent, Session
from plog.error_base import PlogError
from tests.helpers.fake_zookeeper import FakeZooKeeper


class RecordedSession:
    """A session with its output; connects to a fake for every host but `down`."""

    def __init__(self) -> None:
        self.out: list[str] = []
        self.notes: list[str] = []
        self.fakes: dict[str, FakeZooKeeper] = {}
        self.on_event: OnEvent | None = None
        self.session = Session(self._connect, print_line=self.out.append, note=self.notes.append)

    def _connect(self, host: str, on_event: OnEvent) -> FakeZooKeeper:
        if host == "down":
            raise PlogError("cannot connect to down")
        self.on_event = on_event
        self.fakes[host] = FakeZooKeeper()
        return self.fakes[host]

    def run(self, *lines: str) -> list[str]:
        """Run `lines` and return their output."""
        self.out.clear()
        for line in lines:
            self.session.execute(line)
        return list(self.out)


@pytest.fixture
def recorded() -> RecordedSession:
    """A session that is connected to `here`."""
    recorded = RecordedSession()
    recorded.session.connect("here")
    return recorded


def test_connection_is_reported_as_a_watch_event(recorded: RecordedSession) -> None:
    assert recorded.out == [
        "",
        "WATCHER::",
        "",
        "WatchedEvent state:SyncConnected type:None path:null",
    ]
    recorded.out.clear()
    assert recorded.on_event is not None
    recorded.on_event("SyncConnected", "NodeDataChanged", "/a")
    assert recorded.out[-1] == "WatchedEvent state:SyncConnected type:NodeDataChanged path:/a"


def test_printwatches_turns_events_off(recorded: RecordedSession) -> None:
    assert recorded.run("printwatches", "printwatches off") == ["printwatches is on"]
    assert recorded.on_event is not None
    recorded.on_event("SyncConnected", "NodeDataChanged", "/a")
    assert recorded.run("printwatches", "printwatches on") == ["printwatches is off"]


def test_history_prints_the_last_eleven_commands(recorded: RecordedSession) -> None:
    assert recorded.run("ls /", " ", "history") == ["[]", "0 - ls /", "1 - history"]
    recorded.run(*["version"] * 20)
    assert [line.split()[0] for line in recorded.run("history")] == [str(n) for n in range(12, 23)]


def test_redo_runs_an_earlier_line_and_records_it(recorded: RecordedSession) -> None:
    recorded.run("create /a x", "get /a")
    assert recorded.run("redo 1", "history")[:1] == ["x"]
    assert recorded.out[-2:] == ["2 - get /a", "3 - history"]
    recorded.run("redo 2", "redo 5", "redo x", "redo")
    assert recorded.notes[-3:] == ["Command index out of range", "redo cmdno", "redo cmdno"]
    recorded.run("redo 5")
    assert recorded.notes[-1] == "No redoing redos"


def test_exit_code_is_that_of_the_last_command(recorded: RecordedSession) -> None:
    recorded.run("get /nope")
    assert (recorded.session.exit_code, recorded.notes) == (1, ["Node does not exist: /nope"])
    recorded.run("bogus")
    assert recorded.session.exit_code == 127
    assert recorded.notes[-1] == "Command not found: Command not found bogus"
    recorded.run("ls /")
    assert recorded.session.exit_code == 0


def test_renamed_command_runs_under_its_new_name(recorded: RecordedSession) -> None:
    recorded.run("create /a", "create /a/b", "rmr /a")
    assert recorded.notes[-1] == "'rmr' has been deprecated. Please use 'deleteall' instead."
    assert "/a" not in str(recorded.run("ls /"))
    assert recorded.session.exit_code == 0


def test_help_lists_every_command_with_its_usage(recorded: RecordedSession) -> None:
    lines = recorded.run("help")
    assert "\tls [-s] [-w] [-R] path" in lines
    assert "\tredo cmdno" in lines
    assert lines[1:] == sorted(lines[1:])


def test_closed_session_runs_no_commands_until_it_connects(recorded: RecordedSession) -> None:
    assert recorded.run("close")[-1] == "WatchedEvent state:Closed type:None path:null"
    assert recorded.fakes["here"].state == "CLOSED"
    assert recorded.session.prompt == "[zk: here(CLOSED) 1] "
    assert recorded.run("ls /", "close", "help")[:2] == ["Not connected", "Not connected"]
    assert recorded.run("connect there", "ls /")[-1] == "[]"
    assert recorded.session.prompt.startswith("[zk: there(CONNECTED) ")


def test_expired_session_runs_no_commands(recorded: RecordedSession) -> None:
    recorded.fakes["here"].state = "CLOSED"
    assert recorded.run("ls /") == ["Not connected"]


def test_failed_connect_leaves_the_shell_running(recorded: RecordedSession) -> None:
    recorded.run("connect down")
    assert (recorded.session.exit_code, recorded.notes) == (1, ["plog: cannot connect to down"])
    assert recorded.run("ls /") == ["Not connected"]


@pytest.mark.parametrize("word", ["quit", "exit"])
def test_quit_closes_the_connection_and_the_shell(recorded: RecordedSession, word: str) -> None:
    recorded.run(word)
    assert recorded.session.is_over
    assert recorded.fakes["here"].state == "CLOSED"


def test_commands_and_paths_are_completed(recorded: RecordedSession) -> None:
    recorded.run("create /a", "create /a/bc", "create /a/bd", "create /x")
    assert list(recorded.session.completions("getA")) == ["getAcl ", "getAllChildrenNumber "]
    assert list(recorded.session.completions("/")) == ["/a", "/x"]
    assert list(recorded.session.completions("/a/b")) == ["/a/bc", "/a/bd"]
    assert list(recorded.session.completions("/nope/b")) == []
    recorded.session.close()
    assert list(recorded.session.completions("/")) == []
