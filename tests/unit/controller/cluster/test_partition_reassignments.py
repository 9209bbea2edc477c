"""Reassignments of partitions: what is written and sent, and when they complete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from plog.errors import (
    InvalidReplicaAssignment,
    KafkaError,
    NoReassignmentInProgress,
    NotController,
    UnknownTopicOrPartition,
)
from plog.wire.messages.leader_and_isr import LeaderAndIsrRequest
from plog.wire.messages.stop_replica import StopReplicaRequest
from plog.wire.messages.update_metadata import UpdateMetadataRequest
from plogd.fair_queue import FairQueue, Slices
from plogd.metadata.cache import NO_LEADER
from plogd.ports import Later, spawn
from plogd.testing.mock_zookeeper import Fault, MockZooKeeperClient, Request
from tests.helpers.cluster_controller_site import ClusterControllerSite, key


class _Site(ClusterControllerSite):
    """Five brokers."""

    def __init__(self, assignments: Mapping[int, tuple[int, ...]]) -> None:
        super().__init__(assignments)
        self.start(1, 2, 3, 4, 5)
        self.peers.sent.clear()

    def begin(self, wanted: Mapping[int, Sequence[int] | None]) -> Later[Mapping[int, KafkaError]]:
        """Send a request."""
        return spawn(self.cluster.reassignments.alter("t", wanted))

    def alter(self, wanted: Mapping[int, Sequence[int] | None]) -> Mapping[int, KafkaError]:
        """Send a request, and return its errors."""
        errors: Mapping[int, KafkaError] = self.settle(self.begin(wanted))
        self.run()
        return errors

    def move(self, *target: int, number: int = 0) -> None:
        """Begin to move a partition."""
        assert self.alter({number: target}) == {}

    def ongoing(self) -> dict[int, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
        """Return the replicas of the partitions that are being reassigned."""
        slices = Slices(FairQueue(self.site.ports.timers))
        found = self.settle(spawn(self.cluster.reassignments.ongoing(None, slices)))
        return {
            one.partition: (one.replicas, one.adding_replicas, one.removing_replicas)
            for one in found.get("t", ())
        }

    def stopped(self, broker_id: int) -> list[tuple[int, int, bool]]:
        """Return the replicas that a broker has to stop: partition, leader epoch, deletes."""
        return [
            (one.partition_index, one.leader_epoch, one.delete_partition)
            for request in self.peers.told(broker_id, StopReplicaRequest)
            for topic in request.topic_states
            for one in topic.partition_states
        ]


@pytest.fixture
def site() -> _Site:
    """A partition on brokers 1 and 2, led by broker 1."""
    return _Site({0: (1, 2)})


def test_replicas_of_both_assignments_are_written_and_sent_in_a_new_epoch(site: _Site) -> None:
    site.move(3, 4)
    state = site.state()
    assert (state.leader, state.leader_epoch, state.isr) == (1, 1, (1, 2))
    value = site.topic_value
    assert value.assignments[0] == (3, 4, 1, 2)
    assert (value.adding_replicas, value.removing_replicas) == ({0: (3, 4)}, {0: (1, 2)})
    assert site.ongoing() == {0: ((3, 4, 1, 2), (3, 4), (1, 2))}
    for broker_id in (1, 2, 3, 4):
        told = site.peers.last_states(broker_id, LeaderAndIsrRequest)[0]
        assert (told.leader, told.leader_epoch, told.isr) == (1, 1, [1, 2])
        assert (told.adding_replicas, told.removing_replicas) == ([3, 4], [1, 2])
        # An added replica cannot have lost records that it never had.
        assert told.is_new == (broker_id in (3, 4))
    assert site.peers.told(5, LeaderAndIsrRequest) == []
    assert site.peers.last_states(5, UpdateMetadataRequest)[0].replicas == [3, 4, 1, 2]


def test_reassignment_completes_when_all_target_replicas_are_in_sync(site: _Site) -> None:
    site.move(3, 4)
    assert site.change_isr(1, 2, 3) == 0
    assert site.ongoing()
    site.peers.sent.clear()
    assert site.change_isr(1, 2, 3, 4) == 0
    state = site.state()
    assert (state.leader, state.leader_epoch, state.isr) == (3, 2, (3, 4))
    assert (state.replicas, state.adding_replicas, state.removing_replicas) == ((3, 4), (), ())
    value = site.topic_value
    assert value.assignments[0] == (3, 4)
    assert value.adding_replicas == value.removing_replicas == {}
    assert site.ongoing() == {}
    for broker_id in (3, 4):
        told = site.peers.last_states(broker_id, LeaderAndIsrRequest)[0]
        assert (told.leader, told.replicas, told.adding_replicas) == (3, [3, 4], [])
        assert site.stopped(broker_id) == []
    # The removed replicas are deleted, in the new epoch: the topic goes on.
    assert site.stopped(1) == site.stopped(2) == [(0, 2, True)]
    assert site.peers.last_states(5, UpdateMetadataRequest)[0].isr == [3, 4]


def test_leader_that_stays_keeps_leading(site: _Site) -> None:
    site.move(3, 1)
    assert site.change_isr(1, 2, 3) == 0
    state = site.state()
    assert (state.leader, state.leader_epoch) == (1, 2)
    assert (state.replicas, state.isr) == ((3, 1), (1, 3))
    assert site.stopped(2) == [(0, 2, True)]


def test_removal_and_new_order_need_one_step(site: _Site) -> None:
    site.move(2, 1)
    assert (site.state().replicas, site.state().leader_epoch) == ((2, 1), 1)
    assert site.ongoing() == {}
    site.move(2)
    state = site.state()
    assert (state.replicas, state.isr, state.leader, state.leader_epoch) == ((2,), (2,), 2, 2)
    assert site.stopped(1) == [(0, 2, True)]
    # The same assignment again changes nothing.
    site.move(2)
    assert site.state().leader_epoch == 2


def test_cancellation_restores_the_original_replicas(site: _Site) -> None:
    site.move(3, 4)
    assert site.change_isr(1, 2, 3) == 0
    site.peers.sent.clear()
    assert site.alter({0: None}) == {}
    state = site.state()
    assert (state.replicas, state.isr, state.leader, state.leader_epoch) == ((1, 2), (1, 2), 1, 2)
    assert site.topic_value.adding_replicas == site.topic_value.removing_replicas == {}
    assert site.stopped(3) == site.stopped(4) == [(0, 2, True)]
    assert site.stopped(1) == site.stopped(2) == []
    [error] = site.alter({0: None}).values()
    assert isinstance(error, NoReassignmentInProgress)


def test_cancellation_moves_the_leader_back() -> None:
    site = _Site({0: (2, 3)})
    site.move(4, 5)
    assert site.change_isr(2, 3, 4) == 0
    site.leave(2)
    assert site.state().leader == 4
    assert site.alter({0: None}) == {}
    assert (site.state().leader, site.state().isr) == (3, (3,))


def test_cancellation_without_an_original_replica_in_sync_is_refused() -> None:
    site = _Site({0: (2, 3)})
    site.move(4, 5)
    assert site.change_isr(2, 3, 4) == 0
    site.leave(3, 2)
    assert (site.state().leader, site.state().isr) == (4, (4,))
    [error] = site.alter({0: None}).values()
    assert isinstance(error, InvalidReplicaAssignment)
    assert "is in sync" in error.message
    assert site.ongoing() == {0: ((4, 5, 2, 3), (4, 5), (2, 3))}


def test_another_target_replaces_the_first_one(site: _Site) -> None:
    site.move(3, 4)
    assert site.change_isr(1, 2, 3) == 0
    site.peers.sent.clear()
    site.move(4, 5)
    assert site.ongoing() == {0: ((4, 5, 1, 2), (4, 5), (1, 2))}
    assert site.state().isr == (1, 2)
    # Broker 3 is no longer needed.
    assert site.stopped(3) == [(0, 2, True)]
    assert site.change_isr(1, 2, 4, 5) == 0
    assert (site.state().replicas, site.state().leader) == ((4, 5), 4)


def test_reassignment_waits_until_a_target_replica_can_lead(site: _Site) -> None:
    site.move(3, 4)
    # They have registered, but have not confirmed that they have their logs.
    site.brokers._unconfirmed |= {3, 4}
    assert site.change_isr(1, 2, 3, 4) == 0
    assert (site.state().leader, set(site.ongoing())) == (1, {0})
    site.brokers._unconfirmed.discard(4)
    site.brokers.changed()
    site.run()
    assert (site.state().leader, site.state().replicas) == (4, (3, 4))
    assert site.ongoing() == {}


def test_partition_without_a_leader_waits_for_an_election() -> None:
    site = _Site({0: (2, 3)})
    site.leave(3)
    site.leave(2)
    assert (site.state().leader, site.state().isr) == (NO_LEADER, (2,))
    site.move(2)
    # Broker 3 might get records back that broker 2 has lost.
    assert site.ongoing() == {0: ((2, 3), (), (3,))}
    site.register(2)
    assert (site.state().leader, site.state().replicas) == (2, (2,))
    assert site.ongoing() == {}


def test_each_partition_has_its_own_outcome() -> None:
    site = _Site({0: (1, 2), 1: (2, 1)})
    errors = site.alter({0: [3, 4], 1: [9], 2: [1], 3: None})
    assert {number: type(error) for number, error in errors.items()} == {
        1: InvalidReplicaAssignment,
        2: UnknownTopicOrPartition,
        3: UnknownTopicOrPartition,
    }
    assert set(site.ongoing()) == {0}


def test_other_partitions_keep_their_replicas() -> None:
    site = _Site({0: (1, 2), 1: (2, 1)})
    site.move(3, 2, number=1)
    site.move(3, 4, number=0)
    value = site.topic_value
    assert value.assignments == {0: (3, 4, 1, 2), 1: (3, 2, 1)}
    assert value.adding_replicas == {0: (3, 4), 1: (3,)}
    assert site.change_isr(2, 1, 3, number=1) == 0
    value = site.topic_value
    assert value.assignments == {0: (3, 4, 1, 2), 1: (3, 2)}
    assert (value.adding_replicas, value.removing_replicas) == ({0: (3, 4)}, {0: (1, 2)})


def test_thousands_of_partitions_move_in_transactions_of_at_most_64_changes() -> None:
    site = _Site({number: (1, 2) for number in range(1000)})
    sizes: list[int] = []

    def count(client: MockZooKeeperClient, request: Request) -> Fault:
        if client is site.site.client and request.kind == "multi":
            sizes.append(len(request.operations))
        return Fault.NONE

    site.site.zookeeper.on_request = count
    assert site.alter({number: [1] for number in range(1000)}) == {}
    site.run()
    assert {state.replicas for state in site.known.state.partitions} == {(1,)}
    assert max(sizes) <= 65  # With the check of the controller epoch.
    assert len(sizes) == 16
    assert len(site.stopped(2)) == 1000
    # A request has a limited number of partitions, too.
    requests = site.peers.told(2, StopReplicaRequest)
    assert max(len(one.topic_states[0].partition_states) for one in requests) <= 1000


def test_isr_that_changes_at_the_same_time_is_not_lost(site: _Site) -> None:
    site.move(3, 4)
    # The controller's own context is older than the store.
    state, version = site.known.state.partitions[0], site.known.partition_versions[0]
    assert site.change_isr(1, 2, 3) == 0
    site.context.put_partitions("t", {0: (state, version)})
    site.move(3, 5)
    assert site.state().isr == (1, 2, 3)
    assert site.topic_value.adding_replicas == {0: (3, 5)}


def test_deleted_topic_is_not_reassigned(site: _Site) -> None:
    site.move(3, 4)
    site.context.deleting.add("t")
    [error] = site.alter({0: [1]}).values()
    assert isinstance(error, UnknownTopicOrPartition)
    assert site.ongoing() == {}
    site.peers.sent.clear()
    site.settle(site.cluster.stop_topic(site.known.state))
    # On the added replicas, too.
    for broker_id in (1, 2, 3, 4):
        assert site.stopped(broker_id) == [(0, -2, True)]


def test_ended_term_writes_nothing_more(site: _Site) -> None:
    site.move(3, 4)
    site.term.end()
    site.cluster.end()
    with pytest.raises(NotController):
        site.settle(site.begin({0: None}))
    site.cluster.reassignments.changed([key(0)])
    site.run()
    assert site.topic_value.adding_replicas == {0: (3, 4)}
