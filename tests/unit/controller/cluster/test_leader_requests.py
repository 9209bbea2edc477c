"""AlterPartition and ControlledShutdown as the controller answers them."""

from __future__ import annotations

import pytest

from plog.errors import BrokerIdNotRegistered, ErrorCode, NotController, StaleBrokerEpoch
from plog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    AlterPartitionResponse,
    BrokerState,
)
from plog.wire.messages.leader_and_isr import LeaderAndIsrRequest
from plog.wire.messages.update_metadata import UpdateMetadataRequest
from plogd.ports import spawn
from plogd.testing.mock_zookeeper import Fault, MockZooKeeperClient, Request
from tests.helpers.cluster_controller_site import TOPIC_ID, ClusterControllerSite, key


class _Site(ClusterControllerSite):
    """Three brokers; broker 2 leads partition 0, and broker 3 partition 1."""

    def __init__(self, count: int = 2) -> None:
        assignments = {0: (2, 3, 1), 1: (3, 1, 2)}
        super().__init__(assignments | {number: (2, 3) for number in range(2, count)})
        self.start(1, 2, 3)

    def alter(
        self,
        *partitions: AlterPartitionRequestPartition,
        broker_id: int = 2,
        broker_epoch: int | None = None,
        topic_id: bytes = TOPIC_ID,
    ) -> AlterPartitionResponse:
        """Send a request, and return its response."""
        request = AlterPartitionRequest(
            broker_id=broker_id,
            broker_epoch=self.epoch(broker_id) if broker_epoch is None else broker_epoch,
            topics=[AlterPartitionRequestTopic(topic_id=topic_id, partitions=list(partitions))],
        )
        response = self.settle(spawn(self.requests.alter_partitions(request)))
        assert isinstance(response, AlterPartitionResponse)
        return response

    def epoch(self, broker_id: int) -> int:
        """Return the epoch of a broker."""
        return self.brokers.epochs[broker_id]

    def isr(self, *broker_ids: int, number: int = 0) -> AlterPartitionRequestPartition:
        """Return a request for an ISR, based on the present state."""
        state = self.known.state.partitions[number]
        return AlterPartitionRequestPartition(
            partition_index=number,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=one, broker_epoch=self.epoch(one)) for one in broker_ids
            ],
        )

    def shut_down(self, broker_id: int) -> list[object]:
        """Send a request for a controlled shutdown; return the remaining partitions."""
        later = spawn(self.requests.shut_down(broker_id, self.epoch(broker_id)))
        remaining = self.settle(later)
        self.run()
        assert isinstance(remaining, list)
        return remaining


@pytest.fixture
def site() -> _Site:
    return _Site()


# -- AlterPartition ---------------------------------------------------------------------------


def test_leader_shrinks_and_expands_the_isr(site: _Site) -> None:
    [topic] = site.alter(site.isr(2, 3)).topics
    [result] = topic.partitions
    assert (result.error_code, result.isr, result.leader_id) == (0, [2, 3], 2)
    assert result.partition_epoch == site.state().partition_epoch == 1
    assert site.state().isr == (2, 3)
    for broker_id in (1, 2, 3):
        assert site.peers.last_states(broker_id, UpdateMetadataRequest)[0].isr == [2, 3]
    site.alter(site.isr(2, 3, 1))
    assert site.state().isr == (2, 3, 1)
    # The leader epoch stays, and no broker gets LeaderAndIsr.
    assert site.state().leader_epoch == 0
    assert site.peers.last_states(1, LeaderAndIsrRequest)[0].partition_epoch == 0


