"""``plog console-consumer``: print the records of topics as they arrive.

Names, flags and output match Kafka's kafka-console-consumer.sh. Without ``--group``, this tool does
not join a group, so it starts immediately and leaves no state on the broker. Kafka's tool then
joins a group with a random name.
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
from plog.cli.standard_streams import reader_has_closed
from plog.error_base import PlogError

if TYPE_CHECKING:
    from plog.cli.console.record_formatters import Formatter
    from plog.client.faces.blocking import Consumer
    from plog.client.values import ConsumerRecord

_MAX_RECORDS: Final = 500
"""Maximum number of records that are formatted and written at a time."""
_PIPE_CHECK_S: Final = 1.0
"""Time between checks for whether the reader of the output has closed the pipe."""
_TOPIC_LOOKUP_S: Final = 3.0
"""Time to wait for an unknown topic: a new topic does not immediately appear on all brokers."""
_PIPE_CLOSED: Final = "unable to write to standard output, closing the consumer"
_EARLIEST, _LATEST = "earliest", "latest"


def configure(parser: argparse.ArgumentParser) -> None:
    """Print records from topics as they arrive."""
    add_bootstrap_option(parser)
    parser.add_argument("--topic", help="the topic to read")
    parser.add_argument(
        "--include",
        "--whitelist",
        type=topic_pattern,
        metavar="REGEX",
        help="regular expression for the topics to read",
    )
    add_client_options(parser, "consumer")
    _add_position_options(parser)
    _add_end_options(parser)
    _add_format_options(parser)
    add_examples(
        parser,
        (
            "print new records until Ctrl-C",
            "plog console-consumer --bootstrap-server localhost:9092 --topic orders"
            " --from-beginning",
        ),
        (
            "the next ten records, with key and timestamp",
            "plog tail --bootstrap-server localhost:9092 --topic orders --max-messages 10"
            " --formatter-property print.key=true --formatter-property print.timestamp=true",
        ),
        (
            "continue at a group's committed offsets and print JSON for another program",
            "plog consume --bootstrap-server localhost:9092 --topic orders --group audit --json",
        ),
        (
            "print the committed offsets of groups",
            "plog console-consumer --bootstrap-server localhost:9092 --topic __consumer_offsets"
            " --from-beginning --formatter OffsetsMessageFormatter",
        ),
    )
    parser.set_defaults(run=run)


def _add_position_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--group", metavar="GROUP", help="consumer group to join, which stores committed offsets"
    )
    parser.add_argument("--partition", type=not_negative, help="partition to read (default: all)")
    parser.add_argument(
        "--offset",
        type=offset,
        help="start offset in the partition: a number, earliest or latest (default: latest)",
    )
    parser.add_argument(
        "--from-beginning",
        action="store_true",
        help="start at the first record if the group has no committed offset",
    )
    parser.add_argument(
        "--isolation-level",
        choices=("read_uncommitted", "read_committed"),
        help="read_committed skips records of transactions that are open or aborted",
    )


def _add_end_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-messages", type=int, metavar="COUNT", help="stop after this many records"
    )
    parser.add_argument(
        "--timeout-ms", type=int, metavar="MS", help="stop if no record arrives for this long"
    )
    parser.add_argument(
        "--skip-message-on-error",
        action="store_true",
        help="continue after a record that cannot be printed",
    )
    parser.add_argument(
        "--enable-systest-events", action="store_true", help="print shutdown_complete at the end"
    )


def _add_format_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object per record")
    parser.add_argument(
        "--formatter",
        metavar="CLASS",
        default="org.apache.kafka.tools.consumer.DefaultMessageFormatter",
        help="DefaultMessageFormatter, LoggingMessageFormatter or NoOpMessageFormatter; for"
        " internal topics, OffsetsMessageFormatter, GroupMetadataMessageFormatter,"
        " TransactionLogMessageFormatter",
    )
    add_property_option(
        parser,
        "--formatter-property",
        "--property",
        dest="formatter_properties",
        description="parts to print: print.timestamp, print.partition, print.offset, print.epoch,"
        " print.headers, print.key, print.value; key.separator, line.separator, headers.separator,"
        " null.literal; key.deserializer, value.deserializer, headers.deserializer",
        read=raw_key_value,
    )
    parser.add_argument(
        "--formatter-config",
        metavar="FILE",
        help="properties file with defaults for --formatter-property",
    )
    for part in ("key", "value"):
        parser.add_argument(
            f"--{part}-deserializer",
            metavar="CLASS",
            help=f"{part} deserializer: a Java class such as LongDeserializer, or module:function",
        )


def offset(text: str) -> str | int:
    """Parse an offset, ``earliest`` or ``latest``.

    >>> offset("12"), offset("Earliest")
    (12, 'earliest')
    """
    if text.lower() in (_EARLIEST, _LATEST):
        return text.lower()
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not an offset, earliest or latest")
    return int(text)


def check(arguments: argparse.Namespace) -> None:
    """Reject invalid combinations of options. Raises UsageError."""
    if (arguments.topic is None) == (arguments.include is None):
        raise UsageError("specify exactly one of --topic and --include")
    if arguments.partition is not None and arguments.topic is None:
        raise UsageError("--partition requires --topic")
    if arguments.offset is not None and arguments.partition is None:
        raise UsageError("--offset requires --partition")
    if arguments.offset is not None and arguments.from_beginning:
        raise UsageError("--offset and --from-beginning cannot be combined")


def settings_of(arguments: argparse.Namespace) -> dict[str, object]:
    """Return the consumer's settings from the options. Raises UsageError."""
    flags = {"isolation.level": arguments.isolation_level}
    config = client_config(arguments, flags, defaults={"client.id": "console-consumer"})
    # As in Kafka's tool, the properties may also name the group, but not another one.
    group = config.get("group.id", arguments.group)
    if arguments.group not in (None, group):
        raise UsageError(
            f"--group {arguments.group} conflicts with group.id={group} in the properties"
        )
    # The partitions of a group's members are assigned by the group.
    if group and arguments.partition is not None:
        raise UsageError("--group and --partition cannot be combined")
    if group:
        config["group.id"] = group
    reset = config.setdefault(
        "auto.offset.reset", _EARLIEST if arguments.from_beginning else _LATEST
    )
    if arguments.from_beginning and reset != _EARLIEST:
        raise UsageError(f"--from-beginning conflicts with auto.offset.reset={reset}")
    # Kafka's tool can create a topic when its name is misspelled.
    config["allow.auto.create.topics"] = "false"
    return config


