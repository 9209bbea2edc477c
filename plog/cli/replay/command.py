"""Entry point of ``plog replay``: copy a range of a topic to another topic, at a chosen speed.

Kafka does not have a similar tool. Copies have the same keys, headers and timestamps as the
original records, and the same partitions if both topics have the same number of partitions. The
range is determined at startup. With ``--state``, a run continues where the previous run ended;
after a crash, up to a second of records is copied again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from plog.cli.client_properties import SERVERS, known_to, merged
from plog.cli.options import (
    UsageError,
    add_bootstrap_option,
    add_property_option,
    not_negative,
    number_list,
    positive,
)
from plog.cli.output import Table, kafka_columns, progress, show
from plog.cli.parser import add_examples, fail
from plog.cli.replay.plan import PartitionRange, State, make_plan
from plog.cli.send_results import SendResults
from plog.cli.shutdown import Shutdown
from plog.cli.throttle import Throttle
from plog.cli.time_range import time_ms
from plog.error_base import PlogError

if TYPE_CHECKING:
    from plog.cli.replay.pace import Speed
    from plog.client.faces.blocking import Consumer, Producer
    from plog.client.values import ConsumerRecord

_CHECKPOINT_S: Final = 1.0
"""Time between two saves of the state: after a crash, records from this period are copied again."""
_POLL_S: Final = 0.2
_MAX_RECORDS: Final = 500
_MAX_WAITING: Final = 2000
"""Approximate maximum number of a partition's records that wait for other partitions."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Copy a range of records from one topic to another, at a chosen speed."""
    add_bootstrap_option(parser)
    parser.add_argument("--topic", required=True, help="the topic to read")
    parser.add_argument("--to-topic", required=True, help="the topic to write to")
    parser.add_argument(
        "--to-bootstrap-server",
        metavar="HOST:PORT[,HOST:PORT]",
        help="brokers of the target cluster (default: the source cluster)",
    )
    parser.add_argument("--command-config", metavar="FILE", help="client settings for reading")
    parser.add_argument(
        "--to-command-config",
        metavar="FILE",
        help="client settings for writing (default: those for reading)",
    )
    add_property_option(
        parser,
        "--consumer-property",
        dest="consumer_properties",
        description="consumer setting",
    )
    add_property_option(
        parser,
        "--producer-property",
        dest="producer_properties",
        description="producer setting",
    )
    _add_range_options(parser)
    _add_speed_options(parser)
    add_examples(
        parser,
        (
            "copy a whole topic at full speed",
            "plog replay --bootstrap-server localhost:9092 --topic orders --to-topic orders-copy",
        ),
        (
            "replay an hour of traffic to another cluster in six minutes",
            "plog replay --bootstrap-server live:9092 --to-bootstrap-server localhost:9092"
            " --topic orders --to-topic orders --from-time 2026-03-01T12:00:00"
            " --until-time 2026-03-01T13:00:00 --speed 10x",
        ),
        (
            "preview the copy",
            "plog replay --bootstrap-server localhost:9092 --topic orders --to-topic orders-copy"
            " --from-offset 1000 --partitions 0,1 --dry-run",
        ),
    )
    parser.set_defaults(run=run)


def _add_range_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--partitions",
        type=number_list,
        metavar="NUMBER[,NUMBER]",
        help="partitions to copy (default: all)",
    )
    first = parser.add_mutually_exclusive_group()
    first.add_argument(
        "--from-offset",
        type=not_negative,
        help="the first offset to copy (default: the start of each partition)",
    )
    first.add_argument(
        "--from-time",
        type=time_ms,
        metavar="TIME",
        help="time of the first record: ISO 8601 (in UTC unless it includes a time zone), or ms"
        " since 1970",
    )
    last = parser.add_mutually_exclusive_group()
    last.add_argument("--until-offset", type=not_negative, help="end offset, exclusive")
    last.add_argument("--until-time", type=time_ms, metavar="TIME", help="end time, exclusive")