def test_each_partition_has_its_own_result(site: _Site) -> None:
    outdated = site.isr(2, 3)
    outdated.leader_epoch = -1
    missing = site.isr(2)
    missing.partition_index = 9
    [topic] = site.alter(outdated, site.isr(3, 1, number=1), missing).topics
    assert [one.error_code for one in topic.partitions] == [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_REQUEST,  # Broker 2 does not lead partition 1.
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    [topic] = site.alter(site.isr(2), topic_id=b"unknown topic id").topics
    assert [one.error_code for one in topic.partitions] == [ErrorCode.UNKNOWN_TOPIC_ID]


def test_repeated_request_gets_the_same_state(site: _Site) -> None:
    request = site.isr(2, 3)
    first = site.alter(request)
    assert site.alter(request) == first
    assert site.state().partition_epoch == 1


def test_request_of_an_earlier_run_is_rejected(site: _Site) -> None:
    old_epoch, request = site.epoch(2), site.isr(2, 3)
    site.leave(2)
    with pytest.raises(BrokerIdNotRegistered):
        site.alter(request, broker_epoch=old_epoch)
    site.register(2)
    with pytest.raises(StaleBrokerEpoch):
        site.alter(request, broker_epoch=old_epoch)


def test_follower_that_has_restarted_since_its_fetch_does_not_join(site: _Site) -> None:
    site.alter(site.isr(2, 1))
    request = site.isr(2, 1, 3)
    site.leave(3)
    site.register(3)
    [topic] = site.alter(request).topics
    assert topic.partitions[0].error_code == ErrorCode.INELIGIBLE_REPLICA
    assert site.state().isr == (2, 1)


def test_election_between_request_and_write_wins(site: _Site) -> None:
    request = site.isr(2, 3)
    # The controller's own context is older than the store, as after a lost response.
    state, version = site.known.state.partitions[0], site.known.partition_versions[0]
    site.alter(site.isr(2, 1))
    site.context.put_partitions("t", {0: (state, version)})
    [topic] = site.alter(request).topics
    assert topic.partitions[0].error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert site.state().isr == (2, 1)


def test_deposed_controller_answers_not_controller(site: _Site) -> None:
    request = site.isr(2, 3)
    site.term.end()
    with pytest.raises(NotController):
        site.alter(request)


def test_partitions_of_a_request_share_transactions() -> None:
    site = _Site(200)
    multis: list[Request] = []

    def count(client: MockZooKeeperClient, request: Request) -> Fault:
        if request.kind == "multi":
            multis.append(request)
        return Fault.NONE

    site.site.zookeeper.on_request = count
    [topic] = site.alter(*(site.isr(2, number=number) for number in range(2, 200))).topics
    assert {one.error_code for one in topic.partitions} == {0}
    assert len(multis) == 4


# -- controlled shutdown ----------------------------------------------------------------------


def test_broker_that_shuts_down_hands_its_partitions_over(site: _Site) -> None:
    assert site.shut_down(2) == []
    assert (site.state(0).leader, site.state(0).isr) == (3, (3, 1))
    assert (site.state(1).leader, site.state(1).isr) == (3, (3, 1))
    assert site.peers.last_states(2, LeaderAndIsrRequest)[0].leader == 3
    # It must not join again before it is gone.
    [topic] = site.alter(site.isr(3, 1, 2), broker_id=3).topics
    assert topic.partitions[0].error_code == ErrorCode.INELIGIBLE_REPLICA
    site.leave(2)
    site.register(2)
    [topic] = site.alter(site.isr(3, 1, 2), broker_id=3).topics
    assert topic.partitions[0].error_code == 0


def test_last_broker_keeps_its_partitions(site: _Site) -> None:
    site.shut_down(2)
    site.shut_down(3)
    assert site.shut_down(1) == [key(0), key(1)]
    assert site.state(0).leader == 1


def test_shutdown_of_an_earlier_run_is_rejected(site: _Site) -> None:
    with pytest.raises(StaleBrokerEpoch):
        site.settle(spawn(site.requests.shut_down(2, site.epoch(2) - 1)))
    with pytest.raises(BrokerIdNotRegistered):
        site.settle(spawn(site.requests.shut_down(7, -1)))
    assert site.brokers.shutting_down == set()
