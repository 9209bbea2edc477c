"""``plog e2e-latency``: measure the latency from a producer to a consumer.

The tool sends a record, waits until the consumer has received it, and then sends the next record.
Flags, positional arguments and output match Kafka's kafka-e2e-latency.sh. Source: Kafka 4.3
EndToEndLatency, KIP-1172.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from plog.cli.client_properties import client_config, known_to
from plog.cli.options import (
    UsageError,
    add_bootstrap_option,
    add_command_config_option,
    not_negative,
    positive,
)
from plog.cli.parser import add_examples
from plog.cli.perf.statistics import percentiles
from plog.error_base import PlogError

if TYPE_CHECKING:
    from plog.client.faces.blocking import Consumer, Producer

# As in Kafka's tool.
_TIMEOUT_S: Final = 60.0
# Until Kafka 4.2, the tool had only positional arguments (KIP-1172).
_POSITIONS: Final[tuple[tuple[str, Callable[[str], object]], ...]] = (
    ("bootstrap_servers", str),
    ("topic", str),
    ("num_records", positive),
    ("producer_acks", str),
    ("record_size", not_negative),
    ("command_config", str),
)
_REQUIRED: Final = 5


def configure(parser: argparse.ArgumentParser) -> None:
    """Measure record latency from a producer to a consumer."""
    add_bootstrap_option(parser, required=False)
    parser.add_argument("--topic", help="the topic to use; created if it does not exist")
    parser.add_argument(
        "--num-records", type=positive, metavar="COUNT", help="number of records to send"
    )
    parser.add_argument(
        "--producer-acks", choices=("1", "all"), help="acks setting for the producer"
    )
    parser.add_argument(
        "--record-size", type=not_negative, metavar="BYTES", help="size of each value"
    )
    add_command_config_option(parser)
    for name, text in (
        ("--record-key-size", "size of each key (default: no keys)"),
        ("--num-headers", "number of headers per record (default: none)"),
        ("--record-header-key-size", "size of each header name"),
    ):
        parser.add_argument(name, type=not_negative, default=0, metavar="NUMBER", help=text)
    parser.add_argument(
        "--record-header-size",
        type=int,
        default=0,
        metavar="BYTES",
        help="size of each header value; -1 for null",
    )
    parser.add_argument(
        "positions",
        nargs="*",
        metavar="ARGUMENT",
        help="positional arguments, as used before Kafka 4.2: bootstrap-server topic num-records"
        " producer-acks record-size [command-config]",
    )
    add_examples(
        parser,
        (
            "send ten thousand records",
            "plog e2e-latency --bootstrap-server localhost:9092 --topic latency"
            " --num-records 10000 --producer-acks all --record-size 100",
        ),
        ("use positional arguments", "plog e2e-latency localhost:9092 latency 10000 all 100"),
    )
    parser.set_defaults(run=run)


def apply_positions(arguments: argparse.Namespace) -> None:
    """Assign positional arguments to their options and check all options. Raises UsageError."""
    given = arguments.positions
    if given:
        if len(given) not in (_REQUIRED, len(_POSITIONS)):
            raise UsageError(f"expected 5 or 6 positional arguments, got {len(given)}")
        # The last argument is optional, hence the lengths can differ.
        for text, (name, convert) in zip(given, _POSITIONS, strict=False):
            try:
                setattr(arguments, name, convert(text))
            except argparse.ArgumentTypeError as error:
                raise UsageError(f"{name.replace('_', '-')}: {error}") from None
    for name, _ in _POSITIONS[:_REQUIRED]:
        if getattr(arguments, name) is None:
            # The option and the attribute have different names.
            flag = name.replace("bootstrap_servers", "bootstrap_server").replace("_", "-")
            raise UsageError(f"--{flag} is required")
    if arguments.producer_acks not in ("1", "all"):
        raise UsageError("--producer-acks must be 1 or all: unacknowledged records may be lost")
    if arguments.record_header_size < -1:
        raise UsageError("--record-header-size must be -1 or more")


class Sample(NamedTuple):
    """A record to send."""

    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, bytes | None], ...]


def make_sample(arguments: argparse.Namespace, chance: random.Random) -> Sample:
    """Return the next record; as in Kafka's tool, each field repeats a random letter."""

    def letters(size: int) -> bytes:
        return bytes([chance.randrange(26) + ord("A")]) * size

    value_size = arguments.record_header_size
    headers = tuple(
        (
            letters(arguments.record_header_key_size).decode(),
            None if value_size < 0 else letters(value_size),
        )
        for _ in range(arguments.num_headers)
    )
    key = letters(arguments.record_key_size) if arguments.record_key_size else None
    return Sample(key, letters(arguments.record_size), headers)


