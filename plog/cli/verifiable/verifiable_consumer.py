"""``plog verifiable-consumer``: a group member that prints each step as an event.

Flags and events match Kafka's kafka-verifiable-consumer.sh. Source: Kafka 4.3 VerifiableConsumer.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from plog.cli.client_properties import add_client_config_option, client_config
from plog.cli.options import add_bootstrap_option, positive
from plog.cli.parser import add_examples
from plog.cli.shutdown import Shutdown
from plog.cli.verifiable.json_events import Events
from plog.error_base import PlogError

if TYPE_CHECKING:
    from plog.client.faces.blocking import Consumer
    from plog.client.values import ConsumerRecord
    from plog.types import TopicPartition


def configure(parser: argparse.ArgumentParser) -> None:
    """Consume as a group member and print each step as a JSON event."""
    add_bootstrap_option(parser, "--broker-list")
    parser.add_argument("--topic", required=True, help="the topic to read")
    parser.add_argument("--group-id", required=True, metavar="GROUP", help="the group to join")
    parser.add_argument("--group-instance-id", metavar="ID", help="id of a static member")
    parser.add_argument(
        "--group-protocol",
        default="classic",
        type=str.lower,
        help="only classic is supported (default: %(default)s)",
    )
    parser.add_argument(
        "--group-remote-assignor",
        metavar="NAME",
        help="server-side assignor; for the consumer protocol only",
    )
    parser.add_argument(
        "--max-messages",
        type=int,
        default=-1,
        metavar="COUNT",
        help="number of records to read; -1 for no limit (default: %(default)s)",
    )
    parser.add_argument(
        "--session-timeout", type=positive, metavar="MS", help="value of session.timeout.ms"
    )
    parser.add_argument("--verbose", action="store_true", help="print an event for each record")
    parser.add_argument(
        "--enable-autocommit",
        action="store_true",
        help="let the client commit offsets automatically",
    )
    parser.add_argument(
        "--reset-policy",
        default="earliest",
        choices=("earliest", "latest", "none"),
        help="start position if no offsets are committed (default: %(default)s)",
    )
    parser.add_argument(
        "--assignment-strategy",
        default="org.apache.kafka.clients.consumer.RangeAssignor",
        metavar="NAME",
        help="a Java class, or range, roundrobin, sticky, cooperative-sticky (default: range)",
    )
    add_client_config_option(parser, "consumer")
    add_examples(
        parser,
        (
            "run a member that prints its records",
            "plog verifiable-consumer --bootstrap-server localhost:9092 --topic checked"
            " --group-id checkers --verbose",
        ),
    )
    parser.set_defaults(run=run)


def settings_of(arguments: argparse.Namespace) -> dict[str, object]:
    """Return the consumer's settings; as in Kafka's tool, flags override the file."""
    is_classic = arguments.group_protocol == "classic"
    flags = {
        "group.id": arguments.group_id,
        "group.instance.id": arguments.group_instance_id,
        # Settings have the text form of a properties file, where Java's booleans are in lower case.
        "enable.auto.commit": str(arguments.enable_autocommit).lower(),
        "auto.offset.reset": arguments.reset_policy,
        "session.timeout.ms": arguments.session_timeout,
        # In the consumer protocol (KIP-848), the broker assigns partitions.
        "group.protocol": None if is_classic else arguments.group_protocol,
        "group.remote.assignor": arguments.group_remote_assignor,
        "partition.assignment.strategy": arguments.assignment_strategy if is_classic else None,
    }
    return client_config(arguments, flags)


def run(arguments: argparse.Namespace) -> int:
    """Read until the requested count or a signal."""
    config = settings_of(arguments)
    from plog.client.faces.blocking import Consumer

    consumer = Consumer(config=config)
    reader = VerifiableReader(arguments, consumer, Events())
    with Shutdown(consumer.wakeup) as stopping:
        try:
            reader.read_all(stopping)
        finally:
            consumer.close()
            # Closing the consumer prints revoked partitions, and this event must be the last one.
            reader.conclude()
    return stopping.exit_code


class VerifiableReader:
    """Reads records, commits offsets, and prints events; also the group's rebalance listener."""

    def __init__(self, arguments: argparse.Namespace, consumer: Consumer, events: Events) -> None:
        self._consumer = consumer
        self._events = events
        self._topic: str = arguments.topic
        self._limit: int = arguments.max_messages
        self._is_verbose: bool = arguments.verbose
        self._commits = not arguments.enable_autocommit
        self._count = 0

    def read_all(self, stopping: Shutdown) -> None:
        """Read until the requested count or a signal. Raises the consumer's errors."""
        from plog.client.errors import WokenUp

        self._events.print("startup_complete")
        self._consumer.subscribe([self._topic], listener=self)
        while not stopping.requested and (self._limit < 0 or self._count < self._limit):
            # 500 is the default for max.poll.records.
            count = None if self._limit < 0 else min(500, self._limit - self._count)
            try:
                records = self._consumer.consume(count, None)
            except WokenUp:
                break
            # Printed before the commit. If the process is killed in between, the records are read
            # again, and none are missing from the output.
            offsets = self._print_records(records)
            if self._commits:
                self._commit(offsets)
        if stopping.requested:
            self._events.print("shutdown_requested")

    def _print_records(self, records: Sequence[ConsumerRecord]) -> dict[TopicPartition, int]:
        """Print the received records and return the offsets to commit."""
        # The event has minimum and maximum offsets by partition, so that a checker can find gaps.
        by_partition: dict[tuple[str, int], list[ConsumerRecord]] = {}
        for record in records:
            by_partition.setdefault((record.topic, record.partition), []).append(record)
        if self._is_verbose:
            for record in records:
                self._events.print("record_data", **record_fields(record))
        self._count += len(records)
        self._events.print(
            "records_consumed",
            count=len(records),
            partitions=[
                {
                    "topic": topic,
                    "partition": partition,
                    "count": len(batch),
                    "minOffset": batch[0].offset,
                    "maxOffset": batch[-1].offset,
                }
                for (topic, partition), batch in by_partition.items()
            ],
        )
        from plog.types import TopicPartition

        # A committed offset is that of the next record to read.
        return {TopicPartition(*key): batch[-1].offset + 1 for key, batch in by_partition.items()}

    def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        from plog.client.errors import WokenUp

        error: PlogError | None = None
        try:
            try:
                self._consumer.commit(offsets)
            # A signal requested a shutdown. The printed records must be committed before the
            # shutdown, so the commit is repeated: `wakeup` only interrupts one call.
            except WokenUp:
                self._consumer.commit(offsets)
        # As in Kafka's tool, a failed commit is an event: a rebalance can always cause one, and the
        # checker decides what it means.
        except PlogError as caught:
            error = caught
        shown = [{**partition_fields(x), "offset": offset} for x, offset in offsets.items()]
        problem = {} if error is None else {"error": str(error)}
        self._events.print("offsets_committed", offsets=shown, **problem, success=error is None)

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Print the partitions that the group has assigned to this member."""
        shown = [partition_fields(x) for x in sorted(partitions)]
        self._events.print("partitions_assigned", partitions=shown)

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Print the partitions that the group has revoked from this member."""
        shown = [partition_fields(x) for x in sorted(partitions)]
        self._events.print("partitions_revoked", partitions=shown)

    def conclude(self) -> None:
        """Print the last event."""
        self._events.print("shutdown_complete")


def partition_fields(partition: TopicPartition) -> dict[str, object]:
    """Return a partition as fields of an event."""
    return {"topic": partition.topic, "partition": partition.partition}


def record_fields(record: ConsumerRecord) -> dict[str, object]:
    """Return a record as fields of an event."""
    return {
        "key": None if record.key is None else record.key.decode("utf-8", "replace"),
        "value": None if record.value is None else record.value.decode("utf-8", "replace"),
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
    }