def formatter_of(arguments: argparse.Namespace) -> Formatter:
    """Return the formatter that the options select. Raises UsageError."""
    from plog.cli.console.record_formatters import JsonFormatter, find_formatter

    # As in Kafka's tool, properties override the options for deserializers, which override the
    # file.
    properties = merged(arguments.formatter_config, ())
    for part in ("key", "value"):
        name = getattr(arguments, f"{part}_deserializer")
        if name:
            properties[f"{part}.deserializer"] = name
    properties |= dict(arguments.formatter_properties)
    return (JsonFormatter if arguments.json else find_formatter(arguments.formatter))(properties)


def run(arguments: argparse.Namespace) -> int:
    """Print records until a limit, a timeout or a signal ends the tool."""
    check(arguments)
    config = settings_of(arguments)
    formatter = formatter_of(arguments)
    # Imported after the checks, because the import of the reactor takes longer than they do.
    from plog.client.faces.blocking import Consumer

    consumer = Consumer(config=config)
    printer = Printer(formatter, sys.stdout.buffer, skips_errors=arguments.skip_message_on_error)
    with Shutdown(consumer.wakeup) as stopping:
        # The total is printed even if closing the consumer fails.
        try:
            check_topic(consumer, arguments)
            set_position(consumer, arguments)
            print_records(consumer, printer, arguments, lambda: stopping.requested)
        finally:
            try:
                consumer.close()
            finally:
                # As in Kafka's tool, standard output contains only records.
                print(f"Processed a total of {printer.count} messages", file=sys.stderr)
        if arguments.enable_systest_events:
            print("shutdown_complete")
    return stopping.exit_code


def check_topic(consumer: Consumer, arguments: argparse.Namespace) -> None:
    """Raise PlogError if the topic or its partition does not exist."""
    from plog.errors import UnknownTopicOrPartition

    # A pattern may also match topics that are created later.
    if arguments.topic is None:
        return
    try:
        count = len(consumer.partitions_for(arguments.topic, timeout_s=_TOPIC_LOOKUP_S))
    except UnknownTopicOrPartition:
        raise PlogError(
            f"cannot read topic {arguments.topic}: it does not exist; create it with "
            "'plog topics --create'"
        ) from None
    except PlogError:
        # The consumer reports other errors itself, for example if no broker responds.
        return
    if arguments.partition is not None and arguments.partition >= count:
        raise PlogError(
            f"cannot read partition {arguments.partition} of topic {arguments.topic}: it has "
            f"partitions 0 to {count - 1}"
        )


