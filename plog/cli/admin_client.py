"""Run a tool's admin requests sequentially over blocking sockets.

A tool passes `run_admin` a coroutine function that takes a `Cluster`. The tool imports only the
admin clients that it needs (TopicAdmin, ConfigAdmin and others in `plog.client.admin`), because
each import slows down the command's startup.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from plog.cli.options import UsageError
from plog.cli.parser import fail
from plog.client.network.cluster import Cluster
from plog.client.network.ports import Network
from plog.client.network.socket_network import SocketNetwork, run_blocking
from plog.client.settings import AdminSettings
from plog.errors import KafkaError, UnsupportedVersion

T = TypeVar("T")


def run_admin(
    arguments: argparse.Namespace, work: Callable[[Cluster], Coroutine[Any, Any, T]]
) -> T:
    """Connect according to the options, run `work`, and disconnect.

    Raises ConfigError for invalid settings, and any error that `work` raises.
    """
    settings = admin_settings(arguments)
    # SocketNetwork's awaitables never suspend, so this call runs the coroutine to its end, without
    # a reactor (docs/decisions/0009).
    return run_blocking(_with_cluster(SocketNetwork(client_id=settings.client_id), settings, work))


def admin_settings(arguments: argparse.Namespace) -> AdminSettings:
    """Return the client's settings from ``--command-config`` and the command line."""
    given: dict[str, object] = {}
    servers = arguments.bootstrap_servers
    # Few tools have the option, because Kafka's controllers serve few requests (KIP-919).
    controllers = getattr(arguments, "bootstrap_controllers", None)
    if servers is not None and controllers is not None:
        raise UsageError(
            "cannot connect: --bootstrap-server and --bootstrap-controller cannot be combined"
        )
    if servers is None and controllers is None and arguments.command_config is None:
        raise UsageError("cannot connect: no server specified; use --bootstrap-server HOST:PORT")
    if servers is not None or controllers is not None:  # Either option overrides both in the file.
        given["bootstrap.servers"] = servers or ""
        given["bootstrap.controllers"] = controllers or ""
    timeout_ms = getattr(arguments, "timeout_ms", None)
    if timeout_ms is not None:
        # A call may consist of a single request, which can then use the entire timeout. With the
        # default request.timeout.ms, it would fail earlier.
        given["default.api.timeout.ms"] = timeout_ms
        given["request.timeout.ms"] = timeout_ms
    return AdminSettings.from_file(arguments.command_config, given)


async def _with_cluster(
    network: Network, settings: AdminSettings, work: Callable[[Cluster], Coroutine[Any, Any, T]]
) -> T:
    cluster = Cluster(network, settings)
    try:
        return await work(cluster)
    except UnsupportedVersion as error:
        if not settings.uses_controllers:
            raise
        # Kafka's controllers serve fewer APIs than its brokers.
        raise UnsupportedVersion(
            f"{error.message}. Controllers support only some requests; use --bootstrap-server"
        ) from None
    finally:
        await cluster.close()


def topic_filter(pattern: str | None) -> Callable[[str], bool]:
    """Return a predicate for topics that match a comma-separated list of regular expressions.

    >>> [name for name in ("a", "ab", "b") if topic_filter("a.*, c")(name)]
    ['a', 'ab']
    >>> topic_filter(None)("anything")
    True
    """
    if pattern is None:
        return lambda name: True
    # As in Kafka's TopicFilter, a comma separates alternatives, and enclosing quotes are dropped.
    text = re.sub(r"\s*,\s*", "|", pattern.strip().strip("\"'"))
    try:
        compiled = re.compile(text)
    except re.error as error:
        raise UsageError(f"'{pattern}' is not a regular expression: {error}") from None
    # The entire name must match, as in Kafka. Otherwise, `orders` would also select
    # `orders-archive`.
    return lambda name: compiled.fullmatch(name) is not None


def print_errors(errors: Iterable[tuple[object, KafkaError]]) -> int:
    """Print each error on a separate line and return the exit code."""
    code = 0
    for subject, error in errors:
        fail(f"{subject}: {error.message}")
        code = 1
    return code
