"""The gauges of connections in Prometheus format."""

from __future__ import annotations

from plogd.metrics import Registry
from plogd.net.connection_gauges import register_connection_gauges
from tests.helpers.net_parts import ScriptedDispatch, make_connections


def test_each_metric_is_rendered() -> None:
    connections = make_connections(ScriptedDispatch())
    metrics = Registry()
    register_connection_gauges(metrics, connections)
    connections.accepted, connections.closed, connections.refused = 5, 3, 2
    connections.bytes_in, connections.bytes_out, connections.requests = 1000, 2000, 30
    connections.slots.in_use = 4
    assert connections.memory.lease(100_000, "host", lambda: None).grow(16_384)
    connections.responses.used_bytes = 6
    lines = metrics.expose().decode().splitlines()
    for line in (
        "kafka_server_socket_server_metrics_connection_count 0",
        "kafka_server_socket_server_metrics_connection_creation_total 5",
        "kafka_server_socket_server_metrics_connection_close_total 3",
        "kafka_server_socket_server_metrics_incoming_byte_total 1000",
        "kafka_server_socket_server_metrics_outgoing_byte_total 2000",
        "kafka_server_socket_server_metrics_request_total 30",
        "plog_connections_refused_total 2",
        "plog_request_memory_used_bytes 131072",
        "plog_request_memory_waiting 0",
        "plog_response_memory_used_bytes 6",
        "plog_produce_requests_waiting 4",
    ):
        assert line in lines
