"""``plog producer-perf-test``: measure the throughput and latency of a producer.

Names, flags and lines match Kafka's kafka-producer-perf-test.sh.
"""

from __future__ import annotations

import argparse
import random
import string
import time
from collections.abc import Callable, Sequence
from itertools import count as counter
from typing import TYPE_CHECKING, Any, Final

from plog.cli.client_properties import (
    add_client_config_option,
    add_client_property_list,
    client_config,
)
from plog.cli.options import UsageError, add_bootstrap_option, not_negative, positive
from plog.cli.parser import add_examples, fail
from plog.cli.perf.statistics import Statistics, metrics_lines
from plog.cli.send_results import SendResults
from plog.cli.shutdown import Shutdown
from plog.cli.throttle import Throttle
from plog.error_base import PlogError

if TYPE_CHECKING:
    from plog.client.faces.blocking import Producer

# Table for bytes.translate(), which converts random bytes to letters in C.
_LETTERS: Final = bytes(ord(string.ascii_uppercase[i % 26]) for i in range(256))
_CLIENT_ID: Final = "perf-producer-client"
_MAX_PRINTED_ERRORS: Final = 10


def configure(parser: argparse.ArgumentParser) -> None:
    """Send many records and print the throughput and latencies."""
    add_bootstrap_option(parser, required=False)
    parser.add_argument("--topic", required=True, help="the topic to send to")
    parser.add_argument(
        "--num-records", required=True, type=positive, help="number of records to send"
    )
    parser.add_argument(
        "--throughput",
        required=True,
        type=float,
        metavar="RATE",
        help="approximate records per second; -1 for no limit",
    )
    payload = parser.add_mutually_exclusive_group(required=True)
    payload.add_argument("--record-size", type=positive, metavar="BYTES", help="size of each value")
    payload.add_argument(
        "--payload-file", metavar="FILE", help="send randomly selected parts of a file"
    )
    payload.add_argument("--payload-monotonic", action="store_true", help="send 0, 1, 2 and so on")
    parser.add_argument(
        "--payload-delimiter",
        default="\\n",
        metavar="TEXT",
        help="separator between the parts of the file (default: line feed)",
    )
    add_client_property_list(parser, "--producer-props", description="producer settings")
    add_client_config_option(parser, "producer")
    parser.add_argument("--print-metrics", action="store_true", help="print the metrics at the end")
    parser.add_argument(
        "--warmup-records",
        type=not_negative,
        default=0,
        metavar="COUNT",
        help="print a second line of totals that excludes this many initial records",
    )
    parser.add_argument(
        "--reporting-interval",
        type=positive,
        default=5000,
        metavar="MS",
        help="time between two progress lines, in ms (default: %(default)s)",
    )
    _add_transaction_options(parser)
    add_examples(
        parser,
        (
            "send a million records at full speed",
            "plog producer-perf-test --bootstrap-server localhost:9092 --topic load"
            " --num-records 1000000 --record-size 200 --throughput -1",
        ),
        (
            "measure latency at low load, excluding the first second",
            "plog producer-perf-test --bootstrap-server localhost:9092 --topic load"
            " --num-records 10000 --record-size 200 --throughput 200 --warmup-records 200"
            " --command-property linger.ms=0 acks=all",
        ),
    )
    parser.set_defaults(run=run)


def _add_transaction_options(parser: argparse.ArgumentParser) -> None:
    for name in ("--transactional-id", "--transaction-duration-ms"):
        parser.add_argument(
            name, metavar=name[2:].upper(), help="not supported: transactions are not measured"
        )


def check(arguments: argparse.Namespace) -> None:
    """Reject invalid options. Raises UsageError."""
    for name in ("transactional_id", "transaction_duration_ms"):
        if getattr(arguments, name) is not None:
            raise UsageError(
                f"--{name.replace('_', '-')} is not supported: this tool does not measure"
                " transactions; use Kafka's kafka-producer-perf-test.sh"
            )
    if arguments.warmup_records >= arguments.num_records:
        raise UsageError("--warmup-records must be less than --num-records")


