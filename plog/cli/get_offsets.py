"""``plog get-offsets``: print the start, end or timestamp offsets of partitions.

Source: Kafka 4.3 GetOffsetShell.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Sequence

from plog.cli.admin_client import run_admin, topic_filter
from plog.cli.options import UsageError, add_admin_options, is_given, number_list
from plog.cli.output import Table, show
from plog.cli.parser import add_examples, fail
from plog.client.admin.records import RecordAdmin
from plog.client.admin.topic_descriptions import TopicDescriptionAdmin
from plog.client.admin.values import OffsetSpec
from plog.client.network.cluster import Cluster
from plog.types import TopicPartition

_TIMES = {spec.name.lower().replace("_", "-"): spec for spec in OffsetSpec}
# TOPIC, TOPIC:NUMBER or TOPIC:FIRST-END, as in Kafka's GetOffsetShell; all parts can be empty.
_PATTERN = re.compile(r"([^:,]*)(?::(?:(\d*)-(\d*)|(\d*)))?", re.ASCII)
_NO_OFFSET = -1

Filter = Callable[[TopicPartition], bool]


def configure(parser: argparse.ArgumentParser) -> None:
    """Print partition offsets: the latest, the earliest, or those for a timestamp."""
    add_admin_options(parser, "--broker-list")
    parser.add_argument(
        "--topic",
        metavar="TOPIC",
        help="comma-separated regular expressions for topics (default: all)",
    )
    parser.add_argument(
        "--partitions",
        type=number_list,
        metavar="NUMBER,...",
        help="partitions of these topics (default: all)",
    )
    parser.add_argument(
        "--topic-partitions",
        type=partition_filter,
        metavar="TOPIC:PARTITIONS,...",
        help="topics with partitions: orders:0, orders:0-3 (3 excluded), orders:2-, :-3, or orders",
    )
    parser.add_argument(
        "--time",
        type=offset_time,
        default=OffsetSpec.LATEST,
        metavar="TIME",
        help=f"{', '.join(f'{name} or {int(spec)}' for name, spec in _TIMES.items())}, or "
        "milliseconds since 1970 for the first record at or after that time (default: latest)",
    )
    parser.add_argument(
        "--exclude-internal-topics",
        action="store_true",
        help="exclude internal topics such as __consumer_offsets",
    )
    add_examples(
        parser,
        (
            "print the end offsets of a topic",
            "plog get-offsets --bootstrap-server localhost:9092 --topic orders",
        ),
        (
            "print the start offsets of two partitions",
            "plog get-offsets --bootstrap-server localhost:9092 --topic-partitions orders:0-2 "
            "--time earliest",
        ),
    )
    parser.set_defaults(run=run)


def offset_time(text: str) -> OffsetSpec | int:
    """Parse the name or number of an offset specification, or a timestamp.

    >>> offset_time("earliest"), offset_time("-1"), offset_time("1700000000000")
    (<OffsetSpec.EARLIEST: -2>, <OffsetSpec.LATEST: -1>, 1700000000000)
    """
    if text in _TIMES:
        return _TIMES[text]
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a time: use {', '.join(_TIMES)}, or milliseconds since 1970"
        ) from None
    # Negative timestamps are ListOffsets' symbols for offsets, such as -2 for the earliest one.
    return OffsetSpec(number) if number in _TIMES.values() else number


def partition_filter(text: str) -> Filter:
    """Return a predicate that is true for partitions that match any pattern in a list.

    >>> wanted = partition_filter("orders:1-3,clicks")
    >>> [wanted(TopicPartition(*x)) for x in (("orders", 2), ("orders", 3), ("clicks", 9))]
    [True, False, True]
    """
    rules = [_rule(part.strip()) for part in text.split(",")]
    return lambda partition: any(rule(partition) for rule in rules)


def _rule(text: str) -> Filter:
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not of the form topic:partitions, such as orders:0-3"
        )
    topic, first, end, only = match.groups()
    try:
        # A rule without a topic, such as `:0-3`, applies to all topics.
        topics = topic_filter(topic or None)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    lowest, highest = int(first or 0), int(end) if end else None
    if only:
        # The end of a range is exclusive, as in Kafka's GetOffsetShell.
        lowest, highest = int(only), int(only) + 1
    return lambda each: (
        topics(each.topic)
        and each.partition >= lowest
        and (highest is None or each.partition < highest)
    )


def run(arguments: argparse.Namespace) -> int:
    """Check the combination of options and print the offsets. Raises UsageError."""
    if arguments.topic_partitions:
        for name in ("--topic", "--partitions"):
            if is_given(arguments, name):
                raise UsageError(f"--topic-partitions and {name} cannot be combined")
    return run_admin(arguments, lambda cluster: get_offsets(cluster, arguments))


async def get_offsets(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Print the offsets of all matching partitions in Kafka's order."""
    partitions = await _matching(cluster, arguments)
    # As in Kafka's tool, this is an error. Otherwise, a misspelled pattern would look like an empty
    # topic.
    if not partitions:
        raise UsageError(
            "no partition matches --topic, --partitions and --topic-partitions: change a pattern"
        )
    found = await RecordAdmin(cluster).list_offsets(dict.fromkeys(partitions, arguments.time))
    # As in Kafka's tool, the other offsets are printed, and the exit code stays 0.
    for partition, error in found.errors.items():
        fail(f"Skip getting offsets for topic-partition {partition} due to error: {error.message}")
    # As in Kafka's tool, partitions are sorted as text (t-10 before t-2), and partitions without a
    # record at or after the timestamp are omitted.
    rows = [
        (partition, offset.offset)
        for partition, offset in sorted(found.values_by_key.items(), key=lambda row: str(row[0]))
        if offset.offset != _NO_OFFSET
    ]
    show(
        lambda: (f"{topic}:{number}:{offset}" for (topic, number), offset in rows),
        lambda: [
            Table(
                ("TOPIC", "PARTITION", "OFFSET"),
                # In tables, partitions are sorted by number.
                [(topic, number, offset) for (topic, number), offset in sorted(rows)],
            )
        ],
        lambda: [
            {"topic": topic, "partition": number, "offset": offset}
            for (topic, number), offset in rows
        ],
        as_json=arguments.json,
    )
    return 0


async def _matching(cluster: Cluster, arguments: argparse.Namespace) -> Sequence[TopicPartition]:
    admin = TopicDescriptionAdmin(cluster)
    listed = await admin.list_topics(include_internal=not arguments.exclude_internal_topics)
    topics = topic_filter(arguments.topic)
    names = sorted(name for name in listed if topics(name))
    described = (await admin.describe_topics(names)).raise_first()
    # A generator, because it is consumed only once, by one of the returned lists.
    partitions: Iterable[TopicPartition] = (
        TopicPartition(topic.name, each.partition)
        for topic in described.values()
        for each in topic.partitions
    )
    if arguments.topic_partitions:
        return [each for each in partitions if arguments.topic_partitions(each)]
    numbers = arguments.partitions
    return [each for each in partitions if not numbers or each.partition in numbers]
