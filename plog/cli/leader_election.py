"""``plog leader-election``: elect preferred leaders, or leaders that are not in sync.

Source: Kafka 4.3 LeaderElectionCommand.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from plog.cli.admin_client import run_admin
from plog.cli.json_file import duplicates, read_json_file
from plog.cli.options import (
    UsageError,
    add_bootstrap_option,
    add_command_config_option,
    add_json_option,
    not_negative,
    one_of,
    only_with,
)
from plog.cli.output import Table, show
from plog.cli.parser import add_examples, fail
from plog.client.admin.partitions import PartitionAdmin
from plog.client.network.cluster import Cluster
from plog.enums import ElectionType
from plog.errors import (
    ClusterAuthorizationFailed,
    ElectionNotNeeded,
    KafkaError,
    RequestTimedOut,
)
from plog.types import TopicPartition

_FORM = '{"partitions": [{"topic": "orders", "partition": 0}]}'


def configure(parser: argparse.ArgumentParser) -> None:
    """Elect preferred leaders, or elect leaders that are not in sync."""
    add_bootstrap_option(parser)
    add_command_config_option(parser, "--admin.config")
    add_json_option(parser)
    parser.add_argument(
        "--election-type",
        required=True,
        type=election_type,
        metavar="preferred|unclean",
        help="preferred: make the first replica of each partition its leader, if it is in sync;"
        " unclean: elect a replica that is not in sync if a partition has no leader, which loses"
        " records",
    )
    parser.add_argument(
        "--all-topic-partitions",
        action="store_true",
        help="hold an election for each partition that needs one",
    )
    parser.add_argument("--topic", metavar="TOPIC", help="topic of the only partition")
    parser.add_argument(
        "--partition",
        type=not_negative,
        metavar="NUMBER",
        help="number of the only partition; requires --topic",
    )
    parser.add_argument(
        "--path-to-json-file", metavar="FILE", help=f"JSON file with the partitions: {_FORM}"
    )
    add_examples(
        parser,
        (
            "return all leaders to the preferred replicas, for example after a restart",
            "plog leader-election --bootstrap-server localhost:9092 --election-type preferred"
            " --all-topic-partitions",
        ),
    )
    parser.set_defaults(run=run)


def election_type(text: str) -> ElectionType:
    """Parse an election type in lower or upper case.

    >>> election_type("preferred").name
    'PREFERRED'
    """
    names = [kind.name for kind in (ElectionType.PREFERRED, ElectionType.UNCLEAN)]
    if text.upper() not in names:
        raise argparse.ArgumentTypeError(f"'{text}' is neither preferred nor unclean")
    return ElectionType[text.upper()]


def run(arguments: argparse.Namespace) -> int:
    """Hold the elections; return 1 if one of them failed."""
    selection = one_of(arguments, ["--all-topic-partitions", "--topic", "--path-to-json-file"])
    only_with(arguments, ["--topic"], "--partition")
    if selection == "--topic" and arguments.partition is None:
        raise UsageError("--topic requires --partition")
    partitions: list[TopicPartition] | None = None
    if selection == "--topic":
        partitions = [TopicPartition(arguments.topic, arguments.partition)]
    elif selection == "--path-to-json-file":
        # The file is read first, so that its errors are reported even if no broker is available.
        partitions = read_partitions(arguments.path_to_json_file)
    return run_admin(arguments, lambda cluster: elect(cluster, partitions, arguments))


def read_partitions(path: str) -> list[TopicPartition]:
    """Return the partitions that a JSON file lists. Raises OSError and UsageError."""
    rows = read_json_file(path, _FORM).field("partitions")
    partitions = [each.topic_partition() for each in rows.elements()]
    repeated = duplicates(partitions)
    if repeated:
        raise rows.error(f"lists partitions twice: {_joined(repeated)}")
    return partitions


async def elect(
    cluster: Cluster, partitions: Sequence[TopicPartition] | None, arguments: argparse.Namespace
) -> int:
    """Hold elections, by default for all partitions, and print the outcomes."""
    kind: ElectionType = arguments.election_type
    try:
        outcomes = await PartitionAdmin(cluster).elect_leaders(kind, partitions)
    except RequestTimedOut:
        raise RequestTimedOut("Timeout waiting for election results") from None
    except ClusterAuthorizationFailed:
        raise ClusterAuthorizationFailed("Not authorized to perform leader election") from None
    show(
        lambda: lines(kind, outcomes),
        lambda: [
            Table(
                ("TOPIC", "PARTITION", "RESULT"),
                [(*partition, _result(outcome)) for partition, outcome in outcomes.items()],
            )
        ],
        lambda: [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "elected": outcome is None,
                "error": None if outcome is None else outcome.message,
            }
            for partition, outcome in outcomes.items()
        ],
        as_json=arguments.json,
    )
    failed = _failed(outcomes)
    if failed:
        fail(f"{len(failed)} replica(s) could not be elected")
    return 1 if failed else 0


def lines(kind: ElectionType, outcomes: Mapping[TopicPartition, KafkaError | None]) -> list[str]:
    """Return the lines that Kafka's tool prints."""
    elected = [partition for partition, outcome in outcomes.items() if outcome is None]
    unneeded = [one for one, outcome in outcomes.items() if isinstance(outcome, ElectionNotNeeded)]
    result = []
    if elected:
        result.append(
            f"Successfully completed leader election ({kind.name}) for partitions"
            f" {_joined(elected)}"
        )
    if unneeded:
        result.append(f"Valid replica already elected for partitions {_joined(unneeded)}")
    result += [
        f"Error completing leader election ({kind.name}) for partition: {partition}:"
        f" {error.message}"
        for partition, error in _failed(outcomes).items()
    ]
    return result


def _failed(
    outcomes: Mapping[TopicPartition, KafkaError | None],
) -> dict[TopicPartition, KafkaError]:
    return {
        partition: outcome
        for partition, outcome in outcomes.items()
        if outcome is not None and not isinstance(outcome, ElectionNotNeeded)
    }


def _result(outcome: KafkaError | None) -> str:
    return "elected" if outcome is None else outcome.message


def _joined(partitions: Sequence[TopicPartition]) -> str:
    return ", ".join(map(str, partitions))
