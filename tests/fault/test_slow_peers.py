"""F42: clients that trickle, vanish or never read on a real process, while others are served.

Other clients must get responses throughout the attack. Where it matters, the test measures how much
memory the slow clients cost the broker.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from plog.client.simple import SimpleClient
from plog.records.codec import Record
from plog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from plog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from plog.wire.messages.metadata import MetadataRequest
from plogd.testing.broker_process import BrokerProcess
from plogd.testing.plugin import BrokerFactory
from tests.fault.peers import (
    Peer,
    address_of,
    open_sockets,
    ping_frame,
    request_frame,
    resident_bytes,
)
from tests.helpers.eventually import eventually
from tests.helpers.log.broker_log import assert_one_line

MIB = 1 << 20
QUICK_SWEEP = {"plog.connections.sweep.interval.ms": "200"}


@contextmanager
def peers(
    count: int, server: str, tls: ssl.SSLContext | None = None, *, receive_buffer: int = 0
) -> Iterator[list[Peer]]:
    """Open `count` connections."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(Peer(server, tls, receive_buffer=receive_buffer))
            for _ in range(count)
        ]


def test_hundreds_of_trickling_clients_are_closed_while_others_are_served(
    start_broker: BrokerFactory,
) -> None:
    """Their requests have all sizes and exceed the memory for large requests."""
    broker = start_broker(
        {
            **QUICK_SWEEP,
            "plog.partial.request.timeout.ms": "1000",
            "queued.max.request.bytes": str(100 * MIB),
        }
    )
    sizes = [5000, 50_000, MIB, 60 * MIB]
    with (
        peers(300, broker.bootstrap_servers) as slow,
        SimpleClient(*address_of(broker.bootstrap_servers), timeout_s=60) as other,
    ):
        other.create_topic("served", 1)
        for number, peer in enumerate(slow):
            peer.send(sizes[number % len(sizes)].to_bytes(4, "big") + b"\0\3\0")
        alive = list(slow)
        while alive:
            alive = [peer for peer in alive if _sends_a_byte(peer)]
            other.produce("served", 0, [Record(value=b"while others trickle")])
        assert other.fetch("served", 0, 0)
    # The memory is free again: a large request succeeds.
    with SimpleClient(*address_of(broker.bootstrap_servers), timeout_s=60) as new_client:
        new_client.produce("served", 0, [Record(value=bytes(500_000))])
    assert_one_line(broker, "too slowly", "127.0.0.1")


def _sends_a_byte(peer: Peer) -> bool:
    """Send one more byte; return False if the broker has closed the connection."""
    try:
        peer.send(b"x")
    except ConnectionError:
        return False
    return not peer.has_ended()


FETCH = FetchRequest(
    max_wait_ms=0,
    min_bytes=1,
    max_bytes=MIB,
    isolation_level=0,
    session_id=0,
    topics=[
        FetchTopic(
            topic="read",
            partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MIB)],
        )
    ],
)
JOIN = JoinGroupRequest(
    group_id="g",
    session_timeout_ms=10_000,
    rebalance_timeout_ms=10_000,
    member_id="",
    protocol_type="consumer",
    protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(100))],
)
NEVER_READ = {
    "fetch": request_frame(FETCH, 11),
    "metadata": request_frame(MetadataRequest(topics=None), 9),
    "join": request_frame(JOIN, 3),
    "versions": ping_frame(),
}
KEPT_MAX_BYTES = 300_000
"""Memory per client that never reads: its limit of responses, one more, and requests read ahead."""


@pytest.mark.parametrize("kind", NEVER_READ)
def test_clients_that_never_read_are_paused_and_dropped(
    tmp_path: Path, kind: str, record_property: pytest.RecordProperty
) -> None:
    """Except group members: a member that waits for others is not idle."""
    file = tmp_path / "server.properties"
    file.write_text("connections.max.idle.ms=600000\n")
    count = 200
    with BrokerProcess(tmp_path / "broker", QUICK_SWEEP, config_file=file) as broker:
        _fill(broker)
        with Peer(broker.bootstrap_servers) as other:
            for _ in range(100):
                other.ping()
            before = resident_bytes(broker.pid)
            with peers(count, broker.bootstrap_servers, receive_buffer=4096) as unread:
                _send_until_blocked(unread, NEVER_READ[kind], other)
                each = (resident_bytes(broker.pid) - before) / count
                record_property("rss_bytes_per_peer", round(each))
                print(
                    f"{kind}: {each:.0f} bytes of RSS for each of {count} clients that never read"
                )
                assert each <= KEPT_MAX_BYTES
                for _ in range(100):
                    other.ping()
                if kind != "join":
                    file.write_text("connections.max.idle.ms=1000\n")
                    broker.reload()
                    for peer in unread:
                        peer.wait_until_aborted()
        assert "unexpected" not in broker.log_text()


def _fill(broker: BrokerProcess) -> None:
    """Create records to fetch, and a topic with many partitions for Metadata."""
    with SimpleClient(*address_of(broker.bootstrap_servers), timeout_s=60) as client:
        client.create_topic("many", 1000)
        client.create_topic("read", 1)
        for _ in range(4):
            client.produce("read", 0, [Record(value=bytes(MIB // 2))])


def _send_until_blocked(unread: list[Peer], request: bytes, other: Peer) -> None:
    """Send requests until the broker reads no more from any peer, although it is not busy."""
    sent = dict.fromkeys(unread, 0)
    stream = request * 1000
    quiet_rounds = 0
    while quiet_rounds < 2:
        moved = 0
        for peer in unread:
            now = peer.send_without_blocking(stream[sent[peer] % len(request) :])
            sent[peer] += now
            moved += now
        quiet_rounds = 0 if moved else quiet_rounds + 1
        for _ in range(20):
            other.ping()


def test_connections_of_vanished_clients_are_closed(tmp_path: Path) -> None:
    """As after a cut cable: the peers close their sockets without sending a packet."""
    file = tmp_path / "server.properties"
    file.write_text("connections.max.idle.ms=600000\n")
    with BrokerProcess(tmp_path / "broker", QUICK_SWEEP, config_file=file) as broker:
        _fill(broker)
        files_before = open_sockets(broker.pid)
        waiting = FetchRequest(
            max_wait_ms=1000,
            min_bytes=1,
            isolation_level=0,
            session_id=0,
            topics=[
                FetchTopic(
                    topic="many",
                    partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)],
                )
            ],
        )
        requests = [
            b"",
            ping_frame(),
            ping_frame()[:7],
            request_frame(waiting, 11),
            (1 << 20).to_bytes(4, "big"),
        ]
        vanished = []
        for data in requests * 10:
            peer = Peer(broker.bootstrap_servers)
            peer.send(data)
            vanished.append(peer)
        with Peer(broker.bootstrap_servers) as other:
            other.ping()
            for peer in vanished:
                try:
                    peer.close_silently()
                except PermissionError:
                    pytest.skip("NOT RUN: TCP_REPAIR needs CAP_NET_ADMIN")
            assert open_sockets(broker.pid) >= files_before + len(vanished)
            file.write_text("connections.max.idle.ms=2000\n")
            broker.reload()
            eventually(
                lambda: (other.ping(), open_sockets(broker.pid) <= files_before + 1)[1],
                "the end of the vanished connections",
            )
