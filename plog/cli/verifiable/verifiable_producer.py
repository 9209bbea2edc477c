"""``plog verifiable-producer``: send increasing numbers and print each result as an event.

Flags and events match Kafka's kafka-verifiable-producer.sh. Source: Kafka 4.3 VerifiableProducer.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from plog.cli.client_properties import add_client_config_option, client_config
from plog.cli.options import add_bootstrap_option, positive
from plog.cli.parser import add_examples
from plog.cli.shutdown import Shutdown
from plog.cli.throttle import Throttle
from plog.cli.verifiable.json_events import Events, java_class_of
from plog.error_base import PlogError

if TYPE_CHECKING:
    from plog.client.faces.blocking import Producer
    from plog.client.values import RecordMetadata


def configure(parser: argparse.ArgumentParser) -> None:
    """Send increasing numbers and print each step as a JSON event."""
    add_bootstrap_option(parser, "--broker-list")
    parser.add_argument("--topic", required=True, help="the topic to send to")
    parser.add_argument(
        "--max-messages",
        type=int,
        default=-1,
        metavar="COUNT",
        help="number of records to send; -1 for no limit (default: %(default)s)",
    )
    parser.add_argument(
        "--throughput",
        type=int,
        default=-1,
        metavar="RATE",
        help="approximate records per second; -1 for no limit (default: %(default)s)",
    )
    parser.add_argument(
        "--acks",
        choices=("0", "1", "-1"),
        default="-1",
        help="value of acks (default: %(default)s)",
    )
    add_client_config_option(parser, "producer")
    parser.add_argument(
        "--message-create-time",
        type=int,
        default=-1,
        metavar="MS",
        help="timestamp of the first record, from which later timestamps advance (default: now)",
    )
    parser.add_argument(
        "--value-prefix", type=int, metavar="NUMBER", help="prefix for values, followed by a dot"
    )
    parser.add_argument(
        "--repeating-keys",
        type=positive,
        metavar="COUNT",
        help="cycle through this many keys, starting at 0 (default: no keys)",
    )
    add_examples(
        parser,
        (
            "send a thousand numbers",
            "plog verifiable-producer --bootstrap-server localhost:9092 --topic checked"
            " --max-messages 1000",
        ),
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Send until the requested count or a signal; then print the totals."""
    # In Kafka's tool, the file overrides the flags, and retries are off unless the file sets them.
    # An idempotent producer always retries.
    config = client_config(arguments, defaults={"acks": arguments.acks, "retries": 0})
    from plog.client.faces.blocking import Producer

    begin_s = time.monotonic()
    producer = Producer(config=config)
    closing = Closing(producer.close)
    with Shutdown(closing.begin) as stopping:
        sender = VerifiableSender(arguments, producer, Events())
        try:
            sender.send_all(stopping)
        finally:
            try:
                closing.finish()
            finally:
                sender.conclude(time.monotonic() - begin_s)
    return stopping.exit_code


class Closing:
    """Closes the producer once, in a separate thread, as Kafka's tool does on a signal."""

    # A send can wait for an unavailable broker for a minute. Closing the producer from another
    # thread ends the wait immediately, and earlier sends still complete.

    def __init__(self, close: Callable[[], object]) -> None:
        # A daemon thread, so that a second signal can end the process while this thread waits.
        self._thread = threading.Thread(target=close, name="closing", daemon=True)
        self._has_begun = False

    def begin(self) -> None:
        """Start to close the producer, without waiting; a signal handler can call this method."""
        if not self._has_begun:
            self._has_begun = True
            self._thread.start()

    def finish(self) -> None:
        """Close the producer and wait for the results for all sent records."""
        self.begin()
        self._thread.join()


class VerifiableSender:
    """Sends numbers and prints the results."""

    def __init__(self, arguments: argparse.Namespace, producer: Producer, events: Events) -> None:
        self._arguments = arguments
        self._producer = producer
        self._events = events
        self._topic: str = arguments.topic
        self._begin_s = time.monotonic()
        self._sent = 0
        self._acked = 0

    def send_all(self, stopping: Shutdown) -> None:
        """Send until the requested count or a signal."""
        self._events.print("startup_complete")
        rate = self._arguments.throughput
        # A rate of 0 waits forever, but Event.wait rejects infinity.
        throttle = Throttle(rate, now_s=time.monotonic, wait=lambda s: stopping.wait(min(s, 1e6)))
        for key, value in messages(self._arguments):
            if stopping.requested:
                return
            self._send(key, value)
            throttle.pace(self._sent)

    def _send(self, key: str | None, value: str) -> None:
        def on_delivery(metadata: RecordMetadata | None, error: Exception | None) -> None:
            if metadata is None:
                # The engine passes either metadata or an error.
                assert error is not None
                self._print_failure(key, value, error)
                return
            self._acked += 1
            self._events.print(
                "producer_send_success",
                key=key,
                value=value,
                topic=metadata.topic,
                partition=metadata.partition,
                offset=metadata.offset,
            )

        create_ms = self._arguments.message_create_time
        self._sent += 1
        try:
            self._producer.send(
                self._topic,
                value.encode(),
                None if key is None else key.encode(),
                timestamp=None if create_ms == -1 else create_ms + self._elapsed_ms(),
                on_delivery=on_delivery,
            )
        # As in Kafka's tool, sending continues, and the checker counts the failures.
        except PlogError as error:
            self._print_failure(key, value, error)

    def _elapsed_ms(self) -> int:
        return int(1000 * (time.monotonic() - self._begin_s))

    def _print_failure(self, key: str | None, value: str, error: Exception) -> None:
        self._events.print(
            "producer_send_error",
            key=key,
            value=value,
            topic=self._topic,
            exception=java_class_of(error),
            message=str(error),
        )

    def conclude(self, elapsed_s: float) -> None:
        """Print the last two events."""
        # As in Kafka's tool, the totals follow this event.
        self._events.print("shutdown_complete")
        self._events.print(
            "tool_data",
            sent=self._sent,
            acked=self._acked,
            target_throughput=self._arguments.throughput,
            avg_throughput=self._acked / elapsed_s if elapsed_s > 0 else 0.0,
        )


def messages(arguments: argparse.Namespace) -> Iterator[tuple[str | None, str]]:
    """Yield keys and values, endlessly if `max_messages` is negative.

    >>> options = argparse.Namespace(max_messages=3, value_prefix=7, repeating_keys=2)
    >>> list(messages(options))
    [('0', '7.0'), ('1', '7.1'), ('0', '7.2')]
    """
    number = 0
    while arguments.max_messages < 0 or number < arguments.max_messages:
        prefix = "" if arguments.value_prefix is None else f"{arguments.value_prefix}."
        keys = arguments.repeating_keys
        yield (None if keys is None else str(number % keys)), f"{prefix}{number}"
        number += 1
