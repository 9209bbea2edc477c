"""Entry point of ``plog topics``: create, change, delete, list and describe topics.

report.py prints descriptions. Source: Kafka 4.3 TopicCommand.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence

from plog.cli.admin_client import print_errors, run_admin, topic_filter
from plog.cli.options import (
    UsageError,
    add_admin_options,
    comma_list,
    is_given,
    key_value,
    one_of,
    only_with,
    positive,
)
from plog.cli.output import Table, print_outcome, show
from plog.cli.parser import add_examples
from plog.cli.topics.report import REPORTS, describe
from plog.client.admin.topic_descriptions import TopicDescriptionAdmin
from plog.client.admin.topics import TopicAdmin
from plog.client.admin.values import NewPartitions, NewTopic, TopicListing
from plog.client.network.cluster import Cluster
from plog.errors import TopicAlreadyExists
from plog.types import uuid_from_text, uuid_to_text

_ACTIONS = ("--list", "--describe", "--create", "--alter", "--delete")
_MAX_REPLICATION_FACTOR = 0x7FFF  # CreateTopics encodes it as an int16.


def configure(parser: argparse.ArgumentParser) -> None:
    """Create, change, delete, list and describe topics."""
    add_admin_options(parser)
    actions = parser.add_argument_group("actions (specify exactly one)")
    actions.add_argument("--list", action="store_true", help="list topics")
    actions.add_argument("--describe", action="store_true", help="describe topics")
    actions.add_argument("--create", action="store_true", help="create a topic")
    actions.add_argument("--alter", action="store_true", help="increase a topic's partition count")
    actions.add_argument("--delete", action="store_true", help="delete topics")
    _add_topic_options(parser)
    _add_description_options(parser)
    add_examples(
        parser,
        (
            "create a topic with three partitions that keeps records for a week",
            "plog topics --bootstrap-server localhost:9092 --create --topic orders "
            "--partitions 3 --config retention.ms=604800000",
        ),
        ("list topics", "plog topics --bootstrap-server localhost:9092 --list"),
        (
            "describe a topic",
            "plog topics --bootstrap-server localhost:9092 --describe --topic orders",
        ),
        (
            "add partitions",
            "plog topics --bootstrap-server localhost:9092 --alter --topic orders --partitions 6",
        ),
    )
    parser.set_defaults(run=run)


def _add_topic_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("topic options")
    group.add_argument(
        "--topic",
        metavar="TOPIC",
        help="topic name; --list, --describe: comma-separated regular expressions; --alter,"
        " --delete: comma-separated names, or regular expressions that contain a character"
        " not allowed in topic names",
    )
    group.add_argument(
        "--regex",
        action="store_true",
        help="--alter, --delete: treat --topic as a list of regular expressions, even if it looks"
        " like a topic name",
    )
    group.add_argument("--topic-id", metavar="ID", help="id of the topic to describe")
    group.add_argument(
        "--partitions",
        type=positive,
        metavar="NUMBER",
        help="total number of partitions (default: the broker's num.partitions); "
        "increasing it moves keys to other partitions",
    )
    group.add_argument(
        "--replication-factor",
        type=positive,
        metavar="NUMBER",
        help="number of replicas per partition (default: the broker's setting)",
    )
    group.add_argument(
        "--replica-assignment",
        type=replica_assignment,
        metavar="BROKER:BROKER,...",
        help="brokers for each partition, preferred leader first; replaces --partitions and"
        " --replication-factor",
    )
    group.add_argument(
        "--config",
        action="append",
        default=[],
        type=key_value,
        metavar="NAME=VALUE",
        help="setting for the new topic; may be repeated (to change a topic, use 'plog configs')",
    )
    # Hidden: old documentation has this option, and the error names its replacement.
    group.add_argument("--delete-config", metavar="NAME", help=argparse.SUPPRESS)
    group.add_argument(
        "--if-exists",
        action="store_true",
        help="ignore missing topics; not valid with --create",
    )
    group.add_argument(
        "--if-not-exists", action="store_true", help="--create: ignore an existing topic"
    )
    group.add_argument(
        "--exclude-internal",
        action="store_true",
        help="exclude internal topics such as __consumer_offsets",
    )


def _add_description_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("description filters")
    for name, selection in (
        ("--under-replicated-partitions", "partitions with too few in-sync replicas"),
        ("--unavailable-partitions", "partitions without a live leader"),
        (
            "--under-min-isr-partitions",
            "partitions with fewer in-sync replicas than min.insync.replicas",
        ),
        ("--at-min-isr-partitions", "partitions with exactly min.insync.replicas in-sync replicas"),
        ("--topics-with-overrides", "topics with overridden settings"),
    ):
        group.add_argument(name, action="store_true", help=f"show only {selection}")
    group.add_argument(
        # Kafka's default, for the pages of DescribeTopicPartitions (KIP-966).
        "--partition-size-limit-per-response",
        type=positive,
        default=2000,
        metavar="NUMBER",
        help="maximum partitions per request (default: %(default)s)",
    )


def replica_assignment(text: str) -> list[list[int]]:
    """Parse a replica assignment: the brokers of each partition.

    >>> replica_assignment("1:2,2:1")
    [[1, 2], [2, 1]]
    """
    try:
        brokers = [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a list of brokers per partition, such as 1:2,2:1"
        ) from None
    for number, replicas in enumerate(brokers):
        if len(set(replicas)) < len(replicas):
            raise argparse.ArgumentTypeError(f"partition {number} lists a broker twice")
        # As in Kafka's tool, all partitions have the same replication factor.
        if len(replicas) != len(brokers[0]):
            raise argparse.ArgumentTypeError(
                f"partition {number} has {len(replicas)} brokers, but partition 0 has"
                f" {len(brokers[0])}"
            )
    return brokers


def run(arguments: argparse.Namespace) -> int:
    """Run the requested action."""
    action = one_of(arguments, _ACTIONS)
    check(arguments, action)
    match action:
        case "--create":
            return run_admin(arguments, lambda cluster: create(cluster, arguments))
        case "--alter":
            return run_admin(arguments, lambda cluster: alter(cluster, arguments))
        case "--delete":
            return run_admin(arguments, lambda cluster: delete(cluster, arguments))
        case "--list":
            return run_admin(arguments, lambda cluster: list_topics(cluster, arguments))
    return run_admin(arguments, lambda cluster: describe_topics(cluster, arguments))


def check(arguments: argparse.Namespace, action: str) -> None:
    """Reject invalid combinations of options. Raises UsageError."""
    if action in ("--create", "--alter", "--delete") and not arguments.topic:
        raise UsageError(f"{action} requires --topic")
    if action == "--alter" and arguments.partitions is None:
        raise UsageError(
            "--alter requires --partitions; to change settings, use 'plog configs --alter'"
        )
    if is_given(arguments, "--delete-config"):
        raise UsageError("--delete-config was removed; use 'plog configs --alter'")
    only_with(arguments, ["--create"], "--config", "--replication-factor", "--if-not-exists")
    only_with(arguments, ["--create", "--alter"], "--partitions", "--replica-assignment")
    only_with(arguments, ["--alter", "--delete", "--describe"], "--if-exists")
    only_with(arguments, ["--alter", "--delete"], "--regex")
    only_with(arguments, ["--list", "--describe"], "--exclude-internal")
    only_with(arguments, ["--describe"], "--topic-id", "--topics-with-overrides", *REPORTS)
    # The assignment already determines both numbers.
    if arguments.create and arguments.replica_assignment:
        for name in ("--partitions", "--replication-factor"):
            if is_given(arguments, name):
                raise UsageError(f"--replica-assignment and {name} cannot be combined")
    if arguments.topics_with_overrides and any(is_given(arguments, name) for name in REPORTS):
        raise UsageError("--topics-with-overrides cannot be combined with partition filters")
    if (arguments.replication_factor or 0) > _MAX_REPLICATION_FACTOR:
        raise UsageError(f"--replication-factor must be at most {_MAX_REPLICATION_FACTOR}")


async def create(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Run ``--create``."""
    name = arguments.topic
    # Kafka's tool prints the same warning.
    if "." in name or "_" in name:
        # With --json, standard output contains only the document.
        print(
            "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore "
            "('_') could collide. To avoid issues it is best to use either, but not both.",
            file=sys.stderr if arguments.json else sys.stdout,
        )
    assignments = arguments.replica_assignment
    # Without counts, the broker uses its defaults (KIP-464).
    topic = NewTopic(
        name=name,
        partitions=arguments.partitions,
        replication_factor=arguments.replication_factor,
        assignments=dict(enumerate(assignments)) if assignments else None,
        configs=dict(arguments.config),
    )
    created = (await TopicAdmin(cluster).create_topics([topic]))[name]
    # The broker decides: a lookup before the request could miss a topic that another client
    # creates.
    if isinstance(created, TopicAlreadyExists) and arguments.if_not_exists:
        print_outcome("", {"created": []}, as_json=arguments.json)
        return 0
    if isinstance(created, Exception):
        raise created
    print_outcome(f"Created topic {name}.", {"created": [name]}, as_json=arguments.json)
    return 0


