"""plog/cli/console/console_consumer.py: options, printed records and unread records."""

from __future__ import annotations

import argparse
import io
import os
from collections.abc import Sequence
from typing import cast

import pytest

from plog.cli.console.console_consumer import (
    Printer,
    check,
    check_topic,
    configure,
    print_records,
    settings_of,
)
from plog.cli.console.record_formatters import DefaultFormatter
from plog.cli.options import UsageError
from plog.client.errors import WokenUp
from plog.client.faces.blocking import Consumer
from plog.client.values import ConsumerRecord
from plog.error_base import PlogError
from plog.errors import LeaderNotAvailable, RequestTimedOut, UnknownTopicOrPartition
from plog.records.batch import TimestampType
from plog.types import TopicPartition


def _parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    configure(parser)
    return parser.parse_args(["--bootstrap-server", "a:1", *words])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--topic and --include"),
        (["--topic", "t", "--include", "t"], "--topic and --include"),
        (["--include", "t", "--partition", "0"], "--partition requires --topic"),
        (["--topic", "t", "--offset", "7"], "--offset requires --partition"),
        (
            ["--topic", "t", "--partition", "0", "--offset", "7", "--from-beginning"],
            "cannot be combined",
        ),
        (["--topic", "t", "--partition", "0", "--group", "g"], "--group and --partition"),
        (
            ["--topic", "t", "--group", "g", "--consumer-property", "group.id=h"],
            "--group g conflicts with group.id=h",
        ),
        (["--topic", "t", "--from-beginning", "--command-property", "auto.offset.reset=latest"],
         "auto.offset.reset=latest"),
    ],
)  # fmt: skip
def test_conflicting_options_are_an_error(words: list[str], message: str) -> None:
    arguments = _parsed(*words)
    with pytest.raises(UsageError, match=message):
        _checked_settings(arguments)


def _checked_settings(arguments: argparse.Namespace) -> dict[str, object]:
    check(arguments)
    return settings_of(arguments)


def test_options_become_settings() -> None:
    assert settings_of(_parsed("--topic", "t")) == {
        "client.id": "console-consumer",
        "bootstrap.servers": "a:1",
        "auto.offset.reset": "latest",
        "allow.auto.create.topics": "false",
    }
    words = ("--topic", "t", "--from-beginning", "--group", "g")
    config = settings_of(_parsed(*words, "--isolation-level", "read_committed"))
    assert config["auto.offset.reset"] == "earliest"
    assert config["group.id"] == "g"
    assert config["isolation.level"] == "read_committed"


@pytest.mark.parametrize(
    "words", [("--topic", "t"), ("--include", "t.*"), ("--topic", "t", "--group", "g")]
)
def test_topic_is_never_created_automatically(words: tuple[str, ...]) -> None:
    override = ("--command-property", "allow.auto.create.topics=true")
    assert settings_of(_parsed(*words, *override))["allow.auto.create.topics"] == "false"


class FakeTopics:
    """Returns the partitions of a topic, or raises an error."""

    def __init__(self, found: int | Exception) -> None:
        self._found = found

    def partitions_for(self, topic: str, timeout_s: float) -> Sequence[int]:
        assert (topic, timeout_s > 0) == ("t", True)
        if isinstance(self._found, Exception):
            raise self._found
        return range(self._found)


def _check_topic(found: int | Exception, *words: str) -> None:
    check_topic(cast(Consumer, FakeTopics(found)), _parsed(*words))


def test_missing_topic_is_an_error_with_a_remedy() -> None:
    with pytest.raises(PlogError, match="cannot read topic t: it does not exist; create it"):
        _check_topic(UnknownTopicOrPartition(), "--topic", "t")


def test_missing_partition_is_an_error_with_the_valid_range() -> None:
    _check_topic(3, "--topic", "t", "--partition", "2")
    _check_topic(3, "--topic", "t")
    with pytest.raises(PlogError, match="partition 9 of topic t: it has partitions 0 to 2"):
        _check_topic(3, "--topic", "t", "--partition", "9")


def test_failed_topic_lookup_is_ignored() -> None:
    for error in (RequestTimedOut(), LeaderNotAvailable(), WokenUp("stop")):
        _check_topic(error, "--topic", "t", "--partition", "9")
    _check_topic(AssertionError("not called for a pattern"), "--include", "t")


