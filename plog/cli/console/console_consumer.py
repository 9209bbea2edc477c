"""``plog console-consumer``: records of topics, printed as they come.

Names, flags and output are those of Kafka's kafka-console-consumer.sh. Without ``--group`` no group
is joined (there, one of a random name is), so it starts at once and leaves nothing behind.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Final

from plog.cli.client_properties import (
    add_client_options,
    client_config,
    merged,
    topic_pattern,
)
from plog.cli.options import (
    UsageError,
    add_bootstrap_option,
    add_property_option,
    not_negative,
    raw_key_value,
)
from plog.cli.parser import add_examples, fail
from plog.cli.shutdown import Shutdown
from plog.cli.standard_streams import reader_is_gone
from plog.error_base import PlogError

if TYPE_CHECKING:
    from plog.cli.console.record_formatters import Formatter
    from plog.client.faces.blocking import Consumer
    from plog.client.values import ConsumerRecord

_AT_ONCE: Final = 500
_LOOK_UP_S: Final = 1.0
_CHECK_S: Final = 3.0
"""How long a topic may be unknown: one that was just created is, to some brokers."""
_UNREAD: Final = "unable to write to standard output, closing the consumer"
_EARLIEST, _LATEST = "earliest", "latest"


def configure(parser: argparse.ArgumentParser) -> None:
    """Print the records of topics, and go on as more come."""
    add_bootstrap_option(parser)
    parser.add_argument("--topic", help="the topic to read")
    parser.add_argument(
        "--include",
        "--whitelist",
        type=topic_pattern,
        metavar="REGEX",
        help="read all topics of such a name instead",
    )
    add_client_options(parser, "consumer")
    _add_place_options(parser)
    _add_end_options(parser)
    _add_format_options(parser)
    add_examples(
        parser,
        (
            "print what is there and what comes, until Ctrl-C",
            "plog console-consumer --bootstrap-server localhost:9092 --topic orders"
            " --from-beginning",
        ),
        (
            "the next ten records, with key and time",
            "plog tail --bootstrap-server localhost:9092 --topic orders --max-messages 10"
            " --formatter-property print.key=true --formatter-property print.timestamp=true",
        ),
        (
            "go on where the group has come to, for another program",
            "plog consume --bootstrap-server localhost:9092 --topic orders --group audit --json",
        ),
        (
            "what groups have committed",
            "plog console-consumer --bootstrap-server localhost:9092 --topic __consumer_offsets"
            " --from-beginning --formatter OffsetsMessageFormatter",
        ),
    )
    parser.set_defaults(run=run)


def _add_place_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--group", metavar="GROUP", help="share the partitions, and commit")
    parser.add_argument("--partition", type=not_negative, help="read this partition alone")
    parser.add_argument(
        "--offset",
        type=offset,
        help="where to begin in the partition: a number, earliest or latest (default: latest)",
    )
    parser.add_argument(
        "--from-beginning",
        action="store_true",
        help="begin with the first record instead of the next one, unless the group has come"
        " further",
    )
    parser.add_argument(
        "--isolation-level",
        choices=("read_uncommitted", "read_committed"),
        help="read_committed leaves out what transactions have not committed",
    )


def _add_end_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--max-messages", type=int, metavar="COUNT", help="end after so many")
    parser.add_argument("--timeout-ms", type=int, metavar="MS", help="end if none came for so long")
    parser.add_argument(
        "--skip-message-on-error",
        action="store_true",
        help="go on after a record that cannot be printed",
    )
    parser.add_argument(
        "--enable-systest-events", action="store_true", help="print shutdown_complete at the end"
    )


def _add_format_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object a record, for programs"
    )
    parser.add_argument(
        "--formatter",
        metavar="CLASS",
        default="org.apache.kafka.tools.consumer.DefaultMessageFormatter",
        help="DefaultMessageFormatter, LoggingMessageFormatter, NoOpMessageFormatter, or for"
        " internal topics OffsetsMessageFormatter, GroupMetadataMessageFormatter,"
        " TransactionLogMessageFormatter",
    )
    add_property_option(
        parser,
        "--formatter-property",
        "--property",
        dest="formatter_properties",
        what="what is printed: print.timestamp, print.partition, print.offset, print.epoch,"
        " print.headers, print.key, print.value; key.separator, line.separator, headers.separator,"
        " null.literal; key.deserializer, value.deserializer, headers.deserializer",
        read=raw_key_value,
    )
    parser.add_argument(
        "--formatter-config", metavar="FILE", help="properties file with the same, which lose"
    )
    for part in ("key", "value"):
        parser.add_argument(
            f"--{part}-deserializer",
            metavar="CLASS",
            help=f"a Java class such as LongDeserializer, or module:function, for {part}s",
        )


def offset(text: str) -> str | int:
    """An offset, or where one is: ``earliest``, ``latest``.

    >>> offset("12"), offset("Earliest")
    (12, 'earliest')
    """
    if text.lower() in (_EARLIEST, _LATEST):
        return text.lower()
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not an offset, earliest or latest")
    return int(text)


def check(arguments: argparse.Namespace) -> None:
    """Refuse options that do not go together. Raises UsageError."""
    if (arguments.topic is None) == (arguments.include is None):
        raise UsageError("say exactly one of --topic or --include")
    if arguments.partition is not None and arguments.topic is None:
        raise UsageError("--partition only goes with --topic")
    if arguments.offset is not None and arguments.partition is None:
        raise UsageError("--offset only goes with --partition")
    if arguments.offset is not None and arguments.from_beginning:
        raise UsageError("say --offset or --from-beginning, not both")


def settings_of(arguments: argparse.Namespace) -> dict[str, object]:
    """The consumer's settings that the options ask for. Raises UsageError."""
    flags = {"isolation.level": arguments.isolation_level}
    config = client_config(arguments, flags, defaults={"client.id": "console-consumer"})
    group = config.get("group.id", arguments.group)
    if arguments.group not in (None, group):
        raise UsageError(f"--group says {arguments.group}, the properties say {group}")
    if group and arguments.partition is not None:
        raise UsageError("say --group or --partition, not both")
    if group:
        config["group.id"] = group
    reset = config.setdefault(
        "auto.offset.reset", _EARLIEST if arguments.from_beginning else _LATEST
    )
    if arguments.from_beginning and reset != _EARLIEST:
        raise UsageError(f"say --from-beginning or auto.offset.reset={reset}, not both")
    config["allow.auto.create.topics"] = "false"  # A name misspelled is not to become a topic.
    return config


