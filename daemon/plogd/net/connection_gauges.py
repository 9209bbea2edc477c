"""Numbers about the connections, asked for at each scrape.

Names as the usual JMX exporter rules make them of Kafka's MBeans (``socket-server-metrics``); what
Kafka lacks starts with ``plog_``. The numbers themselves are plain attributes, so counting them
costs an addition.
"""

from __future__ import annotations

from collections.abc import Callable

from plogd.metrics import Counter, Registry
from plogd.net.connections import Connections


def register_connection_gauges(metrics: Registry, connections: Connections) -> None:
    """Register all of them; once for a broker."""
    prefix = "kafka_server_socket_server_metrics_"
    metrics.gauge(
        f"{prefix}connection_count", "Client connections that are open.", lambda: len(connections)
    )

    def counter(name: str, help: str, function: Callable[[], float]) -> None:
        metrics.ask(name, help, (), lambda: [((), function())], kind=Counter.kind)

    counter(
        f"{prefix}connection_creation_total", "Connections accepted.", lambda: connections.accepted
    )
    counter(f"{prefix}connection_close_total", "Connections ended.", lambda: connections.closed)
    counter(f"{prefix}incoming_byte_total", "Bytes received.", lambda: connections.bytes_in)
    counter(f"{prefix}outgoing_byte_total", "Bytes sent.", lambda: connections.bytes_out)
    counter(f"{prefix}request_total", "Requests begun.", lambda: connections.requests)
    counter(
        "plog_connections_refused_total",
        "Connections closed at once because too many were open.",
        lambda: connections.refused,
    )
    metrics.gauge(
        "plog_request_memory_used_bytes",
        "Occupied by requests that are arriving or in progress.",
        lambda: connections.memory.used_bytes,
    )
    metrics.gauge(
        "plog_request_memory_waiting",
        "Connections that wait for memory before they read on.",
        lambda: connections.memory.waiting,
    )
    metrics.gauge(
        "plog_response_memory_used_bytes",
        "Occupied by responses that wait to be sent.",
        lambda: connections.responses.used_bytes,
    )
    metrics.gauge(
        "plog_produce_requests_waiting",
        "Produce requests that wait for the disk or for followers.",
        lambda: connections.slots.in_use,
    )
