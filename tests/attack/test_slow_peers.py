"""Connections that are silent, slow, never read, or too many."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from plog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from plog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from plog.wire.messages.metadata import MetadataRequest
from tests.attack.conftest import Attack
from tests.attack.frames import create_topic, produce, produce_frame, small_batch
from tests.attack.target import Target
from tests.fault.peers import Crowd, Peer, many_descriptors, ping_frame, request_frame

_LARGE_FRAME = 100 << 20
_PIECE = bytes(1_400)
_BROKER = 4


def _large_head(size: int = _LARGE_FRAME) -> bytes:
    """Return the beginning of a Produce request of `size` bytes."""
    return size.to_bytes(4, "big") + b"\0\0\0\3" + bytes(17_000)


@contextmanager
def _trickling(peers: list[Peer]) -> Iterator[None]:
    """Let each peer send a few bytes about once a second until the block ends."""
    over = threading.Event()

    def trickle() -> None:
        left = list(peers)
        while not over.wait(1.0):
            left = [peer for peer in left if _sends(peer)]

    thread = threading.Thread(target=trickle, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _sends(peer: Peer) -> bool:
    try:
        peer.send(_PIECE)
    except OSError:
        return False
    return True


@pytest.mark.parametrize("count", [3, 200])
def test_large_frames_that_trickle_in(target: Target, attack: Attack, count: int) -> None:
    """The broker serves requests of 200 KB from other clients meanwhile."""
    create_topic(target, "large")
    with attack(), ExitStack() as stack:
        slow = [stack.enter_context(target.connect()) for _ in range(count)]
        for peer in slow:
            peer.send(_large_head())
        with _trickling(slow), target.connect() as other:
            for _ in range(10):
                assert produce(other, "large", small_batch(bytes(200_000))) == [0]


@pytest.mark.long
def test_large_frame_that_trickles_in_is_closed_with_a_line(
    request: pytest.FixtureRequest, target: Target
) -> None:
    """A frame must arrive at a rate in proportion to its size."""
    with target.attack(request), target.connect() as slow, _trickling([slow]):
        slow.send(_large_head())
        slow.read_until_closed()
    assert "127.0.0.1" in target.broker.log_text()


def test_frames_of_90_mb_from_10_connections_that_stop_halfway(
    target: Target, attack: Attack
) -> None:
    """Half of each frame arrives, which together exceeds the broker's memory for requests."""
    half = bytes(45 << 20)
    with attack(), ExitStack() as stack:
        for _ in range(10):
            peer = stack.enter_context(target.connect())
            peer.send_without_blocking(_large_head(90 << 20) + half)
        with target.connect() as other:
            for _ in range(50):
                other.ping()


def test_1000_silent_connections(target: Target, attack: Attack) -> None:
    with many_descriptors(2_000), attack(), Crowd(target.server, 1_000), target.connect() as other:
        for _ in range(50):
            other.ping()


def test_2000_connections_that_come_and_go(target: Target, attack: Attack) -> None:
    with attack():
        for number in range(2_000):
            with target.connect() as peer:
                peer.send(ping_frame()[: number % 20])


_READ = FetchRequest(
    topics=[
        FetchTopic(
            topic="read",
            partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)],
        )
    ]
)
_DESCRIBE_BROKER = DescribeConfigsRequest(
    resources=[
        DescribeConfigsResource(resource_type=_BROKER, resource_name="1", configuration_keys=None)
    ],
    include_synonyms=True,
    include_documentation=True,
)
_PIPELINED = {
    "ping": ping_frame(),
    "metadata": request_frame(MetadataRequest(topics=None), 9),
    "describe-configs": request_frame(_DESCRIBE_BROKER, 4),
    "fetch": request_frame(_READ, 4),
}


@pytest.mark.parametrize("kind", _PIPELINED)
def test_pipelines_of_200_connections_that_never_read(
    target: Target, attack: Attack, kind: str
) -> None:
    create_topic(target, "read")
    with target.connect() as peer:
        produce(peer, "read", small_batch(bytes(900_000)))
    frames = _PIPELINED[kind] * 100
    with attack(), ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(target.connect(receive_buffer=4096)).send_without_blocking(frames)
        with target.connect() as other:
            for _ in range(50):
                other.ping()


def test_pipelined_produces_of_200_connections_that_never_read(
    target: Target, attack: Attack
) -> None:
    """Each sends 20 requests of 50 KB and reads no response."""
    create_topic(target, "parked")
    frames = produce_frame("parked", small_batch(bytes(50_000))) * 20
    with attack(), ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(target.connect(receive_buffer=4096)).send_without_blocking(frames)
        with target.connect() as other:
            for _ in range(50):
                other.ping()
