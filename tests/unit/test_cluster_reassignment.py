"""Partitions move between brokers on ZooKeeper while clients write: no committed record is lost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from plog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from plog.wire.messages.delete_topics import DeleteTopicsRequest
from plog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from plog.zookeeper.operations import Create, SetData
from plogd.metadata.store import TopicValue
from plogd.testing.mock_zookeeper import Fault, MockZooKeeperClient, Request
from tests.helpers.sim.sim_broker import Asked
from tests.helpers.sim.zookeeper_cluster import SESSION_TIMEOUT_MS, ZooKeeperCluster, error_of

TOPIC_ZNODE = "/brokers/topics/t"


def request_to_move(*replicas: int, number: int = 0) -> AlterPartitionReassignmentsRequest:
    moved = ReassignablePartition(
        partition_index=number, replicas=list(replicas) if replicas else None
    )
    return AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="t", partitions=[moved])], timeout_ms=10_000
    )


class _Cluster(ZooKeeperCluster):
    """Four brokers, and a topic on three of them."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(4, **settings)
        self.create("t")
        self.acknowledged: list[bytes] = []

    @property
    def assignment(self) -> TopicValue:
        """The topic's key."""
        value = self.brokers[self.controller].broker.store.get(("topic", "t"))[0]
        assert isinstance(value, TopicValue)
        return value

    @property
    def replicas(self) -> tuple[int, ...]:
        """The replicas of the partition."""
        return self.assignment.assignments[0]

    @property
    def spare(self) -> int:
        """The broker that has no replica."""
        [one] = {1, 2, 3, 4} - set(self.replicas)
        return one

    def move(self, *replicas: int) -> int:
        """Begin to move the partition, or cancel this; return the error code."""
        response = self.ask_controller(request_to_move(*replicas), 1)
        [topic] = response.responses
        code: int = topic.partitions[0].error_code
        return code

    def ongoing(self) -> list[tuple[list[int], list[int], list[int]]]:
        """Return the reassignments in progress."""
        response = self.ask_controller(ListPartitionReassignmentsRequest(topics=None), 0)
        return [
            (one.replicas, one.adding_replicas, one.removing_replicas)
            for topic in response.topics
            for one in topic.partitions
        ]

    def write(self, *values: bytes) -> None:
        """Write records with acks=all, and repeat the request as clients do."""
        for _ in range(100):
            error_code = self.produce("t", *values)
            if error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                break
            self.advance(10)
        assert error_code == 0
        self.acknowledged += values

    def is_on(self, *replicas: int) -> bool:
        """Return whether the partition is on these brokers, which are all in sync."""
        if not self.has_controller:
            return False
        value = self.assignment
        return (
            value.assignments[0] == replicas
            and not value.adding_replicas
            and not value.removing_replicas
            and set(self.state("t").isr) == set(replicas)
        )

    def give_a_replica_to_the_controller(self) -> None:
        """Move the partition, if needed, so that the broker without a replica can die."""
        old, controller = self.replicas, self.controller
        if controller not in old:
            target = (controller, *old[1:])
            assert self.move(*target) == 0
            self.until(lambda: self.is_on(*target))
            self.advance(500)

    def check(self, *replicas: int) -> None:
        """Check that exactly these brokers have the partition, with all acknowledged records."""
        self.advance(2_000)
        assert self.is_on(*replicas)
        assert self.leader("t") in replicas
        values = self.values("t")
        # A record whose request failed may be there, too.
        found = iter(values)
        assert all(value in found for value in self.acknowledged), values
        ends = {self.replica(one, "t").log.log_end_offset for one in replicas}
        assert ends == {len(values)}
        for one, files in self.files.items():
            assert ("t-0" in files.listdir("/data")) == (one in replicas)
        for one, sim in self.brokers.items():
            hosted = ("t", 0) in sim.broker.replica_manager.topics.partitions
            assert hosted == (one in replicas)
            shown = sim.broker.cache.topic("t")
            assert shown is not None
            assert shown.partitions[0].replicas == replicas


@pytest.fixture
def cluster() -> _Cluster:
    """Four brokers with a topic of three replicas, and records."""
    cluster = _Cluster()
    cluster.write(b"a", b"b")
    return cluster


