"""Entries of the journal: their bytes, their fields, and what happens if nothing receives them."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import plogd
from plog.types import TopicPartition
from plogd.connection_context import ConnectionContext
from plogd.journal import (
    VALUES_MAX,
    JournalSender,
    JournalWriter,
    context_fields,
    encode_entry,
)
from tests.helpers.log.journal import JournalSocket, parse_entry

FIELDS = [("MESSAGE", "text"), ("PRIORITY", "6")]
LINE = "<6>plogd.log.log: text\n"


def client(client_id: str = "") -> ConnectionContext:
    return ConnectionContext(
        listener_name="PLAINTEXT",
        security_protocol="PLAINTEXT",
        client_address=("192.0.2.1", 40000),
        local_address=("192.0.2.9", 9092),
        client_id=client_id,
    )


# -- the bytes of an entry -------------------------------------------------------------------------


def test_value_on_one_line_follows_an_equals_sign() -> None:
    assert encode_entry([("MESSAGE", "a=b"), ("PRIORITY", "6")]) == b"MESSAGE=a=b\nPRIORITY=6\n"


def test_value_with_a_line_feed_follows_its_size() -> None:
    assert encode_entry([("MESSAGE", "a\nb\u00e9")]) == b"MESSAGE\n\5\0\0\0\0\0\0\0a\nb\xc3\xa9\n"


def test_name_may_occur_several_times() -> None:
    assert (
        encode_entry([("PLOG_TOPIC", "a"), ("PLOG_TOPIC", "b")]) == b"PLOG_TOPIC=a\nPLOG_TOPIC=b\n"
    )


def test_path_that_is_not_utf_8_is_escaped() -> None:
    path = os.fsdecode(b"/data\xff")
    assert encode_entry([("MESSAGE", path)]) == b"MESSAGE=/data\\udcff\n"


@given(st.lists(st.tuples(st.sampled_from(["MESSAGE", "PLOG_TOPIC"]), st.text(max_size=20))))
def test_receiver_reads_the_same_fields(fields: list[tuple[str, str]]) -> None:
    expected: dict[str, list[str]] = {}
    for name, value in fields:
        text = value.encode(errors="backslashreplace").decode()
        expected.setdefault(name, []).append(text)
    assert parse_entry(encode_entry(fields)) == expected


# -- the fields of an event ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        ({"topic": "clicks"}, [("PLOG_TOPIC", "clicks")]),
        (
            {"topic_partition": TopicPartition("clicks", 3)},
            [("PLOG_TOPIC", "clicks"), ("PLOG_PARTITION", "3")],
        ),
        (
            {"topic_partitions": [TopicPartition("a", 0), TopicPartition("b", 0)]},
            [("PLOG_TOPIC", "a"), ("PLOG_PARTITION", "0"), ("PLOG_TOPIC", "b")],
        ),
        ({"client": "192.0.2.1"}, [("PLOG_CLIENT_ADDRESS", "192.0.2.1")]),
        ({"client": client()}, [("PLOG_CLIENT_ADDRESS", "192.0.2.1")]),
        (
            {"client": client("shop")},
            [("PLOG_CLIENT_ADDRESS", "192.0.2.1"), ("PLOG_CLIENT", "shop")],
        ),
        ({"offset": 5, "error": "x"}, []),
        ({"topic": None, "topic_partition": None, "client": None}, []),
    ],
)
def test_fields_are_those_of_the_event(event: dict[str, Any], fields: list[Any]) -> None:
    assert context_fields(event) == fields


def test_names_of_fields_are_those_that_the_journal_accepts() -> None:
    event = {"topic_partition": TopicPartition("clicks", 3), "client": client("shop")}
    for name, _ in context_fields(event):
        assert re.fullmatch("[A-Z][A-Z0-9_]{0,63}", name)


def test_events_pass_partitions_as_values() -> None:
    """As text they would not become fields."""
    files = Path(plogd.__file__).parent.rglob("*.py")
    as_text = re.compile(r"\btopic_partitions?=(str\(|f[\"'])")
    assert [file.name for file in files if as_text.search(file.read_text())] == []


def test_number_of_fields_is_bounded() -> None:
    partitions = [TopicPartition(f"t{number}", number) for number in range(VALUES_MAX)]
    fields = context_fields({"topic_partitions": partitions})
    assert len(fields) == VALUES_MAX


# -- sending ---------------------------------------------------------------------------------------


@pytest.fixture
def journal() -> Iterator[JournalSocket]:
    """A socket in place of the journal's."""
    receiver = JournalSocket()
    yield receiver
    receiver.close()


@pytest.fixture
def sender(journal: JournalSocket) -> Iterator[JournalSender]:
    """A sender to that socket."""
    sender = JournalSender(journal.path)
    yield sender
    sender.close()


def test_entry_is_one_datagram(journal: JournalSocket, sender: JournalSender) -> None:
    assert sender.send(encode_entry(FIELDS))
    assert journal.entries() == [{"MESSAGE": ["text"], "PRIORITY": ["6"]}]
    assert journal.files == 0


