"""What brokers acknowledge while other brokers may lead their partitions (rule C3).

tests/unit/test_cluster_broker_lease.py has the same promises on a virtual clock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.records.reader import iter_records
from tests.cluster.clients import consume, produce
from tests.cluster.three_brokers import IDS, Cluster
from tests.cluster.writer import Writer
from tests.fault.peers import Peer, request_frame
from tests.helpers.eventually import eventually
from tests.helpers.sim.sim_broker import fetch_request, produce_request
from tests.helpers.zookeeper_server import ZooKeeperServer

PRODUCE_VERSION, FETCH_VERSION = 9, 12
ACKS_ALL = -1


def produced_code(response: Any) -> int:
    """Return the error code of a response to Produce."""
    code: int = response.responses[0].partition_responses[0].error_code
    return code


def fetched_values(response: Any) -> list[bytes]:
    """Return the values in a response to Fetch."""
    [topic] = response.responses
    [partition] = topic.partitions
    return [record.value for record in iter_records(partition.records or b"")]


def test_leader_that_was_paused_acknowledges_no_record(cluster: Cluster) -> None:
    topic = cluster.new_topic()
    produce(cluster, topic, b"0", b"1")
    old = cluster.leader(topic)
    address = cluster.brokers[old].bootstrap_servers
    by_leader, by_all, by_none = (
        produce_request(topic, b"lost", acks=acks) for acks in (1, ACKS_ALL, 0)
    )
    fetch = fetch_request(topic)
    with contextlib.ExitStack() as stack:
        one, other, third, reader = (stack.enter_context(Peer(address)) for _ in range(4))
        with cluster.paused(old):
            eventually(lambda: cluster.state(topic)["leader"] not in (old, -1), "another leader")
            produce(cluster.brokers[cluster.state(topic)["leader"]], topic, b"2")
            # The old leader handles these requests before it can notice anything.
            one.send(request_frame(by_leader, PRODUCE_VERSION))
            other.send(request_frame(by_all, PRODUCE_VERSION))
            third.send(request_frame(by_none, PRODUCE_VERSION))
            reader.send(request_frame(fetch, FETCH_VERSION))
        code = produced_code(one.response_to(by_leader, PRODUCE_VERSION, 1))
        assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert third.read_until_closed() == b""
        # It has appended this record, which no consumer may see.
        assert fetched_values(reader.response_to(fetch, FETCH_VERSION, 1)) in ([], [b"0", b"1"])
        assert produced_code(other.response_to(by_all, PRODUCE_VERSION, 1)) != 0
    eventually(lambda: cluster.isr(topic) == set(IDS), "the old leader is in sync")
    produce(cluster, topic, b"3")
    assert consume(cluster, topic, topic, 4) == [b"0", b"1", b"2", b"3"]


@contextlib.contextmanager
def killed(zookeeper: ZooKeeperServer) -> Iterator[None]:
    """Kill ZooKeeper, and start it again after the block."""
    zookeeper.stop()
    try:
        yield
    finally:
        zookeeper.start()


class Leader:
    """The leader of a topic, and what the brokers have logged since."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._topic = cluster.new_topic()
        self._address = cluster.brokers[cluster.leader(self._topic)].bootstrap_servers
        self._sizes = {one: len(broker.log_text()) for one, broker in cluster.brokers.items()}

    def code(self, acks: int) -> int:
        """Return the error code for a record."""
        request = produce_request(self._topic, b"x", acks=acks)
        with Peer(self._address) as peer:
            return produced_code(peer.request(request, PRODUCE_VERSION))

    def all_have_logged(self, *lines: str) -> bool:
        """Return whether each broker has logged one of these lines."""
        texts = [
            broker.log_text()[self._sizes[one] :] for one, broker in self._cluster.brokers.items()
        ]
        return all(any(line in text for line in lines) for text in texts)


@pytest.mark.parametrize("away", [ZooKeeperServer.paused, killed], ids=["hangs", "killed"])
def test_records_with_acks_all_are_kept_while_zookeeper_is_away(
    cluster: Cluster,
    zookeeper: ZooKeeperServer,
    away: Callable[[ZooKeeperServer], AbstractContextManager[None]],
) -> None:
    topic = cluster.new_topic()
    leader = Leader(cluster)
    with Writer(cluster, topic) as writer:
        writer.wait()
        with away(zookeeper):
            eventually(
                lambda: leader.code(acks=1) == ErrorCode.NOT_LEADER_OR_FOLLOWER,
                "the end of the lease",
            )
            lost = f"lost the connection to ZooKeeper at {zookeeper.address}"
            eventually(lambda: leader.all_have_logged(lost), "log lines")
            assert leader.code(ACKS_ALL) == 0
            writer.wait()
        returned = ("connected to ZooKeeper again", "registered this broker again")
        eventually(lambda: leader.all_have_logged(*returned), "log lines")
        cluster.new_topic()
        writer.wait()
    produce(cluster, topic, b"last")
    written = [*writer.written, b"last"]
    assert consume(cluster, topic, topic, len(written)) == written
