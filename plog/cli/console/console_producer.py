"""``plog console-producer``: send each line of standard input, or of a file, as a record.

Names and flags match Kafka's kafka-console-producer.sh. If a record cannot be delivered, the tool
prints the line number, continues with the next lines, and exits with 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING, Final

from plog.cli.client_properties import (
    add_client_options,
    client_config,
    merged,
)
from plog.cli.console.line_reader import LineError, LineFormat, stripped
from plog.cli.options import (
    UsageError,
    add_bootstrap_option,
    add_property_option,
    not_negative,
    positive,
    raw_key_value,
)
from plog.cli.output import progress
from plog.cli.parser import add_examples, fail
from plog.cli.send_results import SendResults
from plog.error_base import PlogError

if TYPE_CHECKING:
    from plog.client.faces.blocking import Producer
    from plog.client.producer.record_checks import Headers

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
# The second class is the reader in older releases.
_READERS: Final = ("LineMessageReader", "ConsoleProducer$LineMessageReader")
_MAX_PRINTED_ERRORS: Final = 10
"""Maximum number of delivery errors to print; all later errors are only counted."""
_PROGRESS_LINES: Final = 2048
"""Number of lines between updates of the progress bar."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Send each line from standard input or a file to a topic as a record."""
    add_bootstrap_option(parser, "--broker-list")
    parser.add_argument("--topic", required=True, help="the topic to send to")
    parser.add_argument(
        "--from-file", metavar="FILE", help="read from FILE instead of standard input"
    )
    add_client_options(parser, "producer")
    _add_reader_options(parser)
    _add_delivery_options(parser)
    _add_size_options(parser)
    add_examples(
        parser,
        (
            "send typed lines, until Ctrl-D",
            "plog console-producer --bootstrap-server localhost:9092 --topic orders",
        ),
        (
            "send a file whose lines are key:value",
            "plog console-producer --bootstrap-server localhost:9092 --topic orders"
            " --from-file orders.txt --reader-property parse.key=true"
            " --reader-property key.separator=:",
        ),
        (
            "compress the records, and send larger batches",
            "plog console-producer --bootstrap-server localhost:9092 --topic orders"
            " --compression-codec zstd --batch-size 262144 --command-property linger.ms=100",
        ),
    )
    parser.set_defaults(run=run)


def _add_reader_options(parser: argparse.ArgumentParser) -> None:
    add_property_option(
        parser,
        "--reader-property",
        "--property",
        dest="reader_properties",
        description="line format: parse.key, key.separator (tab), parse.headers, headers.delimiter"
        " (tab), headers.separator (,), headers.key.separator (:), null.marker, ignore.error",
        read=raw_key_value,
    )
    parser.add_argument(
        "--reader-config",
        metavar="FILE",
        help="properties file with defaults for --reader-property",
    )
    parser.add_argument(
        "--line-reader",
        metavar="CLASS",
        default="org.apache.kafka.tools.LineMessageReader",
        help="only Kafka's LineMessageReader is supported",
    )


def _add_delivery_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--compression-codec",
        # As in Kafka's tool, the option may stand alone.
        nargs="?",
        const="gzip",
        choices=CODECS,
        help="compress batches with this codec (without a value, with gzip)",
    )
    parser.add_argument(
        "--sync",
        action="store_true",
        help="wait until each record is acknowledged before sending the next one",
    )
    parser.add_argument(
        "--request-required-acks",
        metavar="ACKS",
        help="acknowledgments to wait for: 0, 1 or all (also -1)",
    )
    for name, setting, description in (
        ("--timeout", "linger.ms", "time for which a batch waits for more records, in ms"),
        ("--request-timeout-ms", "request.timeout.ms", "time to wait for a response, in ms"),
        ("--message-send-max-retries", "retries", "maximum number of retries"),
        ("--retry-backoff-ms", "retry.backoff.ms", "time before a retry, in ms"),
        ("--metadata-expiry-ms", "metadata.max.age.ms", "time between metadata refreshes, in ms"),
        ("--max-block-ms", "max.block.ms", "time to wait for metadata or memory, in ms"),
    ):
        parser.add_argument(
            name, type=not_negative, metavar="NUMBER", help=f"{description} (the setting {setting})"
        )


def _add_size_options(parser: argparse.ArgumentParser) -> None:
    for name, setting, description in (
        ("--batch-size", "batch.size", "maximum size of a batch"),
        ("--max-memory-bytes", "buffer.memory", "memory for unacknowledged records"),
        ("--socket-buffer-size", "send.buffer.bytes", "size of the socket's send buffer"),
    ):
        older = ("--max-partition-memory-bytes",) if name == "--batch-size" else ()
        parser.add_argument(
            name,
            *older,
            type=positive,
            metavar="BYTES",
            help=f"{description} (the setting {setting})",
        )


def settings_of(arguments: argparse.Namespace) -> dict[str, object]:
    """Return the producer's settings from the options."""
    flags = {
        "compression.type": arguments.compression_codec,
        "acks": arguments.request_required_acks,
        "linger.ms": arguments.timeout,
        "request.timeout.ms": arguments.request_timeout_ms,
        "retries": arguments.message_send_max_retries,
        "retry.backoff.ms": arguments.retry_backoff_ms,
        "metadata.max.age.ms": arguments.metadata_expiry_ms,
        "max.block.ms": arguments.max_block_ms,
        "batch.size": arguments.batch_size,
        "buffer.memory": arguments.max_memory_bytes,
        "send.buffer.bytes": arguments.socket_buffer_size,
    }
    return client_config(arguments, flags, defaults={"client.id": "console-producer"})


