"""A term in a cluster: creating, expanding and deleting topics on several brokers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from plog.wire.messages.leader_and_isr import LeaderAndIsrRequest
from plog.wire.messages.stop_replica import StopReplicaRequest
from plog.wire.messages.update_metadata import UpdateMetadataRequest
from plogd.controller.active_controller import ActiveController
from plogd.controller.partition_creation import NewPartitions
from plogd.controller.topic_creation import Defaults
from plogd.fair_queue import FairQueue
from plogd.metadata.cache import NO_LEADER, PartitionState
from plogd.ports import spawn
from tests.helpers.cluster_controller_site import ClusterControllerSite
from tests.helpers.sim.sim_ports import SimRandom


def _new_flags(site: ClusterControllerSite, broker_id: int) -> dict[int, bool]:
    states = site.peers.last_states(broker_id, LeaderAndIsrRequest)
    return {number: state.is_new for number, state in states.items()}


def _site() -> ClusterControllerSite:
    """The topic t is created after the term has begun."""
    site = ClusterControllerSite({0: (2, 3), 1: (3, 1)}, is_created=False)
    site.start(1, 2, 3)
    site.create()
    site.peers.sent.clear()
    return site


def test_new_topic_is_announced_to_its_replicas_and_shown_to_all_brokers() -> None:
    site = _site()
    site.settle(site.cluster.start_topic(site.known.state))
    assert _new_flags(site, 2) == {0: True}
    assert _new_flags(site, 3) == {0: True, 1: True}
    for broker_id in (1, 2, 3):
        assert set(site.peers.last_states(broker_id, UpdateMetadataRequest)) == {0, 1}


def test_partition_is_new_only_once() -> None:
    site = _site()
    site.settle(site.cluster.start_topic(site.known.state))
    site.settle(site.cluster.start_topic(site.known.state))
    assert _new_flags(site, 3) == {0: False, 1: False}


def test_partitions_of_an_earlier_term_are_not_new() -> None:
    site = ClusterControllerSite({0: (2, 3)})
    site.start(1, 2, 3)
    site.settle(site.cluster.start_topic(site.known.state))
    assert _new_flags(site, 2) == {0: False}


class _Partitions(tuple[PartitionState, ...]):
    """Counts how often all partitions of a topic are looked at."""

    looks = 0

    def __iter__(self) -> Iterator[PartitionState]:
        _Partitions.looks += 1
        return super().__iter__()


def test_beginning_of_a_term_does_not_look_at_all_partitions_in_one_turn() -> None:
    site = ClusterControllerSite({number: (2, 3) for number in range(3)})
    site.register(1, 2, 3)
    known = site.known
    topic = replace(known.state, partitions=_Partitions(known.state.partitions))
    site.context.put(replace(known, state=topic))
    looks = _Partitions.looks
    site.cluster.begin()
    assert _Partitions.looks == looks
    site.run()
    # They have records from before.
    site.settle(site.cluster.start_topic(site.known.state))
    assert _new_flags(site, 2) == {0: False, 1: False, 2: False}


def test_only_added_partitions_are_new() -> None:
    site = ClusterControllerSite({0: (2, 3)})
    site.start(1, 2, 3)
    site.peers.sent.clear()
    site.settle(spawn(_operations(site).create_partitions(NewPartitions(topic="t", count=3))))
    flags = {number: flag for one in (1, 2, 3) for number, flag in _new_flags(site, one).items()}
    assert flags == {0: False, 1: True, 2: True}


def test_creation_waits_for_leaders_and_not_for_followers() -> None:
    site = _site()
    site.peers.silent = {1}
    site.settle(site.cluster.start_topic(site.known.state))
    site.peers.silent = {2}
    starting = site.cluster.start_topic(site.known.state)
    site.run(1_000)
    assert not starting.done
    # Its broker is gone: the creation ends, and another replica leads.
    site.leave(2)
    assert starting.done
    assert site.state(0).leader == 3


def test_broker_that_has_gone_since_the_placement_does_not_lead() -> None:
    site = ClusterControllerSite({0: (2, 3), 1: (2,)}, is_created=False)
    site.start(1, 2, 3)
    site.leave(2)
    site.create()
    site.settle(site.cluster.start_topic(site.known.state))
    assert (site.state(0).leader, site.state(0).isr) == (3, (3,))
    assert site.state(1).leader == NO_LEADER


def test_log_that_cannot_be_created_moves_the_partition() -> None:
    site = _site()
    site.peers.broken.add((2, 0))
    site.settle(site.cluster.start_topic(site.known.state))
    site.run()
    assert (site.state(0).leader, site.state(0).offline_replicas) == (3, (2,))


def test_topic_is_deleted_on_live_brokers() -> None:
    site = _site()
    site.settle(site.cluster.start_topic(site.known.state))
    site.leave(2)
    site.context.deleting.add("t")
    site.settle(site.cluster.stop_topic(site.known.state))
    [stop] = site.peers.told(3, StopReplicaRequest)
    assert [one.partition_index for one in stop.topic_states[0].partition_states] == [0, 1]
    assert site.peers.told(2, StopReplicaRequest) == []
    # The broker that was gone gets no partition of the topic when it returns.
    site.peers.sent.clear()
    site.register(2)
    assert site.peers.last_states(2, LeaderAndIsrRequest) == {}
    assert len(site.peers.told(2, LeaderAndIsrRequest)) == 1


def test_ended_term_sends_nothing() -> None:
    site = _site()
    site.term.end()
    site.cluster.end()
    site.peers.sent.clear()
    site.leave(2)
    assert site.peers.sent == []


def _operations(site: ClusterControllerSite) -> ActiveController:
    ports = site.site.ports
    site.context.put(replace(site.known, version=site.store.get(("topic", "t"))[1]))
    return ActiveController(
        site.term,
        context=site.context,
        store=site.store,
        brokers=site.cluster,
        defaults=lambda: Defaults(num_partitions=1, replication_factor=2, brokers=(1, 2, 3)),
        random=SimRandom(1),
        fair_queue=FairQueue(ports.timers),
        report=ports.report,
    )


def test_new_partitions_do_not_hide_that_a_replica_is_offline() -> None:
    site = ClusterControllerSite({0: (2, 3)})
    site.peers.broken.add((2, 0))
    site.start(1, 2, 3)
    assert site.state(0).offline_replicas == (2,)
    expansion = _operations(site).create_partitions(NewPartitions(topic="t", count=2))
    site.settle(spawn(expansion))
    assert len(site.known.state.partitions) == 2
    assert site.state(0).offline_replicas == (2,)
    assert site.peers.last_states(1, UpdateMetadataRequest)[0].offline_replicas == [2]


def test_replicas_of_new_partitions_on_dead_brokers_are_not_in_sync() -> None:
    site = ClusterControllerSite({0: (1, 2)})
    site.start(1, 2)
    # The controller has not noticed yet that broker 3 is gone.
    site.peers.sent.clear()
    assigned = NewPartitions(topic="t", count=3, assignments=[[3, 1], [2, 3]])
    site.settle(spawn(_operations(site).create_partitions(assigned)))
    for number, leader in ((1, 1), (2, 2)):
        state = site.state(number)
        # In the first epoch: no election was needed after the partition was written.
        assert (state.leader, state.isr, state.leader_epoch) == (leader, (leader,), 0)
        assert state.partition_epoch == 0
