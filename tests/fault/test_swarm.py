"""F42: thousands of concurrent clients of a real process: they cost little memory and are closed.

The tests measure no time: other clients must get responses while the crowd is connected. They
measure the memory per connection.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from plogd.testing.broker_process import BrokerProcess
from plogd.testing.plugin import BrokerFactory
from tests.fault.peers import (
    Crowd,
    Peer,
    many_descriptors,
    open_sockets,
    ping_frame,
    resident_bytes,
)
from tests.helpers.eventually import eventually
from tests.helpers.log.broker_log import assert_one_line

CROWD = 5000
IDLE_MAX_BYTES = 6000
"""Memory of an idle connection; Twisted's own transport needs ten times as much."""


def test_five_thousand_concurrent_idle_connections_are_closed(
    tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    """A reload lowers connections.max.idle.ms while they are connected."""
    file = tmp_path / "server.properties"
    settings = {"plog.connections.sweep.interval.ms": "200"}
    file.write_text("connections.max.idle.ms=600000\n")
    with (
        many_descriptors(CROWD + 1000),
        BrokerProcess(tmp_path / "broker", settings, config_file=file) as broker,
    ):
        for _ in range(100):
            with Peer(broker.bootstrap_servers) as peer:
                peer.ping()
        files_before, bytes_before = open_sockets(broker.pid), resident_bytes(broker.pid)
        with (
            Peer(broker.bootstrap_servers) as other,
            Crowd(broker.bootstrap_servers, CROWD) as crowd,
        ):
            crowd.send(ping_frame())
            other.ping()
            crowd.receive()
            each = (resident_bytes(broker.pid) - bytes_before) / CROWD
            record_property("rss_bytes_per_idle_connection", round(each))
            print(f"{each:.0f} bytes of RSS for each of {CROWD} idle connections")
            assert each <= IDLE_MAX_BYTES
            for _ in range(100):
                other.ping()
            file.write_text("connections.max.idle.ms=1000\n")
            broker.reload()
            crowd.wait_until_closed()
        with Peer(broker.bootstrap_servers) as new_peer:
            new_peer.ping()
        eventually(
            lambda: open_sockets(broker.pid) <= files_before + 1,
            "the end of the crowd's connections",
        )


def test_connections_over_the_limits_are_closed_with_one_log_line(
    start_broker: BrokerFactory,
) -> None:
    broker = start_broker({"max.connections": "20", "max.connections.per.ip": "20"})
    with Crowd(broker.bootstrap_servers, 20) as crowd:
        crowd.send(ping_frame())
        crowd.receive()
        for _ in range(5):
            with Peer(broker.bootstrap_servers) as refused:
                assert refused.read_until_closed() == b""
    # The broker may accept the new connection before it notices that the others have closed.
    eventually(lambda: _is_accepted(broker), "acceptance of another connection")
    assert_one_line(broker, "rejected a connection", "max.connections=20", "127.0.0.1")


def _is_accepted(broker: BrokerProcess) -> bool:
    with Peer(broker.bootstrap_servers) as peer:
        try:
            peer.ping()
        except ConnectionError:
            return False
    return True


def test_each_address_has_its_own_connection_limit(start_broker: BrokerFactory) -> None:
    broker = start_broker({"max.connections.per.ip": "5"})
    with Crowd(broker.bootstrap_servers, 5) as crowd:
        crowd.send(ping_frame())
        crowd.receive()
        with Peer(broker.bootstrap_servers) as refused:
            assert refused.read_until_closed() == b""
        with Peer(broker.bootstrap_servers, our_address="127.0.0.2") as other:
            other.ping()
    assert_one_line(broker, "rejected a connection", "max.connections.per.ip=5", "127.0.0.1")