def _add_speed_options(parser: argparse.ArgumentParser) -> None:
    from plog.cli.replay.pace import Speed, speed

    parser.add_argument(
        "--speed",
        type=speed,
        default=Speed(),
        help="1x for the original speed, 10x for ten times the original speed, 500/s for 500"
        " records per second, or max (default)",
    )
    parser.add_argument(
        "--longest-pause",
        type=positive,
        default=3600,
        metavar="SECONDS",
        help="maximum pause between records, in seconds (default: %(default)s)",
    )
    parser.add_argument(
        "--timestamps",
        choices=("keep", "now"),
        default="keep",
        help="whether records keep their timestamps (default: %(default)s)",
    )
    parser.add_argument(
        "--state",
        type=Path,
        metavar="FILE",
        help="save progress in this file and resume from it; after a crash, up to one second of"
        " records is copied again",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the plan without copying any records"
    )
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")


def check(arguments: argparse.Namespace) -> None:
    """Reject a range that ends before it starts. Raises UsageError."""
    for kind in ("offset", "time"):
        first = getattr(arguments, f"from_{kind}")
        until = getattr(arguments, f"until_{kind}")
        if first is not None and until is not None and until <= first:
            raise UsageError(f"--until-{kind} must be later than --from-{kind}")


def run(arguments: argparse.Namespace) -> int:
    """Copy the range that the options select."""
    check(arguments)
    reader_config = _config(
        arguments.bootstrap_servers, arguments.command_config, arguments.consumer_properties
    )
    # Otherwise, records from aborted transactions would become visible in the copy.
    reader_config.setdefault("isolation.level", "read_committed")
    # If retention deletes records before they are copied, the tool must fail. Any other value would
    # skip the records silently.
    reader_config.setdefault("auto.offset.reset", "none")
    # The state file tracks the progress, not a consumer group.
    reader_config["enable.auto.commit"] = "false"
    writer_config = _config(
        arguments.to_bootstrap_server or arguments.bootstrap_servers,
        arguments.to_command_config or arguments.command_config,
        arguments.producer_properties,
    )
    from plog.client.faces.blocking import Consumer, Producer
    from plog.client.settings import AdminSettings

    with Consumer(config=reader_config) as consumer:
        source = Topic.find(known_to(AdminSettings, reader_config), arguments.topic)
        target = Topic.find(known_to(AdminSettings, writer_config), arguments.to_topic)
        # All checks come before the first change, which is the creation of the target topic.
        if source.partitions is None:
            raise UsageError(f"topic {source.name} does not exist on {reader_config[SERVERS]}")
        if str(source) == str(target):
            raise UsageError(f"cannot copy {source.name} to itself: choose a different topic")
        state = None
        if arguments.state is not None:
            state = State(arguments.state, str(source), str(target))
        ranges = _ranges(consumer, arguments, source.partitions, state)
        if arguments.dry_run:
            show_plan(ranges, arguments, target)
            return 0
        if target.partitions is None:
            target.create(known_to(AdminSettings, writer_config), source.partitions)
        with Producer(config=writer_config) as producer, Shutdown() as stopping:
            copier = Copier(arguments, ranges, producer, state, stopping)
            # If the numbers differ, the producer's partitioner selects the partitions by key.
            copier.keeps_partitions = target.partitions == source.partitions
            copier.copy_from(consumer)
        return stopping.exit_code


def _config(servers: str, file: str | None, given: Iterable[tuple[str, str]]) -> dict[str, object]:
    return {"client.id": "replay", **merged(file, given), SERVERS: servers}


def _ranges(
    consumer: Consumer, arguments: argparse.Namespace, count: int, state: State | None
) -> list[PartitionRange]:
    saved = None if state is None else state.load()
    # The plan of the previous run takes precedence over the options, so that the range stays fixed.
    if saved is not None:
        return saved
    partitions = range(count) if arguments.partitions is None else arguments.partitions
    missing = [x for x in partitions if x >= count]
    if missing:
        raise UsageError(
            f"partition {missing[0]} does not exist: {arguments.topic} has {count} partitions"
        )
    return make_plan(consumer, arguments, list(dict.fromkeys(partitions)))