class FakeConsumer:
    """Returns batches of records; records the requested counts and the seeks."""

    def __init__(self, *batches: Sequence[ConsumerRecord]) -> None:
        self._batches = list(batches)
        self.requested: list[int] = []
        self.seeks: dict[TopicPartition, int] = {}

    def consume(self, count: int, timeout_s: float | None) -> Sequence[ConsumerRecord]:
        self.requested.append(count)
        if not self._batches:
            raise WokenUp("no more batches")
        return self._batches.pop(0)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.seeks[partition] = offset


def _records(*values: bytes, partition: int = 0, first: int = 0) -> list[ConsumerRecord]:
    kind = TimestampType.CREATE_TIME
    return [
        ConsumerRecord("t", partition, first + i, 0, kind, None, value, (), 0)
        for i, value in enumerate(values)
    ]


def _print_records(consumer: FakeConsumer, printer: Printer, *words: str) -> None:
    print_records(cast(Consumer, consumer), printer, _parsed("--topic", "t", *words), lambda: False)


def test_records_are_printed_until_wakeup() -> None:
    out = io.BytesIO()
    printer = Printer(DefaultFormatter({}), out, skips_errors=False)
    _print_records(FakeConsumer(_records(b"a", b"b"), _records(b"c")), printer)
    assert out.getvalue() == b"a\nb\nc\n"
    assert printer.count == 3


def test_max_messages_limits_the_requested_records() -> None:
    consumer = FakeConsumer(_records(b"a", b"b"), _records(b"c"))
    printer = Printer(DefaultFormatter({}), io.BytesIO(), skips_errors=False)
    _print_records(consumer, printer, "--max-messages", "3")
    assert consumer.requested == [3, 1]


def test_timeout_ends_the_tool_when_no_record_arrives() -> None:
    consumer = FakeConsumer(_records(b"a"), [])
    printer = Printer(DefaultFormatter({}), io.BytesIO(), skips_errors=False)
    _print_records(consumer, printer, "--timeout-ms", "1000")
    assert len(consumer.requested) == 2


def test_tool_keeps_waiting_for_records_without_a_timeout() -> None:
    consumer = FakeConsumer(_records(b"a"), [], [], _records(b"b"))
    printer = Printer(DefaultFormatter({}), io.BytesIO(), skips_errors=False)
    _print_records(consumer, printer)
    assert printer.count == 2


def test_closed_pipe_ends_the_tool_when_no_record_arrives() -> None:
    consumer = FakeConsumer([], _records(b"a"))
    read_end, write_end = os.pipe()
    with open(write_end, "wb") as stream:
        printer = Printer(DefaultFormatter({}), stream, skips_errors=False)
        assert not printer.reader_has_closed
        os.close(read_end)
        _print_records(consumer, printer)
    assert consumer.requested == []


def test_records_not_written_to_a_closed_pipe_are_marked_unread(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Closed(io.BytesIO):
        def flush(self) -> None:
            raise BrokenPipeError

    consumer = FakeConsumer(_records(b"a", b"b", first=5) + _records(b"c", partition=1, first=9))
    _print_records(consumer, Printer(DefaultFormatter({}), Closed(), skips_errors=False))
    assert consumer.seeks == {TopicPartition("t", 0): 5, TopicPartition("t", 1): 9}
    assert "unable to write" in capsys.readouterr().err


def test_unprintable_record_is_an_error_or_skipped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    formatter = DefaultFormatter({"value.deserializer": "ShortDeserializer"})
    records = _records(b"\0\1", b"wrong", b"\0\2")
    out = io.BytesIO()
    consumer = FakeConsumer(records)
    with pytest.raises(PlogError, match="cannot print the record in t-0 at offset 1"):
        _print_records(consumer, Printer(formatter, out, skips_errors=False))
    assert out.getvalue() == b"1\n"
    assert consumer.seeks == {TopicPartition("t", 0): 2}

    out = io.BytesIO()
    printer = Printer(formatter, out, skips_errors=True)
    _print_records(FakeConsumer(records), printer)
    assert out.getvalue() == b"1\n2\n"
    assert printer.count == 3
    assert "skipped the record in t-0 at offset 1" in capsys.readouterr().err
