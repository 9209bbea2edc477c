"""``plog cluster``: print the cluster id, list endpoints, and unregister a broker.

Controller endpoints and unregistration only apply to Apache Kafka, because a plog broker is its own
controller. Source: Kafka 4.3 ClusterTool.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from plog.cli.admin_client import run_admin
from plog.cli.options import UsageError, add_bootstrap_controller_option, add_json_option
from plog.cli.output import Table, print_outcome, show
from plog.cli.parser import add_examples, first_line
from plog.client.admin.brokers import BrokerAdmin
from plog.client.admin.values import BrokerDescription
from plog.client.network.cluster import Cluster
from plog.errors import UnsupportedVersion

_COLUMNS: Final = ("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE")
_STATE: Final = _COLUMNS.index("STATE")
_MIN_WIDTHS: Final = (10, 0, 10, 10, 10, 15)
"""Kafka's minimum column widths; the host column is as wide as the longest host name."""

_Tool = Callable[[Cluster, argparse.Namespace], Coroutine[Any, Any, int]]


def configure(parser: argparse.ArgumentParser) -> None:
    """Print the cluster id, list the endpoints of a cluster, or unregister a broker."""
    tools = parser.add_subparsers(title="tools", metavar="TOOL", required=True)
    for name, configure_tool in (
        ("cluster-id", configure_cluster_id),
        ("unregister", configure_unregister),
        ("list-endpoints", configure_list_endpoints),
    ):
        summary = first_line(configure_tool.__doc__)
        configure_tool(tools.add_parser(name, help=summary, description=summary))
    add_examples(
        parser,
        ("print the cluster id", "plog cluster cluster-id --bootstrap-server localhost:9092"),
    )


def configure_cluster_id(parser: argparse.ArgumentParser) -> None:
    """Print the cluster id."""
    _add_connection(parser)
    _set_run(parser, print_cluster_id)


def configure_unregister(parser: argparse.ArgumentParser) -> None:
    """Unregister a broker that has been removed from an Apache Kafka cluster."""
    _add_connection(parser)
    parser.add_argument(
        "--id",
        "-i",
        type=int,
        required=True,
        metavar="BROKER",
        help="id of a broker that has been shut down permanently",
    )
    _set_run(parser, unregister)


def configure_list_endpoints(parser: argparse.ArgumentParser) -> None:
    """List the endpoints of a cluster's brokers or controllers."""
    _add_connection(parser)
    parser.add_argument(
        "--include-fenced-brokers", action="store_true", help="include fenced brokers"
    )
    _set_run(parser, list_endpoints)


def _set_run(parser: argparse.ArgumentParser, tool: _Tool) -> None:
    parser.set_defaults(
        run=lambda arguments: run_admin(arguments, lambda cluster: tool(cluster, arguments))
    )


def _add_connection(parser: argparse.ArgumentParser) -> None:
    # `add_admin_options` does not fit: unlike Kafka's other tools, ClusterTool has --config
    # and short option names.
    parser.add_argument(
        "--bootstrap-server",
        "-b",
        dest="bootstrap_servers",
        metavar="HOST:PORT[,HOST:PORT]",
        help="brokers for the initial connection; the client discovers the others",
    )
    add_bootstrap_controller_option(parser, "-C")
    parser.add_argument(
        "--config",
        "-c",
        "--command-config",
        dest="command_config",
        metavar="FILE",
        help="properties file with client settings, such as those for TLS and SASL",
    )
    add_json_option(parser)


async def print_cluster_id(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Print the cluster id."""
    cluster_id = (await BrokerAdmin(cluster).describe_cluster()).cluster_id
    line = f"Cluster ID: {cluster_id}"
    show(
        lambda: [line],
        lambda: [Table(("CLUSTER ID",), [(cluster_id,)])],
        lambda: {"cluster_id": cluster_id},
        as_json=arguments.json,
    )
    return 0


async def unregister(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Unregister a broker. Raises UnsupportedVersion if the cluster does not support this."""
    # Kafka's tool prints the same message and exits with 0.
    try:
        await BrokerAdmin(cluster).unregister_broker(arguments.id)
    except UnsupportedVersion:
        raise UnsupportedVersion(
            "The target cluster does not support the broker unregistration API."
        ) from None
    line = f"Broker {arguments.id} is no longer registered."
    print_outcome(line, {"unregistered": arguments.id}, as_json=arguments.json)
    return 0


async def list_endpoints(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Print the endpoints of the brokers or controllers. Raises UsageError."""
    of_controllers = cluster.settings.uses_controllers
    # Only brokers report fenced brokers in DescribeCluster (KIP-1073).
    if of_controllers and arguments.include_fenced_brokers:
        raise UsageError("--include-fenced-brokers requires --bootstrap-server")
    described = await BrokerAdmin(cluster).describe_cluster(
        include_fenced=arguments.include_fenced_brokers
    )
    nodes = list(described.brokers.values())
    # Kafka pads the header like the rows, so the table includes it.
    columns, *rows = endpoint_table(nodes, of_controllers=of_controllers)
    show(
        lambda: endpoint_lines([columns, *rows]),
        lambda: [Table(columns, rows)],
        lambda: [_as_data(node, of_controllers=of_controllers) for node in nodes],
        as_json=arguments.json,
    )
    return 0


def endpoint_table(
    nodes: Sequence[BrokerDescription], *, of_controllers: bool
) -> list[tuple[str, ...]]:
    """Return the header and a row for each node; controllers have no state column."""
    kind = "controller" if of_controllers else "broker"
    rows = [_COLUMNS, *(_row(node, kind) for node in nodes)]
    if of_controllers:
        rows = [(*row[:_STATE], *row[_STATE + 1 :]) for row in rows]
    return rows


def endpoint_lines(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the rows as lines, with Kafka's column widths."""
    min_widths = list(_MIN_WIDTHS)
    # As in Kafka's tool, the table of controllers has no state, because only brokers are fenced.
    if len(rows[0]) < len(_COLUMNS):
        del min_widths[_STATE]
    widths = list(min_widths)
    # As in Kafka's tool, longer values widen only these two columns.
    for index in (_COLUMNS.index("HOST"), _COLUMNS.index("RACK")):
        widths[index] = max([min_widths[index], *(len(row[index]) for row in rows)])
    return [
        " ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
    ]


def _row(node: BrokerDescription, kind: str) -> tuple[str, ...]:
    rack = "null" if node.rack is None else node.rack  # As Java prints it.
    state = "fenced" if node.is_fenced else "unfenced"
    return (str(node.id), node.host, str(node.port), rack, state, kind)


def _as_data(node: BrokerDescription, *, of_controllers: bool) -> dict[str, object]:
    data = {"id": node.id, "host": node.host, "port": node.port, "rack": node.rack}
    if not of_controllers:  # Only brokers can be fenced.
        data["fenced"] = node.is_fenced
    return data
