"""A follower's requests to its leader."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import FencedLeaderEpoch, UnsupportedVersion
from plog.types import TopicPartition
from plog.wire.messages.fetch import FetchRequest, ReplicaState
from plogd.ports import Later, ready
from plogd.replica.follower.remote_leader import RemoteLeader
from tests.helpers.sim.sim_cluster import SimCluster
from tests.helpers.sim.sim_ports import outcome


class FakePeers:
    """Records the requests; `version` is the one that the leader supports."""

    def __init__(self, version: int = 17) -> None:
        self.version = version
        self.asked: list[tuple[int, Any, str, float]] = []

    def ask(self, broker_id: int, request: Any, lane: str, *, timeout_ms: float) -> Later[Any]:
        built = request.build(self.version)
        self.asked.append((broker_id, built, lane, timeout_ms))
        return ready(None)

    def close(self) -> None: ...


def fetch(version: int) -> tuple[int, FetchRequest, str, float]:
    peers = FakePeers(version)
    leader = RemoteLeader(peers, 2, own_id=1, lane="fetch /a", timeout_ms=lambda: 77)
    leader.fetch(FetchRequest(replica_state=ReplicaState(replica_id=1, replica_epoch=8)))
    [asked] = peers.asked
    return asked


@pytest.mark.parametrize("version", [15, 17, 18])
def test_fetch_contains_the_broker_epoch(version: int) -> None:
    broker_id, request, lane, timeout_ms = fetch(version)
    assert (broker_id, lane, timeout_ms) == (2, "fetch /a", 77)
    assert request.replica_state == ReplicaState(replica_id=1, replica_epoch=8)
    assert request.encode_bounded(version, 1000) is not None


@pytest.mark.parametrize("version", [13, 14])
def test_fetch_from_an_older_leader_has_only_the_replica_id(version: int) -> None:
    _, request, _, _ = fetch(version)
    assert (request.replica_id, request.replica_state) == (1, ReplicaState())
    assert request.encode_bounded(version, 1000) is not None


def test_leader_without_topic_ids_is_too_old() -> None:
    with pytest.raises(UnsupportedVersion, match="upgrade that broker"):
        fetch(12)


def make(cluster: SimCluster) -> RemoteLeader:
    return RemoteLeader(cluster._peers[2], 1, own_id=2, lane="fetch", timeout_ms=lambda: 30_000)


def test_offsets_are_the_start_and_the_end_of_the_log() -> None:
    cluster = SimCluster(2)
    cluster.create("t", [1, 2])
    cluster.cut(1, 2)
    for _ in range(3):
        cluster.produce(b"a", acks=1)
    cluster.advance(10)
    cluster.heal(1, 2)
    leader = cluster.partition(1)
    leader.log.log_start_offset = 1
    assert leader.high_watermark == 0
    offsets = make(cluster).offsets(cluster.partition(2))
    cluster.advance(20)
    # Not the high watermark: a follower copies records before they are committed.
    assert outcome(offsets) == (1, 3)


def test_offsets_of_another_epoch_are_fenced() -> None:
    cluster = SimCluster(2)
    cluster.create("t", [1, 2])
    cluster.change(leader_epoch=4)
    cluster.send(1, cluster.leader_and_isr(1, [TopicPartition("t", 0)]))
    cluster.advance(20)
    offsets = make(cluster).offsets(cluster.partition(2))
    cluster.advance(20)
    with pytest.raises(FencedLeaderEpoch):
        outcome(offsets)
