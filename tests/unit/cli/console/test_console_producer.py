"""plog/cli/console/console_producer.py: settings from options, and failed lines."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import cast

import pytest

from plog.cli.console.console_producer import (
    LineSender,
    LineSource,
    Tally,
    configure,
    settings_of,
)
from plog.cli.console.line_reader import LineError, LineFormat
from plog.client.faces.blocking import Producer


def _settings(*words: str) -> dict[str, object]:
    parser = argparse.ArgumentParser()
    configure(parser)
    return settings_of(parser.parse_args(["--bootstrap-server", "a:1", "--topic", "t", *words]))


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["--compression-codec"], "compression.type", "gzip"),
        (["--compression-codec", "lz4"], "compression.type", "lz4"),
        (["--command-property", "compression.type=zstd"], "compression.type", "zstd"),
        (["--request-required-acks", "1"], "acks", "1"),
        (["--timeout", "20"], "linger.ms", 20),
        (["--request-timeout-ms", "20"], "request.timeout.ms", 20),
        (["--message-send-max-retries", "0"], "retries", 0),
        (["--retry-backoff-ms", "5"], "retry.backoff.ms", 5),
        (["--metadata-expiry-ms", "5"], "metadata.max.age.ms", 5),
        (["--max-block-ms", "5"], "max.block.ms", 5),
        (["--batch-size", "5"], "batch.size", 5),
        (["--max-partition-memory-bytes", "5"], "batch.size", 5),
        (["--max-memory-bytes", "5"], "buffer.memory", 5),
        (["--socket-buffer-size", "5"], "send.buffer.bytes", 5),
        (["--producer-property", "linger.ms=7"], "linger.ms", "7"),
    ],
)
def test_option_becomes_a_setting(words: list[str], name: str, value: object) -> None:
    plain = {"client.id": "console-producer", "bootstrap.servers": "a:1"}
    assert _settings(*words) == {**plain, name: value}


def test_errors_beyond_the_limit_are_only_counted(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally("t")
    for number in range(1, 26):
        tally.count_failed(number, ValueError("no"))
    tally.count([26, 27])
    tally.conclude()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "plog: line 1 was not delivered: no"
    assert len(lines) == 11
    assert lines[-1] == "plog: 15 more lines were not delivered"
    assert tally.sent == 2


class FakeBatch:
    """A batch of one record that is written when the producer is flushed."""

    def __init__(self) -> None:
        self.is_done = False
        self.error = None
        self.errors_by_index: dict[int, Exception] = {}
        self.watchers: list[Callable[[object, object], None]] = []

    def watch(self, index: int, function: Callable[[object, object], None]) -> None:
        self.watchers.append(function)

    def complete(self) -> None:
        self.is_done = True
        for function in self.watchers:
            function(None, None)


class FakeHandle:
    """The handle of a record that is alone in its batch."""

    def __init__(self) -> None:
        self._batch = FakeBatch()
        self._index = 0

    def done(self) -> bool:
        return self._batch.is_done


class FakeProducer:
    """Records sent records, and completes them when flushed."""

    def __init__(self) -> None:
        self.sent: list[FakeHandle] = []

    def send(self, topic: str, value: bytes, *rest: object, **options: object) -> FakeHandle:
        self.sent.append(FakeHandle())
        return self.sent[-1]

    def flush(self) -> None:
        for sent in self.sent:
            sent._batch.complete()


@pytest.mark.parametrize(
    ("count", "sent"), [(0, "0 records were"), (1, "1 record was"), (7, "7 records were")]
)
def test_invalid_line_error_includes_number_of_sent_records(count: int, sent: str) -> None:
    lines = [b"k\tv"] * count + [b"no key", b"k\tv"]
    tally = Tally("t")
    producer = FakeProducer()
    line_format = LineFormat(parse_key=True)
    sender = LineSender(cast(Producer, producer), "t", line_format, tally, sync=False)
    with pytest.raises(LineError) as raised:
        sender.send_all(lines)
    assert str(raised.value) == (
        f"line {count + 1} does not contain the key separator '\\t': 'no key';"
        f" {sent} sent before it"
    )
    assert len(producer.sent) == count


@pytest.mark.parametrize("is_terminal", [False, True])
def test_lines_may_come_from_a_pipe(monkeypatch: pytest.MonkeyPatch, is_terminal: bool) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    reader, writer = os.pipe()
    os.write(writer, b"one\ntwo\n")
    os.close(writer)
    with LineSource(f"/dev/fd/{reader}") as lines:
        assert list(lines) == [b"one\n", b"two\n"]
    os.close(reader)