def test_partition_moves_to_another_broker(cluster: _Cluster) -> None:
    old, spare = cluster.replicas, cluster.spare
    target = (spare, *old[:2])
    assert cluster.move(*target) == 0
    cluster.write(b"c")
    cluster.until(lambda: cluster.is_on(*target))
    cluster.write(b"d")
    cluster.check(*target)
    data = cluster.zookeeper.data(TOPIC_ZNODE)
    assert data is not None
    znode = json.loads(data)
    assert (znode["partitions"], znode["adding_replicas"], znode["removing_replicas"]) == (
        {"0": list(target)},
        {},
        {},
    )


def test_all_replicas_of_a_partition_are_replaced(cluster: _Cluster) -> None:
    """Its leader moves, too."""
    one = cluster.leader("t")
    others = [each for each in cluster.replicas if each != one]
    assert cluster.move(one) == 0
    cluster.check(one)
    [spare] = {1, 2, 3, 4} - {one, *others}
    target = (spare, *others)
    assert cluster.move(*target) == 0
    cluster.write(b"c")
    cluster.until(lambda: cluster.is_on(*target))
    cluster.write(b"d")
    cluster.check(*target)


def test_reassignment_in_progress_is_listed_and_can_be_cancelled(cluster: _Cluster) -> None:
    cluster.give_a_replica_to_the_controller()
    old, spare = cluster.replicas, cluster.spare
    cluster.kill(spare)
    # Its session goes on, so the controller does not know that it is dead.
    assert cluster.move(spare, old[0]) == 0
    assert cluster.ongoing() == [([spare, *old], [spare], [*old[1:]])]
    cluster.advance(100)
    name = "kafka_server_replicamanager_reassigningpartitions"
    metrics = cluster.brokers[cluster.leader("t")].metrics.expose().decode().splitlines()
    assert f"{name} 1" in metrics
    listed = ListPartitionReassignmentsRequest(
        topics=[ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 0, 7])]
    )
    [topic] = cluster.ask_controller(listed, 0).topics
    assert [one.partition_index for one in topic.partitions] == [0]
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    cluster.until(lambda: cluster.has_controller)
    cluster.write(b"c")
    assert cluster.ongoing() != []
    assert cluster.move() == 0
    assert cluster.ongoing() == []
    assert cluster.move() == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    cluster.start(spare)
    cluster.check(*old)


def test_broker_that_was_away_while_its_replica_was_moved_removes_it(cluster: _Cluster) -> None:
    old, spare = cluster.replicas, cluster.spare
    gone = next(one for one in old if one not in (cluster.controller, cluster.leader("t")))
    cluster.kill(gone)
    cluster.advance(2 * SESSION_TIMEOUT_MS)
    target = (spare, *(one for one in old if one != gone))
    assert cluster.move(*target) == 0
    cluster.until(lambda: cluster.is_on(*target))
    cluster.write(b"c")
    assert "t-0" in cluster.files[gone].listdir("/data")
    cluster.start(gone)
    cluster.check(*target)
    assert any(name.endswith("-stray") for name in cluster.files[gone].listdir("/data"))


def test_topic_is_not_expanded_while_it_moves(cluster: _Cluster) -> None:
    cluster.give_a_replica_to_the_controller()
    old, spare = cluster.replicas, cluster.spare
    cluster.kill(spare)
    assert cluster.move(spare, old[0]) == 0
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=4, assignments=None)], timeout_ms=10_000
    )
    cluster.until(lambda: cluster.has_controller)
    [result] = cluster.ask_controller(request, 3).results
    assert result.error_code == ErrorCode.REASSIGNMENT_IN_PROGRESS
    assert cluster.move() == 0
    [result] = cluster.ask_controller(request, 3).results
    assert result.error_code == 0


def test_topic_can_be_deleted_while_it_moves(cluster: _Cluster) -> None:
    cluster.give_a_replica_to_the_controller()
    old, spare = cluster.replicas, cluster.spare
    # The added replica has a log, but copies nothing.
    others = [one for one in old if one != cluster.controller]
    assert cluster.move(others[0]) == 0
    cluster.until(lambda: cluster.is_on(others[0]))
    cluster.cut(spare, others[0])
    assert cluster.move(spare) == 0
    cluster.advance(500)
    assert "t-0" in cluster.files[spare].listdir("/data")
    assert cluster.ongoing() == [([spare, others[0]], [spare], [others[0]])]
    cluster.ask_controller(DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 5)
    cluster.advance(500)
    for one, sim in cluster.brokers.items():
        assert sim.broker.cache.topic("t") is None
        assert "t-0" not in cluster.files[one].listdir("/data")
    assert cluster.zookeeper.data(TOPIC_ZNODE) is None
    assert cluster.ongoing() == []