def formatter_of(arguments: argparse.Namespace) -> Formatter:
    """What makes text of records. Raises UsageError."""
    from plog.cli.console.record_formatters import JsonFormatter, find_formatter

    properties = merged(arguments.formatter_config, ())
    for part in ("key", "value"):
        name = getattr(arguments, f"{part}_deserializer")
        if name:
            properties[f"{part}.deserializer"] = name
    properties |= dict(arguments.formatter_properties)
    return (JsonFormatter if arguments.json else find_formatter(arguments.formatter))(properties)


def run(arguments: argparse.Namespace) -> int:
    """Print records until the end that was asked for."""
    check(arguments)
    config = settings_of(arguments)
    formatter = formatter_of(arguments)
    from plog.client.faces.blocking import Consumer

    consumer = Consumer(config=config)
    printer = Printer(formatter, sys.stdout.buffer, skips_errors=arguments.skip_message_on_error)
    with Shutdown(consumer.wakeup) as stopping:
        try:
            check_topic(consumer, arguments)
            begin(consumer, arguments)
            copy(consumer, printer, arguments, lambda: stopping.requested)
        finally:
            try:
                consumer.close()
            finally:
                print(f"Processed a total of {printer.count} messages", file=sys.stderr)
        if arguments.enable_systest_events:
            print("shutdown_complete")
    return stopping.exit_code


def check_topic(consumer: Consumer, arguments: argparse.Namespace) -> None:
    """Raise PlogError if the topic or its partition does not exist.

    What cannot be found out now, as while no broker answers, is left to the consumer.
    """
    from plog.errors import UnknownTopicOrPartition

    if arguments.topic is None:
        return
    try:
        count = len(consumer.partitions_for(arguments.topic, timeout_s=_CHECK_S))
    except UnknownTopicOrPartition:
        raise PlogError(
            f"cannot read topic {arguments.topic}: it does not exist; create it with "
            "'plog topics --create'"
        ) from None
    except PlogError:
        return
    if arguments.partition is not None and arguments.partition >= count:
        raise PlogError(
            f"cannot read partition {arguments.partition} of topic {arguments.topic}: it has "
            f"partitions 0 to {count - 1}"
        )