def run(arguments: argparse.Namespace) -> int:
    """Send the records sequentially and print the latencies."""
    apply_positions(arguments)
    config = client_config(arguments)
    from plog.client.faces.blocking import Consumer, Producer
    from plog.client.settings import AdminSettings, ConsumerSettings, ProducerSettings

    producer_config = known_to(ProducerSettings, config)
    # The next record is sent only after this record has arrived, so a batch has only one record.
    producer_config |= {"linger.ms": 0, "acks": arguments.producer_acks}
    consumer_config = known_to(ConsumerSettings, config) | {"auto.offset.reset": "latest"}
    _ensure_topic(known_to(AdminSettings, config), arguments.topic)
    chance = random.Random(0)  # As in Kafka's tool, all runs send the same values.
    latencies_ns: list[int] = []
    with Producer(config=producer_config) as producer, Consumer(config=consumer_config) as consumer:
        _begin(consumer, arguments.topic)
        for number in range(arguments.num_records):
            sample = make_sample(arguments, chance)
            latencies_ns.append(measure(producer, consumer, arguments.topic, sample))
            if number % 1000 == 0:
                print(f"{number}\t{latencies_ns[-1] / 1e6}", flush=True)
    print(f"Avg latency: {sum(latencies_ns) / len(latencies_ns) / 1e6:.4f} ms")
    # Whole milliseconds, as in Kafka's tool.
    p50, p99, p999 = percentiles([x // 1_000_000 for x in latencies_ns], (0.5, 0.99, 0.999))
    print(f"Percentiles: 50th = {p50}, 99th = {p99}, 99.9th = {p999}")
    return 0


def measure(producer: Producer, consumer: Consumer, topic: str, sample: Sample) -> int:
    """Send a record, read it, and return the latency in ns.

    Raises PlogError if the record does not arrive or a different record arrives.
    """
    # The system time can jump during the measurement.
    begin_ns = time.perf_counter_ns()
    # As in Kafka's tool, the latency includes the acknowledgment.
    producer.send(topic, sample.value, sample.key, headers=sample.headers).result()
    records = consumer.consume(None, _TIMEOUT_S)
    elapsed_ns = time.perf_counter_ns() - begin_ns
    if not records:
        raise PlogError(f"the consumer did not receive the record within {_TIMEOUT_S:g} s")
    received = Sample(records[0].key, records[0].value, tuple(records[0].headers))
    if received != sample or len(records) != 1:
        raise PlogError(f"another producer writes to {topic}: use a topic without other writers")
    return elapsed_ns


def _begin(consumer: Consumer, topic: str) -> None:
    from plog.types import TopicPartition

    # A new topic does not immediately have leaders, hence the timeout.
    partitions = [TopicPartition(topic, x.index) for x in consumer.partitions_for(topic, 30)]
    # As in Kafka's tool, there is no group: a rebalance would add to a latency.
    consumer.assign(partitions)
    consumer.seek_to_end(partitions)
    for partition in partitions:
        # `seek_to_end` is lazy. This call looks up the end now, before the first record is sent.
        consumer.position(partition)


def _ensure_topic(config: dict[str, object], topic: str) -> None:
    from plog.client.faces.blocking import Admin

    with Admin(config=config) as admin:
        if topic not in admin.list_topics():
            print(
                f'Topic "{topic}" does not exist. Will create topic with 1 partition(s) and'
                " replication factor = 1"
            )
            admin.create_topic(topic, partitions=1, replication_factor=1)