def payloads(arguments: argparse.Namespace) -> Callable[[], bytes]:
    """Return a function that returns the next value. Raises UsageError and OSError."""
    chance = random.Random(0)  # As in Kafka's tool, all runs send the same values.
    if arguments.record_size is not None:
        size = arguments.record_size
        # This is faster than a call for each letter, but slightly uneven: 256 is not a multiple of
        # 26.
        return lambda: chance.randbytes(size).translate(_LETTERS)
    if arguments.payload_monotonic:
        numbers = counter()
        return lambda: b"%d" % next(numbers)
    with open(arguments.payload_file, "rb") as file:
        text = file.read()
    if not text:
        raise UsageError(f"{arguments.payload_file} is empty")
    delimiter = arguments.payload_delimiter.replace("\\n", "\n").encode()
    if not delimiter:
        raise UsageError("--payload-delimiter is empty")
    parts = text.split(delimiter)
    # Kafka uses Java's String.split, which drops trailing empty parts.
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    print(f"Number of records read: {len(parts)}")
    return lambda: chance.choice(parts)


def run(arguments: argparse.Namespace) -> int:
    """Send the records; return 1 if a record was not delivered."""
    check(arguments)
    config = client_config(arguments, defaults={"client.id": _CLIENT_ID})
    next_payload = payloads(arguments)
    from plog.client.faces.blocking import Producer

    with Shutdown() as stopping, Producer(config=config) as producer:
        test = PerfTest(arguments, producer)
        test.send_all(next_payload, stopping)
        # Otherwise, the totals would lack the records in flight.
        producer.flush()
        test.print_totals()
        if arguments.print_metrics:
            client_id = str(config["client.id"])
            print(
                "\n" + "\n".join(metrics_lines(producer.metrics(), "producer-metrics", client_id))
            )
    return stopping.exit_code or int(test.failed > 0)


class PerfTest:
    """Sends records and measures their latencies."""

    def __init__(self, arguments: argparse.Namespace, producer: Producer) -> None:
        self._arguments = arguments
        self._producer = producer
        self._statistics = Statistics(arguments.num_records, now_ms(), arguments.reporting_interval)
        self._steady: Statistics | None = None
        self.failed = 0

    def send_all(self, next_payload: Callable[[], bytes], stopping: Shutdown) -> None:
        """Send until the requested count or a signal. Raises PlogError if a send fails."""
        arguments, send, topic = self._arguments, self._producer.send, self._arguments.topic
        if arguments.warmup_records:
            print(
                f"Warmup first {arguments.warmup_records} records. Steady state results will print"
                " after the complete test summary."
            )
        outcomes: SendResults[tuple[int, int, bool]] = SendResults(self._written, self._failed)
        # A rate of 0 waits forever, but Event.wait rejects infinity.
        throttle = Throttle(
            arguments.throughput, now_s=time.monotonic, wait=lambda s: stopping.wait(min(s, 1e6))
        )
        for number in range(arguments.num_records):
            if number == arguments.warmup_records and number:
                self._begin_steady_state()
            payload = next_payload()
            # The last item is true if the record was sent after the warm-up. The result for an
            # earlier record can arrive later, but must not count as steady state.
            tag = (now_ms(), len(payload), self._steady is not None)
            try:
                outcomes.watch(tag, send(topic, payload))
            except PlogError as error:
                # The cause, such as a missing topic, would also fail the next records.
                raise PlogError(f"stopped at record {number}: {error}") from error
            throttle.pace(number + 1)
            if stopping.requested:
                return

    def _begin_steady_state(self) -> None:
        arguments = self._arguments
        self._steady = Statistics(
            arguments.num_records - arguments.warmup_records,
            now_ms(),
            arguments.reporting_interval,
            is_steady=True,
        )

    def _written(self, tags: Sequence[tuple[int, int, bool]]) -> None:
        # `SendResults` holds its lock during this call, so the statistics need none.
        now = now_ms()
        for start_ms, size, is_steady in tags:
            self._statistics.record(now - start_ms, size)
            if is_steady and self._steady is not None:
                self._steady.record(now - start_ms, size)
        # As in Kafka's tool, the lines after the warm-up only cover the steady state.
        line = (self._steady or self._statistics).report(now)
        if line is not None:
            print(line, flush=True)

    def _failed(self, tag: Any, error: Exception) -> None:
        self.failed += 1
        # When a broker is unavailable, all records in flight may fail.
        if self.failed <= _MAX_PRINTED_ERRORS:
            fail(f"a record was not delivered: {error}")

    def print_totals(self) -> None:
        """Print the totals of the entire run, and the totals without the warm-up."""
        now = now_ms()
        print(self._statistics.total(now))
        if self._steady is not None:
            print(self._steady.total(now))
        if self.failed > _MAX_PRINTED_ERRORS:
            fail(f"{self.failed - _MAX_PRINTED_ERRORS} more records were not delivered")


def now_ms() -> int:
    """Return the wall-clock time in milliseconds, as Kafka's tool does."""
    return time.time_ns() // 1_000_000
