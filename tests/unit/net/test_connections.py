"""Connection limits, and closing all connections."""

from __future__ import annotations

from plogd.config.network_settings import NetworkSettings
from plogd.connection_context import ConnectionContext
from plogd.net.connection import Connection
from plogd.net.connections import Connections
from tests.helpers.net_connection import FakeWire
from tests.helpers.net_parts import PRODUCE, ScriptedDispatch, frame, make_connections
from tests.helpers.sim.sim_ports import SimPorts


def connect(shared: Connections, host: str) -> tuple[Connection, FakeWire]:
    context = ConnectionContext(
        listener_name="PLAINTEXT",
        security_protocol="PLAINTEXT",
        client_address=(host, 1),
        local_address=("192.0.2.9", 9092),
    )
    wire = FakeWire()
    return Connection(shared, context, wire), wire


def test_max_connections_refusal_is_logged_once_a_minute(log_lines: list[str]) -> None:
    ports = SimPorts()
    shared = make_connections(ScriptedDispatch(), ports, max_connections=2)
    first, _ = connect(shared, "a")
    connect(shared, "b")
    assert not shared.admit("c")
    assert not shared.admit("c")
    assert shared.refused == 2
    assert log_lines == ["c: rejected a connection: the limit max.connections=2 is reached"]
    ports.advance(61_000)
    assert not shared.admit("c")
    assert log_lines[1].endswith("(1 more suppressed)")
    first.lost()
    assert shared.admit("c")


def test_max_connections_per_ip_counts_each_address(log_lines: list[str]) -> None:
    shared = make_connections(ScriptedDispatch(), max_connections_per_ip=1)
    first, _ = connect(shared, "a")
    assert not shared.admit("a")
    assert "max.connections.per.ip=1" in log_lines[0]
    assert shared.admit("b")
    first.lost()
    assert shared.admit("a")


def test_limits_can_be_changed_at_run_time() -> None:
    shared = make_connections(ScriptedDispatch())
    connect(shared, "a")
    assert shared.admit("a")
    shared.apply_settings(
        NetworkSettings(max_connections=1, queued_max_request_bytes=5, queued_max_requests=7)
    )
    assert not shared.admit("a")
    assert shared.memory.limit_bytes == 5
    assert shared.slots.limit == 7


def test_connections_are_counted() -> None:
    shared = make_connections(ScriptedDispatch())
    connection, _ = connect(shared, "a")
    connect(shared, "b")
    connection.lost()
    assert (shared.accepted, shared.closed, len(shared)) == (2, 1, 1)


def test_close_all_completes_when_the_last_connection_is_closed() -> None:
    dispatch = ScriptedDispatch()
    dispatch.hold = lambda api_key, text: True
    shared = make_connections(dispatch)
    idle, idle_wire = connect(shared, "a")
    busy, busy_wire = connect(shared, "b")
    request = frame(PRODUCE, "slow")
    busy.target()[: len(request)] = request
    busy.received(len(request))
    done = shared.close_all()
    assert idle_wire.is_closed
    assert not busy_wire.is_closed
    assert not shared.admit("c")
    idle.lost()
    dispatch.release("slow")
    assert busy_wire.is_closed
    assert not done.done
    busy.lost()
    assert done.done


def test_close_all_completes_immediately_without_connections() -> None:
    assert make_connections(ScriptedDispatch()).close_all().done


def test_abort_all_closes_the_remaining_connections() -> None:
    shared = make_connections(ScriptedDispatch())
    _, wire = connect(shared, "a")
    shared.close_all()
    shared.abort_all()
    assert wire.is_aborted