def run(arguments: argparse.Namespace) -> int:
    """Send the lines; return 1 if a line was not delivered."""
    reader = arguments.line_reader.removeprefix("org.apache.kafka.tools.").removeprefix(
        "kafka.tools."
    )
    if reader not in _READERS:
        raise UsageError(f"unknown reader {arguments.line_reader}; use {_READERS[0]}")
    line_format = LineFormat.of(merged(arguments.reader_config, arguments.reader_properties))
    config = settings_of(arguments)
    tally = Tally(arguments.topic)
    with ExitStack() as stack:
        # Opened before the producer, so that a missing file is reported even if no broker is
        # available.
        lines = stack.enter_context(LineSource(arguments.from_file))
        from plog.client.faces.blocking import Producer

        producer = stack.enter_context(Producer(config=config))
        sender = LineSender(producer, arguments.topic, line_format, tally, sync=arguments.sync)
        sender.send_all(stripped(lines))
    # The counts are final here, because the block has closed the producer.
    tally.conclude()
    return int(tally.failed > 0)


class Tally:
    """Counts delivered and failed lines."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.sent = 0
        self.failed = 0

    def count(self, numbers: Sequence[int]) -> None:
        """Count the lines whose records have been written."""
        self.sent += len(numbers)

    def count_failed(self, number: int, error: Exception) -> None:
        """Count a line whose record failed, and print the first few errors."""
        self.failed += 1
        # When a broker is unavailable, all of a million lines may fail.
        if self.failed <= _MAX_PRINTED_ERRORS:
            fail(f"line {number} was not delivered: {error}")

    def sent_before(self) -> str:
        """Return error text that states how many records were sent before an invalid line."""
        return f"{self.sent} record{' was' if self.sent == 1 else 's were'} sent before it"

    def conclude(self) -> None:
        """Print the number of suppressed errors and, on a terminal, the number of records."""
        if self.failed > _MAX_PRINTED_ERRORS:
            fail(f"{self.failed - _MAX_PRINTED_ERRORS} more lines were not delivered")
        # Kafka's tool does not print a total, so scripts do not expect it.
        if sys.stderr.isatty():
            print(f"{self.sent} records sent to {self.topic}", file=sys.stderr)


class LineSender:
    """Parses lines and sends them as records."""

    def __init__(
        self,
        producer: Producer,
        topic: str,
        line_format: LineFormat,
        tally: Tally,
        *,
        sync: bool,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._format = line_format
        self._tally = tally
        self._outcomes: SendResults[int] = SendResults(tally.count, tally.count_failed)
        self._sync = sync

    def send_all(self, lines: Iterable[bytes]) -> None:
        """Send each line. Raises LineError for an invalid line, after sending all earlier lines."""
        # Plain lines, the default, skip the parser.
        parse = None if self._format.is_plain else self._format.parse
        # Local variables, because the loop runs for each line.
        send, topic, watch = self._producer.send, self._topic, self._outcomes.watch
        key: bytes | None = None
        headers: Headers = ()
        for number, value in enumerate(lines, 1):
            try:
                if parse is None:
                    future = send(topic, value)
                else:
                    key, parsed, headers = parse(value, number)
                    future = send(topic, parsed, key, headers=headers)
                watch(number, future)
                if self._sync:
                    future.exception()  # Wait only; `watch` reports the result.
            except LineError as error:
                # Errors of earlier lines are printed first, and `sent_before` is final.
                self._producer.flush()
                raise LineError(f"{error}; {self._tally.sent_before()}") from error
            except PlogError as error:
                self._handle_send_error(number, error)

    def _handle_send_error(self, number: int, error: PlogError) -> None:
        """Count a record that is too large as failed. Raises PlogError for any other error."""
        from plog.client.errors import RecordTooLarge

        # Any other error, such as a missing topic, would also occur for all later lines.
        if not isinstance(error, RecordTooLarge):
            raise PlogError(f"line {number} and all later lines were not sent: {error}") from error
        # The engine's thread calls the tally, too.
        with self._outcomes.lock:
            self._tally.count_failed(number, error)


class LineSource(ExitStack):
    """A context that provides the lines to send; on a terminal, with a prompt or progress bar."""

    def __init__(self, path: str | None) -> None:
        super().__init__()
        self._path = path

    def __enter__(self) -> Iterator[bytes]:  # type: ignore[override]  # Yields lines, not self.
        super().__enter__()
        if self._path is None:
            return _with_prompt(sys.stdin.buffer)
        file = self.enter_context(open(self._path, "rb"))
        # The size of a pipe is not known, so there can be no progress bar.
        if not (sys.stderr.isatty() and file.seekable()):
            return iter(file)
        size = file.seek(0, 2)
        file.seek(0)
        return _with_progress(file, self.enter_context(progress(size, "B", scale=True)))


def _with_prompt(stream: IO[bytes]) -> Iterator[bytes]:
    # As with Java's System.console(), the prompt must not end up in a pipe or file.
    if not (stream.isatty() and sys.stdout.isatty()):
        yield from stream
        return
    while True:
        sys.stdout.write(">")
        sys.stdout.flush()
        line = stream.readline()
        if not line:
            return
        yield line


def _with_progress(file: IO[bytes], advance: Callable[[int], None]) -> Iterator[bytes]:
    done = 0
    for number, line in enumerate(file):
        done += len(line)
        if number % _PROGRESS_LINES == 0:
            advance(done)
            done = 0
        yield line
    advance(done)
