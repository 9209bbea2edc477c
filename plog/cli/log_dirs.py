"""``plog log-dirs``: describe the log directories of brokers and their partitions.

Source: Kafka 4.3 LogDirsCommand.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Mapping
from typing import Any

from plog.cli.admin_client import run_admin
from plog.cli.options import UsageError, add_admin_options, comma_list, number_list
from plog.cli.output import Table, show
from plog.cli.parser import add_examples
from plog.client.admin.brokers import BrokerAdmin
from plog.client.admin.log_dirs import LogDirAdmin
from plog.client.admin.values import LogDirDescription
from plog.client.network.cluster import Cluster


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe brokers' log directories."""
    add_admin_options(parser)
    # Kafka's tool requires --describe, although there is no other action.
    parser.add_argument(
        "--describe", action="store_true", required=True, help="describe the log directories"
    )
    parser.add_argument(
        "--broker-list",
        type=number_list,
        default=[],
        metavar="BROKER,...",
        help="ids of the brokers to query (default: all)",
    )
    parser.add_argument(
        "--topic-list",
        type=comma_list,
        default=[],
        metavar="TOPIC,...",
        help="topics to include (default: all)",
    )
    add_examples(
        parser,
        (
            "show the size of a topic on disk",
            "plog log-dirs --bootstrap-server localhost:9092 --describe --topic-list orders",
        ),
    )
    parser.set_defaults(run=lambda arguments: run_admin(arguments, lambda c: run(c, arguments)))


async def run(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Query the brokers' log directories and print the results. Raises UsageError."""
    # As in Kafka's tool, an unknown broker is an error, and no broker is queried.
    known = sorted((await BrokerAdmin(cluster).describe_cluster()).brokers)
    unknown = sorted(set(arguments.broker_list) - set(known))
    if unknown:
        raise UsageError(
            f"unknown brokers in --broker-list: {_joined(unknown)}; the cluster's brokers are "
            f"{_joined(known)}"
        )
    brokers = sorted(set(arguments.broker_list)) or known
    # As in Kafka's tool, topics are filtered after the request, which could only name partitions.
    described = (await LogDirAdmin(cluster).describe_log_dirs(brokers)).raise_first()
    data = as_data(described, arguments.topic_list)
    show(
        lambda: (
            "Querying brokers for log directories information",
            f"Received log directory information from brokers {_joined(brokers)}",
            # Kafka's tool prints its JSON document without spaces.
            json.dumps(data, separators=(",", ":")),
        ),
        lambda: tables(described, arguments.topic_list),
        lambda: data,
        as_json=arguments.json,
    )
    return 0


def _joined(numbers: Collection[int]) -> str:
    return ",".join(map(str, numbers))


def as_data(
    described: Mapping[int, Mapping[str, LogDirDescription]], topics: Collection[str]
) -> dict[str, Any]:
    """Return the JSON document that Kafka's tool prints."""
    return {
        "brokers": [
            {
                "broker": broker,
                "logDirs": [
                    {
                        "partitions": [
                            {
                                "partition": str(partition),
                                "size": replica.size_bytes,
                                "offsetLag": replica.offset_lag,
                                "isFuture": replica.is_future,
                            }
                            for partition, replica in sorted(log_dir.replicas.items())
                            if not topics or partition.topic in topics
                        ],
                        # A directory that has failed (KIP-112) has an error instead of partitions.
                        "error": None if log_dir.error is None else log_dir.error.message,
                        "logDir": path,
                    }
                    for path, log_dir in log_dirs.items()
                ],
            }
            for broker, log_dirs in described.items()
        ],
        "version": 1,
    }


def tables(
    described: Mapping[int, Mapping[str, LogDirDescription]], topics: Collection[str]
) -> list[Table]:
    """Return a table of log directories and a table of the partitions in them."""
    rows = [(broker, path, x) for broker, dirs in described.items() for path, x in dirs.items()]
    return [
        Table(
            ("BROKER", "DIRECTORY", "PARTITIONS", "BYTES", "FREE BYTES", "ERROR"),
            [
                (
                    broker,
                    path,
                    len(log_dir.replicas),
                    # Replicas that are being moved into the directory (KIP-113) use space, too.
                    sum(replica.size_bytes for replica in log_dir.replicas.values()),
                    # Brokers before Kafka 3.3 do not report it (KIP-827).
                    log_dir.usable_bytes,
                    None if log_dir.error is None else log_dir.error.message,
                )
                for broker, path, log_dir in rows
            ],
        ),
        Table(
            ("BROKER", "TOPIC", "PARTITION", "BYTES", "LAG", "DIRECTORY"),
            [
                (broker, *partition, replica.size_bytes, replica.offset_lag, path)
                for broker, path, log_dir in rows
                for partition, replica in sorted(log_dir.replicas.items())
                if not topics or partition.topic in topics
            ],
        ),
    ]