class Topic:
    """The source or target topic: name, cluster and number of partitions."""

    def __init__(self, name: str, cluster_id: str, partitions: int | None) -> None:
        self.name = name
        self.partitions = partitions
        self._cluster_id = cluster_id

    # The cluster id, not the addresses: the same cluster can be reached at several addresses.
    def __str__(self) -> str:
        return f"{self.name}@{self._cluster_id}"

    @classmethod
    def find(cls, config: dict[str, object], name: str) -> Topic:
        """Look up a topic; `partitions` is None if it does not exist."""
        from plog.client.faces.blocking import Admin

        with Admin(config=config) as admin:
            cluster_id = admin.describe_cluster().cluster_id
            if name not in admin.list_topics(include_internal=True):
                return cls(name, str(cluster_id), None)
            return cls(name, str(cluster_id), len(admin.describe_topic(name).partitions))

    def create(self, config: dict[str, object], partitions: int) -> None:
        """Create the topic with `partitions` partitions, unless it has since been created."""
        from plog.client.faces.blocking import Admin
        from plog.errors import TopicAlreadyExists

        with Admin(config=config) as admin:
            try:
                admin.create_topic(self.name, partitions=partitions)
            # For example, a consumer that waits for the copy has created the topic.
            except TopicAlreadyExists:
                self.partitions = len(admin.describe_topic(self.name).partitions)
                return
        self.partitions = partitions
        print(f"Created topic {self.name} with {partitions} partitions.", file=sys.stderr)


def show_plan(
    ranges: Sequence[PartitionRange], arguments: argparse.Namespace, target: Topic
) -> None:
    """Print the range of each partition."""
    columns = ("TOPIC", "PARTITION", "FROM", "UNTIL", "RECORDS")
    rows = [
        (arguments.topic, x.partition, x.next_offset, x.end_offset, x.remaining) for x in ranges
    ]
    show(
        plain=lambda: kafka_columns([columns, *rows]),
        table=lambda: [Table(columns, rows)],
        data=lambda: [dict(zip(map(str.lower, columns), row, strict=True)) for row in rows],
        as_json=arguments.json,
    )
    if target.partitions is None:
        fail(f"topic {target.name} does not exist and would be created")