async def alter(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Run ``--alter``."""
    admin = TopicDescriptionAdmin(cluster)
    names = await _topics_to_change(admin, arguments)
    totals: dict[str, int | NewPartitions] = {}
    for name in names:
        totals[name] = arguments.partitions
        if arguments.replica_assignment:
            # The option lists all partitions, but the request must only contain new partitions.
            count = len((await admin.describe_topic(name)).partitions)
            totals[name] = NewPartitions(
                total=arguments.partitions, assignments=arguments.replica_assignment[count:]
            )
    # With --if-exists, there may be no topic to change.
    if totals:
        (await TopicAdmin(cluster).create_partitions(totals)).raise_first()
    print_outcome("", {"altered": names}, as_json=arguments.json)
    return 0


async def delete(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Run ``--delete``."""
    names = await _topics_to_change(TopicDescriptionAdmin(cluster), arguments)
    # Errors are not raised yet: other topics are still deleted, and the user must know which ones.
    results = await TopicAdmin(cluster).delete_topics(names)
    deleted = [name for name in names if name not in results.errors]
    # Kafka's tool does not print anything, although a pattern can match more topics than intended.
    text = "\n".join(f"Deleted topic {name}." for name in deleted)
    print_outcome(text, {"deleted": deleted}, as_json=arguments.json)
    failed = (name for name in names if name in results.errors)
    return print_errors((f"Topic '{name}'", results.errors[name]) for name in failed)


async def list_topics(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Run ``--list``."""
    topics = await _matching(TopicDescriptionAdmin(cluster), arguments)
    show(
        lambda: [topic.name for topic in topics],
        lambda: [Table(("TOPIC",), [(topic.name,) for topic in topics])],
        lambda: [
            {
                "topic": topic.name,
                "topic_id": None if topic.topic_id is None else uuid_to_text(topic.topic_id),
                "internal": topic.is_internal,
            }
            for topic in topics
        ],
        as_json=arguments.json,
    )
    return 0


async def describe_topics(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Run ``--describe``."""
    admin = TopicDescriptionAdmin(cluster)
    if arguments.topic_id is not None:
        topic_id = _topic_id(arguments.topic_id)
        listed = await admin.list_topics(include_internal=not arguments.exclude_internal)
        names = [topic.name for topic in listed.values() if topic.topic_id == topic_id]
        if not names and not arguments.if_exists:
            raise UsageError(f"TopicId '{arguments.topic_id}' does not exist as expected")
    else:
        names = await _selected(admin, arguments)
    return await describe(cluster, names, arguments)


def _topic_id(text: str) -> bytes:
    try:
        return uuid_from_text(text)
    except ValueError:
        raise UsageError(
            f"'{text}' is not a topic id: it must consist of 22 letters, digits, - and _"
        ) from None


async def _topics_to_change(
    admin: TopicDescriptionAdmin, arguments: argparse.Namespace
) -> list[str]:
    """Return the names of the topics that --topic selects for ``--alter`` and ``--delete``.

    Raises UsageError for a name or pattern that matches no topic, unless --if-exists is given.
    """
    if arguments.regex:
        return await _selected(admin, arguments)
    # Unlike Kafka's tool, do not treat a name as a pattern: `web.log` would also match `web-log`,
    # whose records would be deleted.
    listed = await admin.list_topics(include_internal=True)
    if arguments.topic in listed:
        return [arguments.topic]
    names: dict[str, None] = {}
    for part in comma_list(arguments.topic):
        if _is_name(part):
            found = [part] if part in listed else []
        else:
            found = [name for name in sorted(listed) if topic_filter(part)(name)]
        if not found and not arguments.if_exists:
            raise UsageError(f"Topic '{part}' does not exist as expected")
        # A dictionary keeps the order, and each topic only once, even if several patterns match.
        names.update(dict.fromkeys(found))
    return list(names)


def _is_name(text: str) -> bool:
    """Return whether `text` contains only characters that are valid in a topic name."""
    # These are the characters of Kafka's Topic.LEGAL_CHARS.
    return re.fullmatch(r"[a-zA-Z0-9._-]+", text) is not None


async def _selected(admin: TopicDescriptionAdmin, arguments: argparse.Namespace) -> list[str]:
    """Return the topic names that match --topic.

    Raises UsageError if no name matches, unless --if-exists is given.
    """
    names = [topic.name for topic in await _matching(admin, arguments)]
    if arguments.topic and not names and not arguments.if_exists:
        raise UsageError(f"Topic '{arguments.topic}' does not exist as expected")
    return names


async def _matching(
    admin: TopicDescriptionAdmin, arguments: argparse.Namespace
) -> Sequence[TopicListing]:
    matches = topic_filter(arguments.topic)
    # As in Kafka's tool, internal topics are included unless an option excludes them.
    listed = await admin.list_topics(include_internal=not arguments.exclude_internal)
    return [listed[name] for name in sorted(listed) if matches(name)]
