"""plog/cli/zookeeper/session.py: lines, their history, and the connection they go to."""

from __future__ import annotations

import pytest

from plog.cli.zookeeper.session import OnEvent, Session
from plog.error_base import PlogError
from tests.helpers.fake_zookeeper import FakeZooKeeper


class Sitting:
    """A session whose output is kept, with a fake behind every address but `down`."""

    def __init__(self) -> None:
        self.out: list[str] = []
        self.notes: list[str] = []
        self.fakes: dict[str, FakeZooKeeper] = {}
        self.on_event: OnEvent | None = None
        self.session = Session(self._connect, say=self.out.append, note=self.notes.append)

    def _connect(self, host: str, on_event: OnEvent) -> FakeZooKeeper:
        if host == "down":
            raise PlogError("cannot connect to down")
        self.on_event = on_event
        self.fakes[host] = FakeZooKeeper()
        return self.fakes[host]

    def run(self, *lines: str) -> list[str]:
        """What some lines print."""
        self.out.clear()
        for line in lines:
            self.session.execute(line)
        return list(self.out)


@pytest.fixture
def sitting() -> Sitting:
    """Connected to `here`."""
    sitting = Sitting()
    sitting.session.connect("here")
    return sitting


def test_the_connection_is_told_as_a_watch_that_fired(sitting: Sitting) -> None:
    assert sitting.out == [
        "",
        "WATCHER::",
        "",
        "WatchedEvent state:SyncConnected type:None path:null",
    ]
    sitting.out.clear()
    assert sitting.on_event is not None
    sitting.on_event("SyncConnected", "NodeDataChanged", "/a")
    assert sitting.out[-1] == "WatchedEvent state:SyncConnected type:NodeDataChanged path:/a"


def test_events_can_be_silenced(sitting: Sitting) -> None:
    assert sitting.run("printwatches", "printwatches off") == ["printwatches is on"]
    assert sitting.on_event is not None
    sitting.on_event("SyncConnected", "NodeDataChanged", "/a")
    assert sitting.run("printwatches", "printwatches on") == ["printwatches is off"]


def test_the_history_has_the_last_eleven_and_this_one(sitting: Sitting) -> None:
    assert sitting.run("ls /", " ", "history") == ["[]", "0 - ls /", "1 - history"]
    sitting.run(*["version"] * 20)
    assert [line.split()[0] for line in sitting.run("history")] == [str(n) for n in range(12, 23)]


def test_redo_runs_an_earlier_line_and_takes_its_place(sitting: Sitting) -> None:
    sitting.run("create /a x", "get /a")
    assert sitting.run("redo 1", "history")[:1] == ["x"]
    assert sitting.out[-2:] == ["2 - get /a", "3 - history"]
    sitting.run("redo 2", "redo 5", "redo x", "redo")
    assert sitting.notes[-3:] == ["Command index out of range", "redo cmdno", "redo cmdno"]
    sitting.run("redo 5")
    assert sitting.notes[-1] == "No redoing redos"


def test_the_exit_code_is_the_last_commands(sitting: Sitting) -> None:
    sitting.run("get /nope")
    assert (sitting.session.exit_code, sitting.notes) == (1, ["Node does not exist: /nope"])
    sitting.run("bogus")
    assert sitting.session.exit_code == 127
    assert sitting.notes[-1] == "Command not found: Command not found bogus"
    sitting.run("ls /")
    assert sitting.session.exit_code == 0


def test_a_command_of_an_older_zookeeper_is_taken_for_todays(sitting: Sitting) -> None:
    sitting.run("create /a", "create /a/b", "rmr /a")
    assert sitting.notes[-1] == "'rmr' has been deprecated. Please use 'deleteall' instead."
    assert "/a" not in str(sitting.run("ls /"))
    assert sitting.session.exit_code == 0


def test_help_tells_every_command_and_its_options(sitting: Sitting) -> None:
    lines = sitting.run("help")
    assert "\tls [-s] [-w] [-R] path" in lines
    assert "\tredo cmdno" in lines
    assert lines[1:] == sorted(lines[1:])


def test_a_closed_session_answers_nothing_until_it_connects(sitting: Sitting) -> None:
    assert sitting.run("close")[-1] == "WatchedEvent state:Closed type:None path:null"
    assert sitting.fakes["here"].state == "CLOSED"
    assert sitting.session.prompt == "[zk: here(CLOSED) 1] "
    assert sitting.run("ls /", "close", "help")[:2] == ["Not connected", "Not connected"]
    assert sitting.run("connect there", "ls /")[-1] == "[]"
    assert sitting.session.prompt.startswith("[zk: there(CONNECTED) ")


def test_a_session_that_was_lost_is_not_used(sitting: Sitting) -> None:
    sitting.fakes["here"].state = "CLOSED"
    assert sitting.run("ls /") == ["Not connected"]


def test_a_connection_that_cannot_be_made_leaves_a_shell(sitting: Sitting) -> None:
    sitting.run("connect down")
    assert (sitting.session.exit_code, sitting.notes) == (1, ["plog: cannot connect to down"])
    assert sitting.run("ls /") == ["Not connected"]


@pytest.mark.parametrize("word", ["quit", "exit"])
def test_quit_ends_the_connection_and_the_shell(sitting: Sitting, word: str) -> None:
    sitting.run(word)
    assert sitting.session.is_over
    assert sitting.fakes["here"].state == "CLOSED"


def test_commands_and_paths_are_completed(sitting: Sitting) -> None:
    sitting.run("create /a", "create /a/bc", "create /a/bd", "create /x")
    assert list(sitting.session.completions("getA")) == ["getAcl ", "getAllChildrenNumber "]
    assert list(sitting.session.completions("/")) == ["/a", "/x"]
    assert list(sitting.session.completions("/a/b")) == ["/a/bc", "/a/bd"]
    assert list(sitting.session.completions("/nope/b")) == []
    sitting.session.close()
    assert list(sitting.session.completions("/")) == []
