"""``plog cluster``: the cluster's id, and where its brokers are.

Removing a broker's registration, as Kafka's tool can besides, needs a KRaft quorum.
Source: Kafka 4.3 ClusterTool.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from plog.cli.admin import run_admin
from plog.cli.options import add_json_option
from plog.cli.output import Table, show
from plog.cli.parser import add_examples, first_line
from plog.client.admin.brokers import BrokerAdmin
from plog.client.admin.values import BrokerDescription
from plog.client.cluster import Cluster

_COLUMNS: Final = ("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE")


def configure(parser: argparse.ArgumentParser) -> None:
    """Tell the id of a cluster, and where its brokers are."""
    tools = parser.add_subparsers(title="tools", metavar="TOOL", required=True)
    for name, configure_tool in (
        ("cluster-id", configure_cluster_id),
        ("list-endpoints", configure_list_endpoints),
    ):
        summary = first_line(configure_tool.__doc__)
        configure_tool(tools.add_parser(name, help=summary, description=summary))
    add_examples(parser, ("the id", "plog cluster cluster-id --bootstrap-server localhost:9092"))


def configure_cluster_id(parser: argparse.ArgumentParser) -> None:
    """Tell the id of a cluster."""
    _add_connection(parser)
    parser.set_defaults(run=lambda arguments: run_admin(arguments, lambda c: tell_id(c, arguments)))


def configure_list_endpoints(parser: argparse.ArgumentParser) -> None:
    """Tell where the brokers of a cluster are."""
    _add_connection(parser)
    parser.add_argument(
        "--include-fenced-brokers", action="store_true", help="also those that may not serve"
    )
    parser.set_defaults(
        run=lambda arguments: run_admin(arguments, lambda c: list_endpoints(c, arguments))
    )


def _add_connection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--bootstrap-server",
        "-b",
        dest="bootstrap_servers",
        metavar="HOST:PORT[,HOST:PORT]",
        help="servers to begin with; they name the others",
    )
    parser.add_argument(
        "--config",
        "-c",
        "--command-config",
        dest="command_config",
        metavar="FILE",
        help="properties file with settings of the client, such as those of TLS and SASL",
    )
    add_json_option(parser)


async def tell_id(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Print the id."""
    cluster_id = (await BrokerAdmin(cluster).describe_cluster()).cluster_id
    line = f"Cluster ID: {cluster_id}"
    show(
        lambda: [line],
        lambda: [Table(("CLUSTER ID",), [(cluster_id,)])],
        lambda: {"cluster_id": cluster_id},
        as_json=arguments.json,
    )
    return 0


async def list_endpoints(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Print the brokers' addresses."""
    described = await BrokerAdmin(cluster).describe_cluster(
        include_fenced=arguments.include_fenced_brokers
    )
    brokers = list(described.brokers.values())
    show(
        lambda: endpoint_lines(brokers),
        lambda: [Table(_COLUMNS, [_row(broker) for broker in brokers])],
        lambda: [
            {
                "id": broker.id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "fenced": broker.is_fenced,
            }
            for broker in brokers
        ],
        as_json=arguments.json,
    )
    return 0


def endpoint_lines(brokers: Sequence[BrokerDescription]) -> list[str]:
    """Kafka's columns, which are never narrower than these."""
    rows = [list(_COLUMNS), *(_row(broker) for broker in brokers)]
    widths = [10, max(len(row[1]) for row in rows), 10, 10, 10, 15]
    widths[3] = max([10, *(len(row[3]) for row in rows)])
    return [
        " ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
    ]


def _row(broker: BrokerDescription) -> list[str]:
    rack = "null" if broker.rack is None else broker.rack
    state = "fenced" if broker.is_fenced else "unfenced"
    return [str(broker.id), broker.host, str(broker.port), rack, state, "broker"]
