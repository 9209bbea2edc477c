"""plog/cli/console/console_consumer.py: options, and what is printed and given back."""

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
    copy,
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
    ("words", "told"),
    [
        ([], "--topic or --include"),
        (["--topic", "t", "--include", "t"], "--topic or --include"),
        (["--include", "t", "--partition", "0"], "--partition requires --topic"),
        (["--topic", "t", "--offset", "7"], "--offset requires --partition"),
        (
            ["--topic", "t", "--partition", "0", "--offset", "7", "--from-beginning"],
            "exclude each other",
        ),
        (["--topic", "t", "--partition", "0", "--group", "g"], "--group and --partition"),
        (
            ["--topic", "t", "--group", "g", "--consumer-property", "group.id=h"],
            "--group g contradicts group.id=h",
        ),
        (["--topic", "t", "--from-beginning", "--command-property", "auto.offset.reset=latest"],
         "auto.offset.reset=latest"),
    ],
)  # fmt: skip
def test_options_that_do_not_go_together_are_refused(words: list[str], told: str) -> None:
    arguments = _parsed(*words)
    with pytest.raises(UsageError, match=told):
        _checked_settings(arguments)


def _checked_settings(arguments: argparse.Namespace) -> dict[str, object]:
    check(arguments)
    return settings_of(arguments)


def test_the_settings_are_what_the_options_say() -> None:
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
def test_reading_never_creates_a_topic(words: tuple[str, ...]) -> None:
    asked = ("--command-property", "allow.auto.create.topics=true")
    assert settings_of(_parsed(*words, *asked))["allow.auto.create.topics"] == "false"


class FakeTopics:
    """Knows how many partitions a topic has, or the error to raise."""

    def __init__(self, found: int | Exception) -> None:
        self._found = found

    def partitions_for(self, topic: str, timeout_s: float) -> Sequence[int]:
        assert (topic, timeout_s > 0) == ("t", True)
        if isinstance(self._found, Exception):
            raise self._found
        return range(self._found)


def _check_topic(found: int | Exception, *words: str) -> None:
    check_topic(cast(Consumer, FakeTopics(found)), _parsed(*words))


def test_a_missing_topic_is_an_error_that_names_the_remedy() -> None:
    with pytest.raises(PlogError, match="cannot read topic t: it does not exist; create it"):
        _check_topic(UnknownTopicOrPartition(), "--topic", "t")


def test_a_missing_partition_is_an_error_that_names_those_there_are() -> None:
    _check_topic(3, "--topic", "t", "--partition", "2")
    _check_topic(3, "--topic", "t")
    with pytest.raises(PlogError, match="partition 9 of topic t: it has partitions 0 to 2"):
        _check_topic(3, "--topic", "t", "--partition", "9")


def test_a_topic_that_cannot_be_looked_up_now_is_left_to_the_consumer() -> None:
    for error in (RequestTimedOut(), LeaderNotAvailable(), WokenUp("stop")):
        _check_topic(error, "--topic", "t", "--partition", "9")
    _check_topic(AssertionError("is not asked"), "--include", "t")


class FakeConsumer:
    """Gives batches of records; notes what it is told to seek."""

    def __init__(self, *batches: Sequence[ConsumerRecord]) -> None:
        self._batches = list(batches)
        self.asked: list[int] = []
        self.sought: dict[TopicPartition, int] = {}

    def consume(self, count: int, timeout_s: float | None) -> Sequence[ConsumerRecord]:
        self.asked.append(count)
        if not self._batches:
            raise WokenUp("enough")
        return self._batches.pop(0)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.sought[partition] = offset


def _records(*values: bytes, partition: int = 0, first: int = 0) -> list[ConsumerRecord]:
    kind = TimestampType.CREATE_TIME
    return [
        ConsumerRecord("t", partition, first + i, 0, kind, None, value, (), 0)
        for i, value in enumerate(values)
    ]


def _copy(consumer: FakeConsumer, printer: Printer, *words: str) -> None:
    copy(cast(Consumer, consumer), printer, _parsed("--topic", "t", *words), lambda: False)


def test_records_are_printed_until_it_is_woken() -> None:
    out = io.BytesIO()
    printer = Printer(DefaultFormatter({}), out, skips_errors=False)
    _copy(FakeConsumer(_records(b"a", b"b"), _records(b"c")), printer)
    assert out.getvalue() == b"a\nb\nc\n"
    assert printer.count == 3


def test_no_more_is_asked_for_than_is_wanted() -> None:
    consumer = FakeConsumer(_records(b"a", b"b"), _records(b"c"))
    printer = Printer(DefaultFormatter({}), io.BytesIO(), skips_errors=False)
    _copy(consumer, printer, "--max-messages", "3")
    assert consumer.asked == [3, 1]


def test_silence_ends_it_when_there_is_a_limit() -> None:
    consumer = FakeConsumer(_records(b"a"), [])
    printer = Printer(DefaultFormatter({}), io.BytesIO(), skips_errors=False)
    _copy(consumer, printer, "--timeout-ms", "1000")
    assert len(consumer.asked) == 2


def test_silence_is_no_end_without_a_limit() -> None:
    consumer = FakeConsumer(_records(b"a"), [], [], _records(b"b"))
    printer = Printer(DefaultFormatter({}), io.BytesIO(), skips_errors=False)
    _copy(consumer, printer)
    assert printer.count == 2


def test_in_silence_it_ends_when_the_reader_of_its_pipe_has_gone() -> None:
    consumer = FakeConsumer([], _records(b"a"))
    read_end, write_end = os.pipe()
    with open(write_end, "wb") as stream:
        printer = Printer(DefaultFormatter({}), stream, skips_errors=False)
        assert not printer.is_in_vain
        os.close(read_end)
        _copy(consumer, printer)
    assert consumer.asked == []


def test_what_a_closed_pipe_did_not_take_is_given_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Closed(io.BytesIO):
        def flush(self) -> None:
            raise BrokenPipeError

    consumer = FakeConsumer(_records(b"a", b"b", first=5) + _records(b"c", partition=1, first=9))
    _copy(consumer, Printer(DefaultFormatter({}), Closed(), skips_errors=False))
    assert consumer.sought == {TopicPartition("t", 0): 5, TopicPartition("t", 1): 9}
    assert "unable to write" in capsys.readouterr().err


def test_a_record_that_cannot_be_printed_ends_it_or_is_skipped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    formatter = DefaultFormatter({"value.deserializer": "ShortDeserializer"})
    records = _records(b"\0\1", b"wrong", b"\0\2")
    out = io.BytesIO()
    consumer = FakeConsumer(records)
    with pytest.raises(PlogError, match="cannot print the record of t-0 at offset 1"):
        _copy(consumer, Printer(formatter, out, skips_errors=False))
    assert out.getvalue() == b"1\n"
    assert consumer.sought == {TopicPartition("t", 0): 2}

    out = io.BytesIO()
    printer = Printer(formatter, out, skips_errors=True)
    _copy(FakeConsumer(records), printer)
    assert out.getvalue() == b"1\n2\n"
    assert printer.count == 3
    assert "skipped the record of t-0 at offset 1" in capsys.readouterr().err