def set_position(consumer: Consumer, arguments: argparse.Namespace) -> None:
    """Subscribe or assign according to the options, and set the start offset."""
    from plog.types import TopicPartition

    if arguments.include is not None:
        consumer.subscribe(pattern=arguments.include)
    # Without a group, the consumer then assigns all partitions to itself.
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


def print_records(
    consumer: Consumer,
    printer: Printer,
    arguments: argparse.Namespace,
    is_stopped: Callable[[], bool],
) -> None:
    """Print records until the limit, the timeout or a signal.

    Raises errors from the consumer and the formatter, after marking the records that were not
    printed as unread.
    """
    from plog.client.errors import WokenUp

    # As in Kafka's tool, negative values mean no timeout and no limit.
    timeout_s = None
    if arguments.timeout_ms is not None and arguments.timeout_ms >= 0:
        timeout_s = arguments.timeout_ms / 1000
    limit = -1 if arguments.max_messages is None else arguments.max_messages
    while not is_stopped() and (limit < 0 or printer.count < limit):
        # Records beyond the limit must not be consumed, because their offsets would be committed.
        count = _MAX_RECORDS if limit < 0 else min(_MAX_RECORDS, limit - printer.count)
        try:
            records = next_records(consumer, count, timeout_s, printer)
        except WokenUp:
            return
        if not records:
            # Without a timeout, only a closed pipe ends the wait for records.
            if timeout_s is None:
                fail(_PIPE_CLOSED)
            return
        before = printer.count
        try:
            printer.print(records)
        except BrokenPipeError:
            # The reader may not have received these records, so the next run prints them again.
            mark_unread(consumer, records)
            fail(_PIPE_CLOSED)
            return
        except PlogError:
            # The record that cannot be printed counts as read, as in Kafka. Otherwise, each run of
            # a group would stop at this record.
            mark_unread(consumer, records[printer.count - before :])
            raise


def next_records(
    consumer: Consumer, count: int, timeout_s: float | None, printer: Printer
) -> Sequence[ConsumerRecord]:
    """Return the next records; none after the timeout or when the reader has closed the pipe."""
    if timeout_s is not None:
        return consumer.consume(count, timeout_s)
    # Only a write to a closed pipe fails, so `consume | head -1` would wait for another record.
    while not printer.reader_has_closed:
        records = consumer.consume(count, _PIPE_CHECK_S)
        if records:
            return records
    return ()


def mark_unread(consumer: Consumer, records: Sequence[ConsumerRecord]) -> None:
    """Reset the consumer to the first of `records`, so that their offsets are not committed."""
    from plog.client.errors import IllegalState
    from plog.types import TopicPartition

    first: dict[TopicPartition, int] = {}
    for record in records:
        # Only the first offset matters, because the records of a partition are in order.
        first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
    for partition, offset in first.items():
        # The partition may have been assigned to another member in the meantime.
        with suppress(IllegalState):
            consumer.seek(partition, offset)


class Printer:
    """Writes records to a stream and counts them."""

    def __init__(self, formatter: Formatter, stream: IO[bytes], *, skips_errors: bool) -> None:
        self._formatter = formatter
        self._stream = stream
        self._skips_errors = skips_errors
        self.count = 0

    @property
    def reader_has_closed(self) -> bool:
        """Return whether the reader of the output has closed the pipe."""
        try:
            return reader_has_closed(self._stream.fileno())
        except OSError:  # The stream has no descriptor.
            return False

    def print(self, records: Sequence[ConsumerRecord]) -> None:
        """Print records. Raises BrokenPipeError, and PlogError if a record cannot be printed."""
        lines: list[bytes] = []
        try:
            for record in records:
                # As in Kafka's tool, records that cannot be printed count, too.
                self.count += 1
                try:
                    lines.append(self._formatter.format(record))
                except PlogError as error:
                    where = f"{record.topic}-{record.partition} at offset {record.offset}"
                    if not self._skips_errors:
                        raise PlogError(
                            f"cannot print the record in {where}: {error}; use"
                            " --skip-message-on-error to continue"
                        ) from error
                    fail(f"skipped the record in {where}: {error}")
        # The records before an error are printed, and the caller commits their offsets.
        finally:
            # Records are written together, because each flush is a system call.
            self._stream.write(b"".join(lines))
            self._stream.flush()
