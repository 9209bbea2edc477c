"""The lines of log events, the level filter and the rate limit."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from twisted.logger import LogLevel
from twisted.python.failure import Failure

from plog.types import TopicPartition
from plogd.logging import LineObserver, RateLimit, stream_observer
from tests.helpers.log.journal import Entry, JournalSocket


def event(text: str = "text", level: str = "info", **rest: Any) -> dict[str, Any]:
    return {
        "log_format": "{text}",
        "text": text,
        "log_level": LogLevel.levelWithName(level),
        "log_namespace": "plogd.log.log",
        "log_time": 1_769_860_800.0625,
        **rest,
    }


def written(*events: dict[str, Any], level: str = "debug") -> str:
    parts: list[str] = []
    observer = LineObserver(parts.append, level)
    for each in events:
        observer(each)
    return "".join(parts)


class Journal:
    """Receives entries and lines, as the journal does; `accepts` says whether it takes entries."""

    def __init__(self, path: Path, *, accepts: bool) -> None:
        self._socket = JournalSocket() if accepts else None
        self._file = (path / "stderr").open("w+")
        status = os.fstat(self._file.fileno())
        self.observer = stream_observer(
            self._file,
            {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"},
            "debug",
            journal_socket=self._socket.path if self._socket else str(path / "none"),
        )

    def entries(self) -> list[Entry]:
        """Return the entries that have arrived."""
        assert self._socket is not None
        return self._socket.entries()

    def lines(self) -> list[str]:
        """Return the lines that were written to standard error."""
        self._file.seek(0)
        return self._file.read().splitlines()

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        if self._socket is not None:
            self._socket.close()


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """A journal that accepts entries."""
    with closing(Journal(tmp_path, accepts=True)) as opened:
        yield opened


@pytest.fixture
def journal_stream(tmp_path: Path) -> Iterator[Journal]:
    """A journal that only reads standard error."""
    with closing(Journal(tmp_path, accepts=False)) as opened:
        yield opened


def test_line_has_time_level_namespace_and_text() -> None:
    assert written(event()) == "2026-01-31T12:00:00.062Z INFO plogd.log.log: text\n"


@pytest.mark.parametrize(
    ("level", "priority"),
    [("debug", 7), ("info", 6), ("warn", 4), ("error", 3), ("critical", 2)],
)
def test_journal_gets_priority_instead_of_time_and_level(
    level: str, priority: int, journal: Journal, journal_stream: Journal
) -> None:
    journal.observer(event(level=level))
    [entry] = journal.entries()
    assert (entry["MESSAGE"], entry["PRIORITY"]) == (["text"], [str(priority)])
    journal_stream.observer(event(level=level))
    assert journal_stream.lines() == [f"<{priority}>plogd.log.log: text"]


def test_journal_entry_has_module_and_context(journal: Journal) -> None:
    where = TopicPartition("clicks", 3)
    journal.observer(event(topic_partition=where, log_format="rolled {topic_partition}"))
    assert journal.entries() == [
        {
            "MESSAGE": ["rolled clicks-3"],
            "PRIORITY": ["6"],
            "SYSLOG_IDENTIFIER": ["plog-broker"],
            "PLOG_MODULE": ["plogd.log.log"],
            "PLOG_TOPIC": ["clicks"],
            "PLOG_PARTITION": ["3"],
        }
    ]
    assert journal.lines() == []


def test_text_of_a_client_cannot_forge_a_field(journal: Journal) -> None:
    journal.observer(event("a\nPRIORITY=0", topic="b\nPLOG_TOPIC=c\x1b" + "d" * 1000))
    [entry] = journal.entries()
    assert entry["MESSAGE"] == ["a\\nPRIORITY=0"]
    assert entry["PRIORITY"] == ["6"]
    [topic] = entry["PLOG_TOPIC"]
    assert topic.startswith("b\\nPLOG_TOPIC=c\\x1bdd")
    assert len(topic) == 256


def test_event_text_cannot_forge_a_second_line() -> None:
    line = written(event("a\r\n2026 INFO b\x1b[31m\u2028\x85"))
    assert line.endswith(": a\\r\\n2026 INFO b\\x1b[31m\\u2028\\x85\n")
    assert len(line.splitlines()) == 1


def test_traceback_is_indented_and_each_line_has_the_priority(
    journal: Journal, journal_stream: Journal
) -> None:
    try:
        raise ValueError("first\nsecond\x00")
    except ValueError:
        failure = Failure()  # type: ignore[no-untyped-call]
    plain = written(event(level="critical", log_failure=failure)).splitlines()
    assert plain[0].endswith("CRITICAL plogd.log.log: text")
    assert all(line.startswith("    ") for line in plain[1:])
    assert any("second\\x00" in line for line in plain)
    journal_stream.observer(event(level="critical", log_failure=failure))
    assert len(journal_stream.lines()) == len(plain)
    assert all(line.startswith("<2>") for line in journal_stream.lines())
    journal.observer(event(level="critical", log_failure=failure))
    [entry] = journal.entries()
    assert entry["MESSAGE"] == ["\n".join(["text", *plain[1:]])]


def test_events_below_the_level_are_not_written() -> None:
    events = [event(name, name) for name in ("debug", "info", "warn", "error", "critical")]
    shown = written(*events, level="warn").splitlines()
    assert [line.rpartition(" ")[2] for line in shown] == ["warn", "error", "critical"]


def test_level_can_change_at_run_time() -> None:
    parts: list[str] = []
    observer = LineObserver(parts.append, "error")
    observer(event("before"))
    observer.set_level("debug")
    observer(event("after", "debug"))
    assert [part.split()[-1] for part in parts] == ["after"]
    assert (observer.level, observer.writes("debug")) == ("debug", True)
    observer.set_level("warn")
    assert (observer.writes("info"), observer.writes("warn")) == (False, True)


@pytest.mark.parametrize("namespace", ["twisted.web.server.Site", "log_legacy"])
def test_info_events_of_twisted_count_as_debug(namespace: str) -> None:
    chatter = event("starting", log_namespace=namespace)
    warning = event("warning", "warn", log_namespace=namespace)
    assert written(chatter, warning, level="info").count("\n") == 1
    assert "DEBUG" in written(chatter, level="debug")


def test_empty_event_is_written_as_a_line() -> None:
    assert written({}) == "1970-01-01T00:00:00.000Z INFO -: \n"


def test_stream_of_another_process_is_not_the_journal(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+") as stream:
        stream_observer(stream, {"JOURNAL_STREAM": "1:2"}, "info")(event())
        stream.seek(0)
        assert stream.read().startswith("2026-")


@pytest.mark.parametrize("environment", [{}, {"JOURNAL_STREAM": "1:2"}])
def test_stream_without_descriptor_is_not_the_journal(environment: dict[str, str]) -> None:
    stream = io.StringIO()
    stream_observer(stream, environment, "info")(event())
    assert stream.getvalue().startswith("2026-")


def test_one_event_per_key_passes_in_each_interval() -> None:
    limit = RateLimit(1000)
    assert limit.admit("a", 0) == 0
    assert limit.admit("a", 1) is None
    assert limit.admit("a", 999) is None
    assert limit.admit("b", 999) == 0
    assert limit.admit("a", 1000) == 2
    assert limit.admit("a", 2000) == 0


def test_number_of_remembered_keys_is_bounded() -> None:
    limit = RateLimit(1000, keys_max=2)
    for key in ("a", "b"):
        limit.admit(key, 0)
    assert limit.admit("a", 1000) == 0  # Now "b" passed longest ago, so "c" replaces it.
    assert limit.admit("c", 1001) == 0
    assert limit.admit("a", 1002) is None
    assert limit.admit("b", 1003) == 0
