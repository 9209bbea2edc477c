"""``plog consumer-perf-test``: measure the throughput of a consumer.

Names, flags and columns match Kafka's kafka-consumer-perf-test.sh. Source: Kafka 4.3
ConsumerPerformance.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

from plog.cli.client_properties import add_client_options, client_config, topic_pattern
from plog.cli.options import UsageError, add_bootstrap_option, positive
from plog.cli.parser import add_examples, fail
from plog.cli.perf.java_dates import formatted
from plog.cli.perf.statistics import metrics_lines
from plog.cli.shutdown import Shutdown

if TYPE_CHECKING:
    from plog.client.faces.blocking import Consumer
    from plog.types import TopicPartition

_MIB: Final = 1024 * 1024  # The columns call it MB, as in Kafka's tool.
# As in Kafka's tool.
_POLL_S: Final = 0.1
_DATE_FORMAT: Final = "yyyy-MM-dd HH:mm:ss:SSS"
_CLIENT_ID: Final = "perf-consumer-client"
_MORE_COLUMNS: Final = ", rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
_COLUMNS: Final = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec"
)
_DETAILED: Final = "time, threadId, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec"


def configure(parser: argparse.ArgumentParser) -> None:
    """Consume many records and print the throughput."""
    add_bootstrap_option(parser, "--broker-list")
    parser.add_argument("--topic", help="the topic to read")
    parser.add_argument(
        "--include",
        type=topic_pattern,
        metavar="REGEX",
        help="regular expression for the topics to read",
    )
    parser.add_argument(
        "--num-records",
        "--messages",
        dest="num_records",
        required=True,
        type=positive,
        metavar="COUNT",
        help="number of records to read",
    )
    parser.add_argument("--group", help="consumer group to join (default: a random name)")
    # Kafka 3.9 also accepts these options and ignores them.
    parser.add_argument("--threads", "--num-fetch-threads", dest="_", help=argparse.SUPPRESS)
    add_client_options(parser, "consumer")
    _add_fetch_options(parser)
    _add_output_options(parser)
    add_examples(
        parser,
        (
            "read a million records",
            "plog consumer-perf-test --bootstrap-server localhost:9092 --topic load"
            " --num-records 1000000",
        ),
        (
            "print a line every second",
            "plog consumer-perf-test --bootstrap-server localhost:9092 --topic load"
            " --num-records 10000000 --show-detailed-stats --reporting-interval 1000",
        ),
    )
    parser.set_defaults(run=run)


def _add_fetch_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fetch-size",
        type=positive,
        default=_MIB,
        metavar="BYTES",
        help="maximum bytes per partition in a fetch (default: %(default)s)",
    )
    parser.add_argument(
        "--socket-buffer-size",
        type=positive,
        default=2 * _MIB,
        metavar="BYTES",
        help="size of the socket's receive buffer (default: %(default)s)",
    )
    parser.add_argument(
        "--from-latest",
        action="store_true",
        help="start at the end of the log unless the group has committed offsets",
    )
    parser.add_argument(
        "--timeout",
        nargs="?",
        type=positive,
        const=10_000,
        default=10_000,
        metavar="MS",
        help="stop if no record arrives for this long, in ms (default: %(default)s)",
    )


def _add_output_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--show-detailed-stats", action="store_true", help="print interim results")
    parser.add_argument(
        "--reporting-interval",
        type=positive,
        default=5000,
        metavar="MS",
        help="time between interim results, in ms (default: %(default)s)",
    )
    parser.add_argument(
        "--date-format",
        default=_DATE_FORMAT,
        metavar="FORMAT",
        help="format for times, as in Java's SimpleDateFormat",
    )
    parser.add_argument("--hide-header", action="store_true", help="do not print column names")
    parser.add_argument("--print-metrics", action="store_true", help="print the metrics at the end")


@dataclass(slots=True)
class Progress:
    """The records and bytes read until `now_ms`, and the time spent waiting for partitions."""

    now_ms: int
    records: int = 0
    size_bytes: int = 0
    joining_ms: int = 0


@dataclass(slots=True)
class JoinTimer:
    """A rebalance listener that measures how long this member waits for partitions."""

    began_ms: int
    total_ms: int = field(default=0)

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        # From here until the next assignment, the member cannot fetch.
        self.began_ms = now_ms()

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.total_ms += now_ms() - self.began_ms


def run(arguments: argparse.Namespace) -> int:
    """Read the records; return 1 if they did not arrive in time."""
    if (arguments.topic is None) == (arguments.include is None):
        raise UsageError("specify exactly one of --topic and --include")
    # An unsupported format must not be detected only after the measurement.
    formatted(arguments.date_format, datetime.now())
    flags = {
        "group.id": arguments.group,
        "receive.buffer.bytes": arguments.socket_buffer_size,
        "max.partition.fetch.bytes": arguments.fetch_size,
        "auto.offset.reset": "latest" if arguments.from_latest else "earliest",
        "check.crcs": "false",  # As in Kafka's tool, to keep results comparable.
    }
    defaults = {
        "client.id": _CLIENT_ID,
        # A random group hardly ever has committed offsets, so each run reads from the start.
        "group.id": f"perf-consumer-{random.randrange(100_000)}",
    }
    config = client_config(arguments, flags, defaults=defaults)
    from plog.client.faces.blocking import Consumer

    if not arguments.hide_header:
        print((_DETAILED if arguments.show_detailed_stats else _COLUMNS) + _MORE_COLUMNS)
    # No call has to be interrupted, because each one ends within `_POLL_S`.
    with Shutdown() as stopping, Consumer(config=config) as consumer:
        start = Progress(now_ms())
        end = read(consumer, arguments, start, stopping)
        if not arguments.show_detailed_stats:
            print(total_line(start, end, arguments.date_format))
        if arguments.print_metrics:
            client_id = str(config["client.id"])
            metrics = consumer.metrics()
            print("\n" + "\n".join(metrics_lines(metrics, "consumer-metrics", client_id)))
    return stopping.exit_code or int(end.records < arguments.num_records)


def read(
    consumer: Consumer, arguments: argparse.Namespace, start: Progress, stopping: Shutdown
) -> Progress:
    """Read until the requested count or the timeout."""
    timer = JoinTimer(start.now_ms)  # The first wait for partitions begins at startup.
    if arguments.topic is not None:
        consumer.subscribe([arguments.topic], listener=timer)
    else:
        consumer.subscribe(pattern=arguments.include, listener=timer)
    done = Progress(start.now_ms)
    reported, last_record_ms = start, start.now_ms
    while done.records < arguments.num_records and not stopping.requested:
        records = consumer.consume(None, _POLL_S)
        now = now_ms()
        # As in Kafka's tool, the timeout starts again after each record.
        if records:
            last_record_ms = now
        elif now - last_record_ms > arguments.timeout:
            fail(
                f"read only {done.records} records: no more records arrived for"
                f" {arguments.timeout} ms; increase --timeout to wait longer"
            )
            break
        # As in Kafka's tool, headers and the batch format are not counted.
        size = sum(len(x.key or b"") + len(x.value or b"") for x in records)
        done = Progress(now, done.records + len(records), done.size_bytes + size, timer.total_ms)
        if arguments.show_detailed_stats and now - reported.now_ms >= arguments.reporting_interval:
            # A script that reads the pipe must see the line immediately.
            print(detailed_line(reported, done, arguments.date_format), flush=True)
            reported = done
    return done


def total_line(start: Progress, end: Progress, date_format: str) -> str:
    """Return the line for the entire run."""
    elapsed_ms = end.now_ms - start.now_ms
    # As in Kafka's tool, fetching is the time that is not spent on joining the group.
    fetching_ms = elapsed_ms - end.joining_ms
    read_mb = end.size_bytes / _MIB
    return (
        f"{_date(date_format, start.now_ms)}, {_date(date_format, end.now_ms)},"
        f" {read_mb:.4f}, {_rate(read_mb, elapsed_ms):.4f},"
        f" {end.records}, {_rate(end.records, elapsed_ms):.4f},"
        f" {end.joining_ms}, {fetching_ms},"
        f" {_rate(read_mb, fetching_ms):.4f}, {_rate(end.records, fetching_ms):.4f}"
    )


def detailed_line(before: Progress, now: Progress, date_format: str) -> str:
    """Return the line for the time since `before`; totals are for the run so far."""
    # As in Kafka's tool, which has a single thread, the column threadId is always 0.
    elapsed_ms = now.now_ms - before.now_ms
    joining_ms = now.joining_ms - before.joining_ms
    fetching_ms = elapsed_ms - joining_ms
    read_mb = (now.size_bytes - before.size_bytes) / _MIB
    count = now.records - before.records
    return (
        f"{_date(date_format, now.now_ms)}, 0,"
        f" {now.size_bytes / _MIB:.4f}, {_rate(read_mb, elapsed_ms):.4f},"
        f" {now.records}, {_rate(count, elapsed_ms):.4f},"
        f" {joining_ms}, {fetching_ms},"
        f" {_rate(read_mb, fetching_ms):.4f}, {_rate(count, fetching_ms):.4f}"
    )


def _rate(amount: float, elapsed_ms: int) -> float:
    return 1000 * amount / elapsed_ms if elapsed_ms > 0 else 0.0


def _date(date_format: str, ms: int) -> str:
    return formatted(date_format, datetime.fromtimestamp(ms / 1000))


def now_ms() -> int:
    """Return the wall-clock time in milliseconds."""
    return time.time_ns() // 1_000_000