def begin(consumer: Consumer, arguments: argparse.Namespace) -> None:
    """Say what to read, and from where."""
    from plog.types import TopicPartition

    if arguments.include is not None:
        consumer.subscribe(pattern=arguments.include)
    elif arguments.partition is None:
        consumer.subscribe([arguments.topic])
    else:
        partition = TopicPartition(arguments.topic, arguments.partition)
        consumer.assign([partition])
        if arguments.offset == _EARLIEST or arguments.from_beginning:
            consumer.seek_to_beginning([partition])
        elif arguments.offset in (_LATEST, None):
            consumer.seek_to_end([partition])
        else:
            consumer.seek(partition, arguments.offset)


def copy(
    consumer: Consumer,
    printer: Printer,
    arguments: argparse.Namespace,
    is_stopped: Callable[[], bool],
) -> None:
    """Print records until there are enough, none come any more, or somebody stops it.

    Raises what the consumer and the formatter raise; what was not printed counts as not read then.
    """
    from plog.client.errors import WokenUp

    timeout_s = None
    if arguments.timeout_ms is not None and arguments.timeout_ms >= 0:
        timeout_s = arguments.timeout_ms / 1000
    limit = -1 if arguments.max_messages is None else arguments.max_messages
    while not is_stopped() and (limit < 0 or printer.count < limit):
        count = _AT_ONCE if limit < 0 else min(_AT_ONCE, limit - printer.count)
        try:
            records = next_records(consumer, count, timeout_s, printer)
        except WokenUp:
            return
        if not records:
            if timeout_s is None:
                fail(_UNREAD)
            return
        before = printer.count
        try:
            printer.print(records)
        except BrokenPipeError:
            give_back(consumer, records)
            fail(_UNREAD)
            return
        except PlogError:
            give_back(consumer, records[printer.count - before :])
            raise


def next_records(
    consumer: Consumer, count: int, timeout_s: float | None, printer: Printer
) -> Sequence[ConsumerRecord]:
    """The next records; none when time is up, or when nobody would see them any more."""
    if timeout_s is not None:
        return consumer.consume(count, timeout_s)
    while not printer.is_in_vain:
        records = consumer.consume(count, _LOOK_UP_S)
        if records:
            return records
    return ()


def give_back(consumer: Consumer, records: Sequence[ConsumerRecord]) -> None:
    """Have these records count as not read, so that they are not committed."""
    from plog.client.errors import IllegalState
    from plog.types import TopicPartition

    first: dict[TopicPartition, int] = {}
    for record in records:
        first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
    for partition, offset in first.items():
        with suppress(IllegalState):  # It may be another member's by now.
            consumer.seek(partition, offset)


class Printer:
    """Writes records to a stream, and counts them."""

    def __init__(self, formatter: Formatter, stream: IO[bytes], *, skips_errors: bool) -> None:
        self._formatter = formatter
        self._stream = stream
        self._skips_errors = skips_errors
        self.count = 0

    @property
    def is_in_vain(self) -> bool:
        """Whether the reader of the pipe it writes to has gone: ``| head -1`` has seen enough."""
        try:
            return reader_is_gone(self._stream.fileno())
        except OSError:  # It has no descriptor.
            return False

    def print(self, records: Sequence[ConsumerRecord]) -> None:
        """Print them all. Raises BrokenPipeError, and PlogError for one that cannot be printed."""
        lines: list[bytes] = []
        try:
            for record in records:
                self.count += 1
                try:
                    lines.append(self._formatter.format(record))
                except PlogError as error:
                    where = f"{record.topic}-{record.partition} at offset {record.offset}"
                    if not self._skips_errors:
                        raise PlogError(
                            f"cannot print the record of {where}: {error};"
                            " --skip-message-on-error goes on"
                        ) from error
                    fail(f"skipped the record of {where}: {error}")
        finally:
            self._stream.write(b"".join(lines))
            self._stream.flush()