def test_entry_too_large_for_a_datagram_is_a_sealed_file(
    journal: JournalSocket, sender: JournalSender
) -> None:
    text = "x" * 3_000_000 + "\nend"
    assert sender.send(encode_entry([("MESSAGE", text), ("PRIORITY", "3")]))
    assert journal.entries() == [{"MESSAGE": [text], "PRIORITY": ["3"]}]
    assert journal.files == 1


def test_large_entry_is_not_sent_if_there_is_no_descriptor_for_its_file(
    sender: JournalSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("plogd.journal.os.memfd_create", fail)
    assert not sender.send(bytes(3_000_000))


def test_missing_socket_is_reported_to_the_caller(tmp_path: Path) -> None:
    sender = JournalSender(str(tmp_path / "none"))
    assert not sender.send(b"MESSAGE=text\n")
    sender.close()


def test_journal_that_comes_back_gets_the_next_entry(sender: JournalSender) -> None:
    path = sender._path
    os.unlink(path)
    assert not sender.send(b"MESSAGE=lost\n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as back:
        back.bind(path)
        assert sender.send(b"MESSAGE=text\n")
        assert back.recv(100) == b"MESSAGE=text\n"


def fill(sender: JournalSender) -> int:
    """Send until the journal, which reads nothing, accepts no more; return the number sent."""
    for count in range(100_000):
        if not sender.send(b"MESSAGE=fill\n"):
            return count
    raise AssertionError("the socket accepts everything")


class Stream:
    """Standard error as a pipe, which nothing reads until `text` is called."""

    def __init__(self) -> None:
        self._reader, self.descriptor = os.pipe()

    def fill(self) -> None:
        """Write until the pipe is full."""
        os.set_blocking(self.descriptor, False)
        try:
            while True:
                os.write(self.descriptor, bytes(4096))
        except BlockingIOError:
            os.set_blocking(self.descriptor, True)

    def text(self) -> str:
        """Return what was written since the last call, without the filling."""
        os.set_blocking(self._reader, False)
        parts = []
        try:
            while part := os.read(self._reader, 65536):
                parts.append(part)
        except BlockingIOError:
            pass
        return b"".join(parts).replace(b"\0", b"").decode()

    def close(self) -> None:
        """Close both ends."""
        os.close(self.descriptor)
        os.close(self._reader)


@pytest.fixture
def stream() -> Iterator[Stream]:
    """Standard error."""
    stream = Stream()
    yield stream
    stream.close()


def test_entry_in_the_journal_is_not_written_to_standard_error(
    journal: JournalSocket, sender: JournalSender, stream: Stream
) -> None:
    JournalWriter(sender, stream.descriptor).write(FIELDS, LINE)
    assert len(journal.entries()) == 1
    assert stream.text() == ""


def test_entry_is_a_line_on_standard_error_while_the_journal_is_full(
    journal: JournalSocket, sender: JournalSender, stream: Stream
) -> None:
    writer = JournalWriter(sender, stream.descriptor)
    sent = fill(sender)
    writer.write(FIELDS, LINE)
    assert stream.text() == LINE
    assert len(journal.entries()) == sent
    writer.write(FIELDS, LINE)
    assert stream.text() == ""
    assert len(journal.entries()) == 1


def test_number_of_entries_that_nothing_accepted_is_logged_before_the_next(
    journal: JournalSocket, sender: JournalSender, stream: Stream
) -> None:
    writer = JournalWriter(sender, stream.descriptor)
    fill(sender)
    stream.fill()
    for _ in range(3):
        writer.write(FIELDS, LINE)  # Returns, although both would block.
    assert stream.text() == ""
    journal.entries()
    writer.write(FIELDS, LINE)
    loss, entry = journal.entries()
    assert loss["MESSAGE"] == ["lost 3 log events: the journal did not accept them in time"]
    assert loss["PRIORITY"] == ["4"]
    assert entry["MESSAGE"] == ["text"]
    writer.write(FIELDS, LINE)
    assert len(journal.entries()) == 1, "the loss is logged once"


def test_long_text_that_standard_error_takes_only_in_part_counts_as_lost(
    journal: JournalSocket, sender: JournalSender, stream: Stream
) -> None:
    writer = JournalWriter(sender, stream.descriptor)
    fill(sender)
    writer.write(FIELDS, "x" * 1_000_000)  # Returns, although the pipe holds less.
    assert 0 < len(stream.text()) < 1_000_000
    journal.entries()
    writer.write(FIELDS, LINE)
    assert "lost 1 log events" in journal.entries()[0]["MESSAGE"][0]


def test_standard_error_that_is_closed_counts_as_lost(
    journal: JournalSocket, sender: JournalSender, stream: Stream
) -> None:
    writer = JournalWriter(sender, stream.descriptor)
    fill(sender)
    os.close(stream._reader)
    stream._reader = os.open(os.devnull, os.O_RDONLY)
    writer.write(FIELDS, LINE)
    journal.entries()
    writer.write(FIELDS, LINE)
    assert "lost 1 log events" in journal.entries()[0]["MESSAGE"][0]
