"""Brokers come, go and fail: the controller elects leaders and informs all brokers (C9, C10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from plog.errors import ErrorCode, KafkaStorageError
from plog.wire.messages.leader_and_isr import FULL, LeaderAndIsrRequest
from plog.wire.messages.stop_replica import StopReplicaRequest
from plog.wire.messages.update_metadata import UpdateMetadataRequest
from plog.zookeeper.operations import SetData
from plogd.controller.cluster.broker_updates import ReplicaStatus
from plogd.metadata.cache import NO_LEADER
from plogd.ports import spawn
from plogd.testing.mock_zookeeper import Fault, MockZooKeeperClient, Request
from tests.helpers.cluster_controller_site import ClusterControllerSite, key


@pytest.fixture
def site() -> ClusterControllerSite:
    """Three brokers; partition 0 is led by broker 1, partition 1 by broker 2."""
    site = ClusterControllerSite({0: (1, 2, 3), 1: (2, 3, 1)})
    site.start(1, 2, 3)
    return site


def restart_unseen(site: ClusterControllerSite) -> None:
    """Let broker 2 register again before the controller sees that it was gone."""
    site.site.client.hold()
    site.others.pop(2).client.close()
    site.register(2)
    site.site.client.catch_up()
    site.run()


def test_new_broker_gets_its_partitions_and_all_metadata() -> None:
    site = ClusterControllerSite({0: (1, 2), 1: (2, 3), 2: (3,)})
    site.start(1, 2, 3)
    site.peers.sent.clear()
    site.leave(3)
    site.register(3)
    [first, *_] = site.peers.told(3, LeaderAndIsrRequest)
    assert first.type == FULL
    assert first.broker_epoch == site.brokers.brokers[3].broker_epoch
    [topic] = first.topic_states
    assert [state.partition_index for state in topic.partition_states] == [1, 2]
    metadata = site.peers.told(3, UpdateMetadataRequest)
    assert {one.id for one in metadata[-1].live_brokers} == {1, 2, 3}
    assert set(site.peers.last_states(3, UpdateMetadataRequest)) == {0, 1, 2}


def test_partitions_of_a_dead_leader_get_another_leader(site: ClusterControllerSite) -> None:
    site.leave(2)
    assert (site.state(0).leader, site.state(0).leader_epoch, site.state(0).isr) == (1, 0, (1, 3))
    assert (site.state(1).leader, site.state(1).leader_epoch, site.state(1).isr) == (3, 1, (3, 1))
    for broker_id in (1, 3):
        told = site.peers.last_states(broker_id, LeaderAndIsrRequest)[1]
        assert (told.leader, told.leader_epoch, told.isr) == (3, 1, [3, 1])
        shown = site.peers.last_states(broker_id, UpdateMetadataRequest)[1]
        assert (shown.leader, shown.zk_version) == (3, site.state(1).partition_epoch)


def test_partition_without_an_online_member_of_its_isr_has_no_leader() -> None:
    site = ClusterControllerSite({0: (2,), 1: (2, 3)})
    site.start(1, 2, 3)
    site.leave(2)
    assert (site.state(0).leader, site.state(0).isr) == (NO_LEADER, (2,))
    site.leave(3)
    assert (site.state(1).leader, site.state(1).isr) == (NO_LEADER, (3,))
    # Broker 2 was not in sync when broker 3 left, so it must not lead.
    site.register(2)
    assert (site.state(0).leader, site.state(1).leader) == (2, NO_LEADER)
    site.register(3)
    assert (site.state(1).leader, site.state(1).isr) == (3, (3,))


def test_broker_that_restarts_between_two_looks_is_informed_again(
    site: ClusterControllerSite,
) -> None:
    before = site.brokers.brokers[2].broker_epoch
    site.peers.sent.clear()
    site.others.pop(2).client.close()
    site.register(2)
    assert site.brokers.brokers[2].broker_epoch > before
    requests = site.peers.told(2, LeaderAndIsrRequest)
    assert requests[-1].broker_epoch == site.brokers.brokers[2].broker_epoch
    assert set(site.peers.last_states(2, LeaderAndIsrRequest)) == {0, 1}


def test_silent_broker_does_not_delay_elections(site: ClusterControllerSite) -> None:
    site.peers.silent.add(3)
    site.leave(2)
    assert site.state(1).leader == 3
    site.leave(3)
    assert site.state(1).leader == 1
    assert site.peers.last_states(1, LeaderAndIsrRequest)[1].leader == 1


def test_replica_whose_log_directory_has_failed_is_replaced_as_leader() -> None:
    site = ClusterControllerSite({0: (2, 3)})
    site.peers.broken.add((2, 0))
    site.start(1, 2, 3)
    state = site.state(0)
    assert (state.leader, state.isr, state.offline_replicas) == (3, (3,), (2,))
    assert site.peers.last_states(1, UpdateMetadataRequest)[0].offline_replicas == [2]
    site.peers.broken.clear()
    site.leave(2)
    site.register(2)
    assert site.state(0).offline_replicas == ()
    assert site.state(0).leader == 3


def test_leader_that_finds_its_epoch_in_its_log_gets_a_new_one() -> None:
    """Rule C1."""
    site = ClusterControllerSite({0: (2,)})
    site.peers.errors[2, 0] = ErrorCode.FENCED_LEADER_EPOCH
    site.start(1, 2)
    assert (site.state(0).leader, site.state(0).leader_epoch) == (2, 1)
    assert site.peers.last_states(2, LeaderAndIsrRequest)[0].leader_epoch == 1


def test_leader_that_has_restarted_unnoticed_is_replaced_by_another_member_of_the_isr() -> None:
    site = ClusterControllerSite({0: (2, 3)})
    site.peers.errors[2, 0] = ErrorCode.FENCED_LEADER_EPOCH
    site.start(1, 2, 3)
    state = site.state(0)
    assert (state.leader, state.leader_epoch, state.isr) == (3, 1, (3,))


def test_leader_that_has_rejected_its_epoch_does_not_wait_for_other_brokers() -> None:
    site = ClusterControllerSite({0: (2, 3)})
    site.peers.errors[2, 0] = ErrorCode.FENCED_LEADER_EPOCH
    site.peers.silent.add(3)
    site.start(1, 2, 3)
    state = site.state(0)
    assert (state.leader, state.leader_epoch, state.isr) == (2, 1, (2, 3))


def test_epoch_that_an_earlier_leader_has_rejected_is_kept() -> None:
    site = ClusterControllerSite({0: (2, 3)})
    site.start(1, 2, 3)
    site.leave(2)
    assert (site.state(0).leader, site.state(0).leader_epoch) == (3, 1)
    site.peers.errors[2, 0] = ErrorCode.FENCED_LEADER_EPOCH
    site.register(2)
    assert (site.state(0).leader, site.state(0).leader_epoch) == (3, 1)


def test_broker_that_has_restarted_between_two_looks_leaves_the_isr(
    site: ClusterControllerSite,
) -> None:
    """It may have lost its disk: rule C2."""
    restart_unseen(site)
    assert (site.state(0).leader, site.state(0).isr) == (1, (1, 3))
    state = site.state(1)
    assert (state.leader, state.leader_epoch, state.isr) == (3, 1, (3, 1))


def test_only_member_of_the_isr_leads_again_after_a_restart_between_two_looks() -> None:
    site = ClusterControllerSite({0: (2,)})
    site.start(1, 2)
    restart_unseen(site)
    assert (site.state(0).leader, site.state(0).leader_epoch, site.state(0).isr) == (2, 1, (2,))


def test_broker_that_has_not_responded_does_not_become_the_only_member_of_the_isr() -> None:
    """Its disk may be new, and the others may have all records (rule C2)."""
    site = ClusterControllerSite({0: (2, 3)})
    site.register(1, 2)
    site.peers.silent.add(2)
    site.cluster.begin()
    site.run()
    assert (site.state(0).leader, site.state(0).isr) == (2, (2, 3))
    site.peers.silent.clear()
    site.peers.broken.add((2, 0))
    site.leave(2)
    site.register(2)
    assert (site.state(0).leader, site.state(0).isr) == (NO_LEADER, (2, 3))
    site.register(3)
    assert (site.state(0).leader, site.state(0).isr) == (3, (3,))


def test_first_of_several_damaged_replicas_leads_alone() -> None:
    site = ClusterControllerSite({0: (2, 3)})
    for broker_id in (2, 3):
        site.peers.errors[broker_id, 0] = ErrorCode.REPLICA_NOT_AVAILABLE
    site.start(1, 2, 3)
    state = site.state(0)
    assert (state.leader, state.isr, state.offline_replicas) == (2, (2,), ())


class TestFailedLogDirectories:
    """A directory fails while its broker runs."""

    def test_replicas_in_it_are_replaced_as_leaders(self, site: ClusterControllerSite) -> None:
        site.peers.broken.add((2, 1))
        site.settle(site.others[2].store.report_log_dir_failure())
        site.run()
        state = site.state(1)
        assert (state.leader, state.isr, state.offline_replicas) == (3, (3, 1), (2,))
        # Its other replica works.
        assert (site.state(0).isr, site.state(0).offline_replicas) == ((1, 2, 3), ())
        assert site.site.zookeeper.names("/log_dir_event_notification") == []
        warnings = [text for text in site.site.ports.reports if "are offline, such as t-1" in text]
        assert len(warnings) == 1

    def test_report_from_before_the_term_is_handled(self) -> None:
        site = ClusterControllerSite({0: (2, 3)})
        site.register(1, 2, 3)
        site.settle(site.others[2].store.report_log_dir_failure())
        site.run()
        site.peers.broken.add((2, 0))
        site.cluster.begin()
        site.run()
        assert site.state(0).leader == 3
        assert site.site.zookeeper.names("/log_dir_event_notification") == []

    def test_replica_that_is_not_in_sync_is_shown_as_offline(self) -> None:
        site = ClusterControllerSite({0: (1, 2)})
        site.start(1, 2)
        site.leave(2)
        site.register(2)
        assert site.state(0).isr == (1,)
        site.peers.broken.add((2, 0))
        site.settle(site.others[2].store.report_log_dir_failure())
        site.run()
        shown = site.peers.last_states(1, UpdateMetadataRequest)[0]
        assert (shown.offline_replicas, shown.isr) == ([2], [1])

    def test_replica_works_again_when_the_broker_says_so(self) -> None:
        site = ClusterControllerSite({0: (2, 3)})
        site.peers.broken.add((2, 0))
        site.start(1, 2, 3)
        assert site.state(0).offline_replicas == (2,)
        site.peers.broken.clear()
        site.brokers.inform([key(0)])
        site.run()
        assert site.state(0).offline_replicas == ()
        assert site.peers.last_states(1, UpdateMetadataRequest)[0].offline_replicas == []
        # It can lead when it has joined the ISR again.
        site.leave(3)
        assert site.state(0).leader == NO_LEADER


def test_failed_replica_learns_that_it_has_left_the_isr_at_the_request_of_the_leader(
    site: ClusterControllerSite,
) -> None:
    """Brokers are not informed about changes that a leader has requested."""
    old = site.state(0)
    shrunk = spawn(site.changes.change([key(0)], lambda _, state: replace(state, isr=(1, 3))))
    site.settle(shrunk)
    site.peers.sent.clear()
    status = ReplicaStatus(
        broker_id=2,
        topic_partition=key(0),
        error_code=ErrorCode.KAFKA_STORAGE_ERROR,
        partition_epoch=old.partition_epoch,
    )
    site.brokers.replicas_responded([status])
    site.run()
    assert site.peers.last_states(2, LeaderAndIsrRequest)[0].isr == [1, 3]
    # Its response to this request reports no error.
    assert site.state(0).offline_replicas == ()


def test_term_that_ends_during_an_election_writes_nothing_more(
    site: ClusterControllerSite,
) -> None:
    site.term.end()
    site.leave(2)
    assert site.store.get(("partition", "t", 1))[0].leader == 2
    assert site.peers.last_states(3, LeaderAndIsrRequest)[1].leader == 2


def test_another_program_that_writes_a_state_causes_a_new_decision(
    site: ClusterControllerSite,
) -> None:
    known = site.known
    state, version = known.state.partitions[1], known.partition_versions[1]
    # The context is older than the store, as after a write whose outcome was unknown.
    site.leave(3)
    assert site.state(1).isr == (2, 1)
    assert site.state(1).partition_epoch > state.partition_epoch
    site.context.put_partitions("t", {1: (state, version)})
    site.leave(2)
    assert (site.state(1).leader, site.state(1).isr) == (1, (1,))


def test_deleted_topic_is_hidden_and_stopped_on_live_brokers(site: ClusterControllerSite) -> None:
    site.peers.sent.clear()
    topic = site.known.state
    site.context.deleting.add("t")
    site.settle(spawn(site.updates.delete(topic)))
    for broker_id in (1, 2, 3):
        shown = site.peers.last_states(broker_id, UpdateMetadataRequest)
        assert {state.leader for state in shown.values()} == {-2}
        [stop] = site.peers.told(broker_id, StopReplicaRequest)
        assert all(one.delete_partition for one in stop.topic_states[0].partition_states)


def test_states_are_those_of_the_moment_they_are_queued(site: ClusterControllerSite) -> None:
    site.peers.sent.clear()
    site.leave(2)
    site.brokers.inform([key(1)])
    assert site.peers.last_states(3, LeaderAndIsrRequest)[1].leader_epoch == 1


def test_thousands_of_partitions_move_in_transactions_of_at_most_64_changes() -> None:
    site = ClusterControllerSite({number: (2, 1) for number in range(1000)})
    site.start(1, 2)
    sizes: list[int] = []

    def count(client: MockZooKeeperClient, request: Request) -> Fault:
        if client is site.site.client and request.kind == "multi":
            sizes.append(len(request.operations))
        return Fault.NONE

    site.site.zookeeper.on_request = count
    site.leave(2)
    assert {state.leader for state in site.known.state.partitions} == {1}
    assert max(sizes) <= 65  # With the check of the controller epoch.
    assert len(sizes) <= 17


def test_requests_have_a_limited_number_of_partitions() -> None:
    site = ClusterControllerSite({number: (2, 1) for number in range(2500)})
    site.start(1, 2)
    for request_type in (LeaderAndIsrRequest, UpdateMetadataRequest):
        requests = [one for one in site.peers.told(2, request_type) if one.topic_states]
        sizes = [
            sum(len(topic.partition_states) for topic in request.topic_states)
            for request in requests
        ]
        assert sizes == [1000, 1000, 500]
        assert [request.type == FULL for request in requests] == [False, False, True]
        assert set(site.peers.last_states(2, request_type)) == set(range(2500))


def test_topic_that_cannot_be_written_does_not_keep_other_work_waiting(
    site: ClusterControllerSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unclean elections and reassignments follow each round of changes."""

    async def fail(*_: object) -> None:
        raise KafkaStorageError("the znode is damaged")

    handled: list[None] = []
    monkeypatch.setattr(site.brokers, "on_handled", lambda: handled.append(None))
    monkeypatch.setattr(site.changes, "change_all", fail)
    site.brokers.changed()
    site.run(100)
    assert len(handled) == 1


