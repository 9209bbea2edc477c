"""Metrics for connections, read at each scrape.

The names are those that the usual JMX exporter rules derive from Kafka's MBeans
(``socket-server-metrics``); metrics that Kafka lacks start with ``plog_``.
"""

from __future__ import annotations

from collections.abc import Callable

from plogd.metrics import Counter, Registry
from plogd.net.connections import Connections


def register_connection_gauges(metrics: Registry, connections: Connections) -> None:
    """Register the metrics; call once per broker."""
    prefix = "kafka_server_socket_server_metrics_"
    metrics.gauge(
        f"{prefix}connection_count", "Number of open client connections.", lambda: len(connections)
    )

    def counter(name: str, help: str, function: Callable[[], float]) -> None:
        # Connections keep their counts in plain attributes, which are read here: a counter object
        # would require a method call for each request.
        metrics.ask(name, help, (), lambda: [((), function())], kind=Counter.kind)

    counter(
        f"{prefix}connection_creation_total", "Connections accepted.", lambda: connections.accepted
    )
    counter(f"{prefix}connection_close_total", "Connections closed.", lambda: connections.closed)
    counter(f"{prefix}incoming_byte_total", "Bytes received.", lambda: connections.bytes_in)
    counter(f"{prefix}outgoing_byte_total", "Bytes sent.", lambda: connections.bytes_out)
    counter(f"{prefix}request_total", "Requests started.", lambda: connections.requests)
    counter(
        "plog_connections_refused_total",
        "Connections closed immediately because too many connections were open.",
        lambda: connections.refused,
    )
    metrics.gauge(
        "plog_request_memory_used_bytes",
        "Memory used by requests that are arriving or in progress.",
        lambda: connections.memory.used_bytes,
    )
    metrics.gauge(
        "plog_request_memory_waiting",
        "Number of connections on which the broker has stopped reading until memory is available.",
        lambda: connections.memory.waiting,
    )
    metrics.gauge(
        "plog_response_memory_used_bytes",
        "Memory used by unsent responses.",
        lambda: connections.responses.used_bytes,
    )
    metrics.gauge(
        "plog_produce_requests_waiting",
        "Number of produce requests waiting for the disk or for followers.",
        lambda: connections.slots.in_use,
    )