def test_znode_of_old_tools_begins_a_reassignment(cluster: _Cluster) -> None:
    old, spare = cluster.replicas, cluster.spare
    target = (spare, *old[:2])
    partitions = [
        {"topic": "t", "partition": 0, "replicas": list(target)},
        {"topic": "t", "partition": 9, "replicas": [1]},
        {"topic": "missing", "partition": 0, "replicas": [1]},
    ]
    data = json.dumps({"version": 1, "partitions": partitions}).encode()
    cluster.zookeeper.write(Create(path="/admin/reassign_partitions", data=data))
    cluster.until(lambda: cluster.is_on(*target))
    cluster.check(*target)
    assert cluster.zookeeper.data("/admin/reassign_partitions") is None


def test_reassignment_that_kafka_has_begun_is_completed(cluster: _Cluster) -> None:
    """Kafka writes the topic before the partition's state, and stops in between."""
    old, spare = cluster.replicas, cluster.spare
    target = (spare, *old[:2])
    for one in list(cluster.brokers):
        cluster.kill(one)
    data = cluster.zookeeper.data(TOPIC_ZNODE)
    assert data is not None
    znode = json.loads(data) | {
        "partitions": {"0": [spare, *old]},
        "adding_replicas": {"0": [spare]},
        "removing_replicas": {"0": [old[2]]},
        "field_of_a_newer_kafka": 7,
    }
    cluster.zookeeper.write(SetData(path=TOPIC_ZNODE, data=json.dumps(znode).encode()))
    for one in (1, 2, 3, 4):
        cluster.start(one)
    cluster.until(lambda: cluster.is_on(*target))
    cluster.write(b"c")
    cluster.check(*target)
    data = cluster.zookeeper.data(TOPIC_ZNODE)
    assert data is not None
    assert json.loads(data)["field_of_a_newer_kafka"] == 7


def test_topic_that_another_program_has_changed_is_taken_over_first(cluster: _Cluster) -> None:
    old, spare = cluster.replicas, cluster.spare
    data = cluster.zookeeper.data(TOPIC_ZNODE)
    assert data is not None
    znode = json.loads(data)
    znode["partitions"]["1"] = [spare]
    cluster.zookeeper.write(SetData(path=TOPIC_ZNODE, data=json.dumps(znode).encode()))
    target = (spare, *old[:2])
    assert cluster.move(*target) == 0
    cluster.until(lambda: cluster.is_on(*target))
    assert cluster.assignment.assignments == {0: target, 1: (spare,)}
    cluster.advance(500)
    assert cluster.produce("t", b"a", number=1) == 0


# -- failures ---------------------------------------------------------------------------------


class _Writer:
    """Writes records one after another with acks=all, whatever the brokers do."""

    def __init__(self, cluster: _Cluster) -> None:
        self._cluster = cluster
        self._number = 0
        self._value = b""
        self._asked: Asked | None = None

    def step(self) -> None:
        """Note the outcome of the last request, and send the next one."""
        cluster = self._cluster
        if self._asked is not None and self._asked.is_done:
            if error_of(self._asked) == 0:
                cluster.acknowledged.append(self._value)
            self._asked = None
        if self._asked is None and cluster.has_controller:
            leader = cluster.leader("t")
            if leader in cluster.brokers:
                self._number += 1
                self._value = b"record %d" % self._number
                self._asked = cluster.begin_produce("t", self._value, timeout_ms=1_000)

    def forget(self) -> None:
        """Give up a request to a broker that has died."""
        self._asked = None


def write_until_moved(cluster: _Cluster, writer: _Writer, target: Sequence[int]) -> None:
    for _ in range(400):
        writer.step()
        cluster.advance(50)
        if cluster.is_on(*target):
            return
    raise AssertionError(f"the partition has not moved: {cluster.assignment}")


def write_until_acknowledged(cluster: _Cluster, writer: _Writer) -> None:
    before = len(cluster.acknowledged)
    for _ in range(400):
        writer.step()
        cluster.advance(50)
        if len(cluster.acknowledged) > before:
            return
    raise AssertionError("no record is acknowledged any more")


