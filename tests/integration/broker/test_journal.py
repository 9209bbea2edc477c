"""A broker whose standard error is systemd's journal: entries with fields, and lines without it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from plogd.testing.ready_socket import ReadySocket
from tests.helpers.eventually import eventually
from tests.helpers.log.journal import Entry, JournalSocket
from tests.helpers.programs.kcat import Kcat

TIMEOUT_S = 60
# The broker with another path of the journal's socket, and standard error as the journal's stream.
_MAIN = """
import os, sys
from plogd import logging, tap
from plogd.__main__ import main
status = os.fstat(2)
journal = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
observer = logging.stream_observer(sys.stderr, journal, "info", journal_socket=sys.argv.pop(1))
tap.standard_observer = lambda: observer
sys.exit(main())
"""


class Broker:
    """A broker process and what it has written to the journal."""

    def __init__(self, process: subprocess.Popen[bytes], journal: JournalSocket, log: Path) -> None:
        self.process = process
        self.address = ""
        self._journal = journal
        self._log = log
        self._entries: list[Entry] = []

    def entries(self, **fields: str) -> list[Entry]:
        """Return all entries that have these values, as ``journalctl FIELD=value`` does."""
        self._entries += self._journal.entries()
        return [
            entry
            for entry in self._entries
            if all(value in entry.get(name, []) for name, value in fields.items())
        ]

    def lines(self) -> list[str]:
        """Return what the broker has written to standard error."""
        return self._log.read_text().splitlines()


@pytest.fixture
def journal() -> Iterator[JournalSocket]:
    """A socket in place of the journal's."""
    with closing(JournalSocket()) as opened:
        yield opened


@contextmanager
def running(folder: Path, journal: JournalSocket, **settings: Any) -> Iterator[Broker]:
    """Run a broker and stop it at the end."""
    words = [f"log.dirs={folder}/data", "listeners=PLAINTEXT://127.0.0.1:0", "plog.http.port=0"]
    words += [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
    options = [word for setting in words for word in ("-o", setting)]
    path = os.pathsep.join(entry for entry in sys.path if entry)
    log = folder / "stderr"
    with closing(ReadySocket()) as ready, log.open("ab") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-c", _MAIN, journal.path, *options],
            env={**os.environ, "PYTHONPATH": path, "NOTIFY_SOCKET": ready.path},
            stderr=stderr,
        )
        try:
            broker = Broker(process, journal, log)
            [broker.address] = ready.wait(process, TIMEOUT_S)
            yield broker
            process.send_signal(signal.SIGTERM)
            assert process.wait(TIMEOUT_S) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()


def test_entries_about_a_topic_have_its_name(tmp_path: Path, journal: JournalSocket) -> None:
    with running(tmp_path, journal, num_partitions=2, log_segment_bytes=1 << 20) as broker:
        kcat = Kcat(broker.address)
        kcat.produce("other", b"x\n")
        for _ in range(3):
            kcat.produce("clicks", b"x" * 600_000 + b"\n", "-p", "1")
        eventually(lambda: broker.entries(PLOG_TOPIC="clicks", PLOG_PARTITION="1"), "rolled log")
        about = broker.entries(PLOG_TOPIC="clicks")
        assert about[0]["MESSAGE"] == ["created topic clicks with 2 partitions"]
        rolled = broker.entries(PLOG_TOPIC="clicks", PLOG_PARTITION="1")[0]
        assert rolled["MESSAGE"][0].startswith("rolled segment of clicks-1 at offset ")
        assert not broker.entries(PLOG_TOPIC="other", PLOG_PARTITION="1")
        assert broker.lines() == []
    assert broker.entries(MESSAGE="stopped")[0] == {
        "MESSAGE": ["stopped"],
        "PRIORITY": ["6"],
        "SYSLOG_IDENTIFIER": ["plog-broker"],
        "PLOG_MODULE": ["plogd.service"],
    }


def test_entry_that_lists_partitions_has_all_their_topics(
    tmp_path: Path, journal: JournalSocket
) -> None:
    for name in ("one-0", "two-1"):
        (tmp_path / "data" / f"{name}.{'0' * 32}-stray").mkdir(parents=True)
    with running(tmp_path, journal) as broker:
        [stray] = broker.entries(PLOG_TOPIC="one")
    assert f"{tmp_path}/data contains 2 partitions of unknown topics" in stray["MESSAGE"][0]
    assert sorted(stray["PLOG_TOPIC"]) == ["one", "two"]
    assert sorted(stray["PLOG_PARTITION"]) == ["0", "1"]


def test_entries_about_a_client_have_its_address_and_id(
    tmp_path: Path, journal: JournalSocket
) -> None:
    with running(tmp_path, journal) as broker:
        host, _, port = broker.address.rpartition(":")
        with socket.create_connection((host, int(port)), TIMEOUT_S) as client:
            api_versions = b"\0\x12\0\0\0\0\0\x07\0\x04shop"
            client.sendall(len(api_versions).to_bytes(4, "big") + api_versions)
            client.recv(4)
            client.sendall(b"\xff\xff\xff\xff")  # The size of a request, which is invalid.
            while client.recv(4096):
                pass
        [entry] = eventually(lambda: broker.entries(PLOG_CLIENT="shop"), "entry")
    assert entry["PLOG_CLIENT_ADDRESS"] == ["127.0.0.1"]
    assert entry["PRIORITY"] == ["4"]
    assert entry["MESSAGE"][0].startswith("127.0.0.1: closed a connection")


def test_broker_writes_lines_until_the_journal_is_there(
    tmp_path: Path, journal: JournalSocket
) -> None:
    away = journal.path + ".away"
    os.rename(journal.path, away)
    with running(tmp_path, journal) as broker:
        assert any(line.startswith("<6>plogd.service: listening on ") for line in broker.lines())
        os.rename(away, journal.path)
        lines = broker.lines()
    assert broker.entries(MESSAGE="stopping")
    assert broker.lines() == lines


def fill(path: str) -> None:
    """Send entries until the journal accepts no more."""
    nonblocking = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
    with socket.socket(socket.AF_UNIX, nonblocking) as filling, suppress(BlockingIOError):
        while True:
            filling.sendto(b"MESSAGE=filling\n", path)


def test_full_journal_does_not_stop_the_broker(tmp_path: Path, journal: JournalSocket) -> None:
    """A journal that reads nothing, and then everything: each entry or line arrives once."""
    with running(tmp_path, journal) as broker:
        kcat = Kcat(broker.address)
        topics = ["t0", "t1", "t2"]
        fill(journal.path)
        for topic in topics[:2]:
            kcat.produce(topic, b"x\n")
        lines = broker.lines()
        assert sum("created topic t" in line for line in lines) == 2
        assert len(broker.entries(MESSAGE="filling")) > 1
        kcat.produce(topics[2], b"x\n")
        assert broker.entries(PLOG_TOPIC=topics[2])
        assert not broker.entries(PLOG_TOPIC=topics[0])
        assert broker.lines() == lines