def test_restart_is_considered_once_in_each_partition_although_another_cannot_be_written() -> None:
    site = ClusterControllerSite({0: (2, 3), 1: (2,), 2: (2, 3)})
    site.start(1, 2, 3)
    path = "/brokers/topics/t/partitions/2/state"
    sound = site.site.zookeeper.data(path)
    site.site.zookeeper.write(SetData(path=path, data=b"{"))
    restart_unseen(site)
    site.run(100)
    before = site.state(0), site.state(1)
    assert [(one.leader, one.leader_epoch) for one in before] == [(3, 1), (2, 1)]
    site.run(10_000)
    assert (site.state(0), site.state(1)) == before
    site.site.zookeeper.write(SetData(path=path, data=sound))
    site.run(10_000)
    assert (site.state(2).leader, site.state(2).isr) == (3, (3,))
    assert (site.state(0), site.state(1)) == before


def test_failures_of_many_replicas_are_noted_once_in_their_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A topic's partitions are copied whenever one of them changes."""
    site = ClusterControllerSite({number: (1, 2) for number in range(100)})
    site.start(1, 2)
    puts: list[int] = []
    put_partitions = site.context.put_partitions

    def put(name: str, changed: Mapping[int, Any], version: int | None = None) -> None:
        puts.append(len(changed))
        put_partitions(name, changed, version)

    monkeypatch.setattr(site.context, "put_partitions", put)
    site.brokers.replicas_responded(
        [
            ReplicaStatus(
                broker_id=2,
                topic_partition=key(number),
                error_code=ErrorCode.KAFKA_STORAGE_ERROR,
                partition_epoch=0,
            )
            for number in range(100)
        ]
    )
    assert puts[0] == 100
    assert site.state(99).offline_replicas == (2,)
    site.run()
    assert site.state(99).isr == (1,)