@pytest.mark.parametrize("victim", ["old leader", "new leader", "controller", "removed"])
@pytest.mark.parametrize("after_ms", [0, 5, 20, 100])
def test_records_survive_a_death_during_a_move(victim: str, after_ms: int) -> None:
    cluster = _Cluster()
    writer = _Writer(cluster)
    for _ in range(3):
        writer.step()
        cluster.advance(50)
    leader, spare = cluster.leader("t"), cluster.spare
    others = [one for one in cluster.replicas if one != leader]
    target = (spare, *others)
    assert cluster.move(*target) == 0
    writer.step()
    cluster.advance(after_ms)
    died = {
        "old leader": leader,
        "new leader": spare,
        "controller": cluster.controller if cluster.has_controller else leader,
        "removed": leader,
    }[victim]
    cluster.kill(died)
    writer.forget()
    if victim == "removed":
        cluster.advance(100)
    else:
        cluster.advance(3 * SESSION_TIMEOUT_MS)
    writer.step()
    cluster.start(died)
    write_until_moved(cluster, writer, target)
    write_until_acknowledged(cluster, writer)
    cluster.check(*target)


class _Transactions:
    """Counts the controller's transactions, and interrupts the controller at one of them.

    The controller dies before the transaction, or loses its connection after it.
    """

    def __init__(self, cluster: _Cluster, at: int, *, kills: bool) -> None:
        self._client = cluster.client(cluster.controller)
        self._at = at
        self._kills = kills
        self._sent = 0
        self.is_interrupted = False
        cluster.zookeeper.on_request = self._on_request

    def _on_request(self, client: MockZooKeeperClient, request: Request) -> Fault:
        if client is not self._client or request.kind != "multi":
            return Fault.NONE
        self._sent += 1
        if self._sent != self._at:
            return Fault.NONE
        self.is_interrupted = True
        if self._kills:
            client.kill()
            return Fault.NONE
        return Fault.LOSE_AFTER


def begin_to_move(cluster: _Cluster, *replicas: int) -> None:
    """Send a request; the controller may die before it answers."""
    cluster.brokers[cluster.controller].begin(request_to_move(*replicas), 1)
    cluster.advance(500)


def recover(cluster: _Cluster, controller: int, *, kills: bool) -> None:
    """Let the next controller take over, and the former one return."""
    if kills:
        cluster.kill(controller)
        cluster.advance(3 * SESSION_TIMEOUT_MS)
        cluster.start(controller)
    cluster.until(lambda: cluster.has_controller)


def wait_until_moved(cluster: _Cluster, target: tuple[int, ...]) -> None:
    """Let time pass until all replicas are on these brokers."""
    cluster.until(lambda: cluster.is_on(*target))


@pytest.mark.parametrize("kills", [False, True])
def test_next_controller_continues_a_move_after_any_transaction(kills: bool) -> None:
    for at in range(1, 20):
        cluster = _Cluster()
        cluster.write(b"a", b"b")
        controller, old, spare = cluster.controller, cluster.replicas, cluster.spare
        leader = cluster.leader("t")
        # The leader leaves, so that the next controller elects another one.
        target = (spare, *(one for one in old if one != leader))
        transactions = _Transactions(cluster, at, kills=kills)
        begin_to_move(cluster, *target)
        if transactions.is_interrupted:
            recover(cluster, controller, kills=kills)
            if at == 1 and kills:
                # Nothing has been written, so the client repeats the request.
                begin_to_move(cluster, *target)
        wait_until_moved(cluster, target)
        cluster.check(*target)
        if not transactions.is_interrupted:
            # The begin, one or more changes of the ISR, and the completion.
            assert at > 3
            return
    raise AssertionError("the move takes more transactions than expected")


@pytest.mark.parametrize("kills", [False, True])
def test_next_controller_continues_a_cancellation_after_any_transaction(kills: bool) -> None:
    for at in range(1, 20):
        cluster = _Cluster()
        cluster.write(b"a", b"b")
        cluster.give_a_replica_to_the_controller()
        controller, old, spare = cluster.controller, cluster.replicas, cluster.spare
        # It is registered for a while, but copies nothing, so the move does not complete.
        cluster.kill(spare)
        transactions = _Transactions(cluster, at, kills=kills)
        begin_to_move(cluster, spare, *old[:2])
        if not transactions.is_interrupted:
            begin_to_move(cluster)
        if transactions.is_interrupted:
            recover(cluster, controller, kills=kills)
            begin_to_move(cluster)
        cluster.start(spare)
        wait_until_moved(cluster, old)
        cluster.check(*old)
        if not transactions.is_interrupted:
            assert at > 2
            return
    raise AssertionError("the cancellation takes more transactions than expected")