class Copier:
    """Sends records in the requested order and at the requested speed, and saves the state."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        ranges: Sequence[PartitionRange],
        producer: Producer,
        state: State | None,
        stopping: Shutdown,
    ) -> None:
        from plog.cli.replay.pace import TimePace

        self.keeps_partitions = True
        self._source: str = arguments.topic
        self._target: str = arguments.to_topic
        self._keeps_times = arguments.timestamps == "keep"
        self._ranges = {x.partition: x for x in ranges}
        self._producer = producer
        self._state = state
        self._stopping = stopping
        self._outcomes: SendResults[tuple[int, int]] = SendResults(lambda _: None, self._failed)
        self._error: PlogError | None = None
        self._saved_s = time.monotonic()
        self._sent = 0
        speed: Speed = arguments.speed
        self._by_time = (
            None if speed.factor is None else TimePace(speed.factor, arguments.longest_pause)
        )
        self._throttle = Throttle(
            -1 if speed.rate is None else speed.rate, now_s=time.monotonic, wait=self._wait
        )

    def copy_from(self, consumer: Consumer) -> None:
        """Copy records until the end of the range or a signal. Raises PlogError."""
        total = sum(x.remaining for x in self._ranges.values())
        try:
            with progress(total, "records") as advance:
                Reader(
                    consumer, self._source, self._ranges, in_time_order=self._by_time is not None
                ).read_all(
                    lambda record: self._send(record, advance), lambda: self._stopping.requested
                )
        # Also after an error, so that the next run continues after the last written record.
        finally:
            self._save()
        remaining = sum(x.remaining for x in self._ranges.values())
        if remaining and self._state is not None:
            fail("stopped; run the same command to continue from here")
        print(f"Copied {self._sent} records.", file=sys.stderr)

    def _send(self, record: ConsumerRecord, advance: Callable[[int], object]) -> None:
        if self._by_time is not None:
            self._wait(self._by_time.wait_s(record.timestamp, time.monotonic()))
        else:
            self._throttle.pace(self._sent)
        # A signal may have ended the wait early. The next run sends this record.
        if self._stopping.requested:
            return
        # A negative timestamp means none. The producer then uses the current time.
        has_time = self._keeps_times and record.timestamp >= 0
        position = (record.partition, record.offset)
        try:
            handle = self._producer.send(
                self._target,
                record.value,
                record.key,
                partition=record.partition if self.keeps_partitions else None,
                timestamp=record.timestamp if has_time else None,
                headers=record.headers,
            )
        except PlogError as error:
            self._failed(position, error)
        else:
            self._outcomes.watch(position, handle)
        self._raise_error()
        self._sent += 1
        range_ = self._ranges[record.partition]
        # Progress is counted in offsets, because the number of records is unknown in advance.
        advance(record.offset + 1 - range_.next_offset)
        range_.next_offset = record.offset + 1
        if time.monotonic() - self._saved_s >= _CHECKPOINT_S:
            self._save()

    def _wait(self, seconds: float) -> None:
        """Wait up to `seconds` or until a signal; save the state periodically."""
        deadline_s = time.monotonic() + seconds
        while (remaining_s := deadline_s - time.monotonic()) > 0:
            if self._stopping.wait(min(remaining_s, _CHECKPOINT_S)):
                return
            if remaining_s > _CHECKPOINT_S:
                self._save()

    def _save(self) -> None:
        """Wait until all sent records are written, then save the state. Raises PlogError."""
        # In this order, because the next run would skip a record that the state includes but that
        # has not been written.
        self._producer.flush()
        self._saved_s = time.monotonic()
        self._raise_error()
        if self._state is not None:
            self._state.save(list(self._ranges.values()))

    # The engine's thread can call this method, so the error is raised later by the main thread.
    def _failed(self, position: tuple[int, int], error: Exception) -> None:
        if self._error is None:
            partition, offset = position
            self._error = PlogError(
                f"stopped: the record at offset {offset} of {self._source}-{partition} was not"
                f" written: {error}"
            )

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error


class Reader:
    """Reads ranges of partitions, in order of arrival or by timestamp."""

    def __init__(
        self,
        consumer: Consumer,
        topic: str,
        ranges: dict[int, PartitionRange],
        *,
        in_time_order: bool,
    ) -> None:
        from plog.cli.replay.pace import TimeOrder
        from plog.types import TopicPartition

        self._consumer = consumer
        self._ends = {number: x.end_offset for number, x in ranges.items() if x.remaining}
        self._partitions = {number: TopicPartition(topic, number) for number in self._ends}
        self._open = set(self._ends)
        self._order = TimeOrder(self._ends) if in_time_order else None
        consumer.assign(list(self._partitions.values()))
        for number, partition in self._partitions.items():
            consumer.seek(partition, ranges[number].next_offset)

    def read_all(
        self, send: Callable[[ConsumerRecord], Any], is_stopped: Callable[[], bool]
    ) -> None:
        """Call `send` with each record until the ranges end or `is_stopped` returns true."""
        order = self._order
        while self._open and not is_stopped():
            for record in self._read():
                if order is None:
                    send(record)
                else:
                    order.add(record)
                if is_stopped():
                    return
            while order is not None and (earliest := order.pop()) is not None:
                send(earliest)
                if is_stopped():
                    return
            self._pause_ahead()

    def _read(self) -> list[ConsumerRecord]:
        """Return new records within the ranges, and finish the ranges that are complete."""
        records = self._consumer.consume(_MAX_RECORDS, _POLL_S)
        within = [x for x in records if x.offset < self._ends[x.partition]]
        for record in records:
            if record.offset + 1 >= self._ends[record.partition]:
                self._finish(record.partition)
        # A range can end with control records or a gap. The consumer does not return them, but
        # advances its position.
        if not records:
            for number in list(self._open):
                if self._consumer.position(self._partitions[number]) >= self._ends[number]:
                    self._finish(number)
        return within

    def _finish(self, number: int) -> None:
        if number in self._open:
            self._open.discard(number)
            # Records after the end of the range need not be fetched.
            self._consumer.pause([self._partitions[number]])
            if self._order is not None:
                self._order.finish(number)

    def _pause_ahead(self) -> None:
        """Pause partitions with many records that wait for other partitions; resume them later."""
        if self._order is None:
            return
        for number in self._open:
            partition = self._partitions[number]
            is_paused = partition in self._consumer.paused
            # With two thresholds, a partition is not paused and resumed for every few records.
            if not is_paused and self._order.waiting(number) > _MAX_WAITING:
                self._consumer.pause([partition])
            elif is_paused and self._order.waiting(number) < _MAX_RECORDS:
                self._consumer.resume([partition])
