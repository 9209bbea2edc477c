"""AlterPartitionManager: requests to the controller, their repetition, and their answers."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import (
    ErrorCode,
    IneligibleReplica,
    InvalidUpdateVersion,
    KafkaError,
    NotController,
)
from plog.types import TopicPartition
from plog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    AlterPartitionResponseTopic,
)
from plogd.metadata.cache import PartitionState
from plogd.peers import PeerUnavailable
from plogd.ports import Later
from plogd.replica.cluster.alter_partition_manager import (
    MAX_CHANGES,
    RETRY_MAX_MS,
    RETRY_MS,
    AlterPartitionManager,
)
from plogd.replica.remote_replicas import RemoteReplicas
from tests.helpers.sim.sim_ports import SimPorts

TOPIC_ID = b"i" * 16


class FakePartition:
    """A partition that broker 1 leads in leader epoch 3 and partition epoch 5."""

    def __init__(self, number: int = 0) -> None:
        self.topic_partition = TopicPartition("t", number)
        self.topic_id = TOPIC_ID
        self.broker_id = self.leader = 1
        self.leader_epoch = 3
        self.partition_epoch = 5
        self.replicas = (1, 2, 3)
        self.adding_replicas, self.removing_replicas = (3,), (2,)
        self.remote: RemoteReplicas | None = RemoteReplicas(
            self.topic_partition,
            leader=1,
            replicas=self.replicas,
            isr=(1,),
            epoch_start_offset=0,
            is_eligible=lambda *_: True,
            is_leased=lambda: True,
            max_lag_ms=lambda: 1.0,
            now_ms=0.0,
        )
        self.remote.followers[2].broker_epoch = 22


class Site:
    """A manager whose requests the test answers."""

    def __init__(self, version: int = 3) -> None:
        self.ports = SimPorts()
        self.controller = 7
        self.version = version
        self.asked: list[tuple[int, Any, Later[Any]]] = []
        self.bugs: list[Exception] = []
        self.outcomes: list[PartitionState | Exception] = []
        self.manager = AlterPartitionManager(
            self,
            self.ports.bundle(),
            broker_id=1,
            broker_epoch=lambda: 11,
            controller_id=lambda: self.controller,
            on_bug=lambda where, error: self.bugs.append(error),
        )

    def ask(self, broker_id: int, request: Any, lane: str, **_: Any) -> Later[Any]:
        later: Later[Any] = Later()
        self.asked.append((broker_id, request.build(self.version), later))
        return later

    def close(self) -> None: ...

    def propose(self, partition: FakePartition, *isr: int) -> None:
        """Propose an ISR in a turn that lasts until `settle`."""
        self.manager.propose(partition, isr).then(self.outcomes.append, self.outcomes.append)

    def settle(self) -> None:
        self.ports.settle()

    @property
    def request(self) -> AlterPartitionRequest:
        request: AlterPartitionRequest = self.asked[-1][1]
        return request

    @property
    def proposed(self) -> list[tuple[int, list[int]]]:
        """The partitions in the last request, with the new ISR."""
        return [
            (one.partition_index, [each.broker_id for each in one.new_isr_with_epochs])
            for topic in self.request.topics
            for one in topic.partitions
        ]

    def respond(self, error_code: int = 0, **partition: Any) -> None:
        """Answer the last request; `partition` are fields of every partition's answer."""
        fields: dict[str, Any] = {"leader_id": 1, "leader_epoch": 3, "partition_epoch": 6}
        self.asked[-1][2].succeed(
            AlterPartitionResponse(
                error_code=error_code,
                topics=[
                    AlterPartitionResponseTopic(
                        topic_id=topic.topic_id,
                        partitions=[
                            AlterPartitionResponsePartition(
                                partition_index=one.partition_index, **(fields | partition)
                            )
                            for one in topic.partitions
                        ],
                    )
                    for topic in ([] if error_code else self.request.topics)
                ],
            )
        )
        self.settle()

    def respond_to_partition(self, error_code: int) -> None:
        """Answer the last request with an error of partition 0."""
        refused = AlterPartitionResponsePartition(partition_index=0, error_code=error_code)
        topic = AlterPartitionResponseTopic(topic_id=TOPIC_ID, partitions=[refused])
        self.asked[-1][2].succeed(AlterPartitionResponse(topics=[topic]))
        self.settle()

    @property
    def results(self) -> list[type]:
        return [type(one) for one in self.outcomes]


@pytest.fixture
def site() -> Site:
    return Site()


def test_request_has_all_epochs(site: Site) -> None:
    site.propose(FakePartition(4), 1, 2, 3)
    site.settle()
    [(broker_id, request, _)] = site.asked
    assert (broker_id, request.broker_id, request.broker_epoch) == (7, 1, 11)
    [topic] = request.topics
    [partition] = topic.partitions
    assert (topic.topic_id, partition.partition_index) == (TOPIC_ID, 4)
    assert (partition.leader_epoch, partition.partition_epoch) == (3, 5)
    epochs = [(one.broker_id, one.broker_epoch) for one in partition.new_isr_with_epochs]
    assert epochs == [(1, 11), (2, 22), (3, -1)]
    assert partition.new_isr == []


def test_repeated_request_has_the_epochs_of_the_proposal(site: Site) -> None:
    partition = FakePartition()
    site.propose(partition, 1, 2)
    site.settle()
    # The member restarts, perhaps with an empty disk, and fetches before the request is repeated.
    assert partition.remote is not None
    partition.remote.followers[2].broker_epoch = 33
    site.asked[-1][2].fail(PeerUnavailable("gone"))
    site.ports.advance(RETRY_MS)
    assert len(site.asked) == 2
    [topic] = site.request.topics
    [requested] = topic.partitions
    epochs = [(one.broker_id, one.broker_epoch) for one in requested.new_isr_with_epochs]
    assert epochs == [(1, 11), (2, 22)]


def test_older_version_has_no_broker_epochs() -> None:
    site = Site(version=2)
    site.propose(FakePartition(), 1, 2)
    site.settle()
    [partition] = site.request.topics[0].partitions
    assert (partition.new_isr, partition.new_isr_with_epochs) == ([1, 2], [])


def test_answer_is_the_new_state(site: Site) -> None:
    site.propose(FakePartition(), 1, 2)
    site.settle()
    site.respond(isr=[1, 2])
    assert site.outcomes == [
        PartitionState(
            partition=0,
            leader=1,
            leader_epoch=3,
            replicas=(1, 2, 3),
            isr=(1, 2),
            partition_epoch=6,
            adding_replicas=(3,),
            removing_replicas=(2,),
        )
    ]


def test_changes_share_a_request_and_wait_for_the_one_in_flight(site: Site) -> None:
    for number in range(3):
        site.propose(FakePartition(number), 1)
    site.settle()
    assert [number for number, _ in site.proposed] == [0, 1, 2]
    for number in range(3, 5):
        site.propose(FakePartition(number), 1)
    site.settle()
    assert len(site.asked) == 1
    site.respond(isr=[1])
    assert len(site.asked) == 2
    assert [number for number, _ in site.proposed] == [3, 4]
    site.respond(isr=[1])
    assert (len(site.outcomes), len(site.asked)) == (5, 2)


def test_request_is_bounded(site: Site) -> None:
    for number in range(MAX_CHANGES + 1):
        site.propose(FakePartition(number), 1)
    site.settle()
    assert len(site.proposed) == MAX_CHANGES
    site.respond(isr=[1])
    assert len(site.proposed) == 1


@pytest.mark.parametrize(
    "error", [PeerUnavailable("lost"), NotController(), KafkaError("late"), OSError("gone")]
)
def test_change_is_sent_again_after_a_failed_request(site: Site, error: Exception) -> None:
    site.propose(FakePartition(), 1, 2)
    site.settle()
    site.asked[-1][2].fail(error)
    site.controller = 8
    site.ports.advance(RETRY_MS - 1)
    assert len(site.asked) == 1
    site.ports.advance(1)
    assert [broker_id for broker_id, _, _ in site.asked] == [7, 8]
    assert site.proposed == [(0, [1, 2])]
    site.respond(isr=[1, 2])
    assert site.results == [PartitionState]


@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH, 9999])
def test_change_is_sent_again_after_an_error_of_the_request(site: Site, code: int) -> None:
    site.propose(FakePartition(), 1)
    site.settle()
    site.respond(error_code=code)
    site.ports.advance(RETRY_MS)
    assert (len(site.asked), site.outcomes) == (2, [])
    reports = [line for line in site.ports.reports if "at controller 7" in line]
    site.respond(error_code=code)
    assert len(reports) == len([line for line in site.ports.reports if "controller 7" in line]) == 1


def test_backoff_grows_and_starts_over(site: Site) -> None:
    site.controller = -1
    site.propose(FakePartition(), 1)
    site.ports.advance(10_000)
    assert site.asked == []
    site.controller = 7
    site.ports.advance(RETRY_MAX_MS)
    assert len(site.asked) == 1
    site.respond(isr=[1])
    site.propose(FakePartition(), 1, 2)
    site.settle()
    site.asked[-1][2].fail(PeerUnavailable("lost"))
    site.ports.advance(RETRY_MS)
    assert len(site.asked) == 3


@pytest.mark.parametrize("field", ["leader_epoch", "partition_epoch", "leader"])
def test_change_is_dropped_when_the_partition_has_another_state(site: Site, field: str) -> None:
    partition = FakePartition()
    site.propose(partition, 1)
    site.settle()
    setattr(partition, field, 9)
    site.asked[-1][2].fail(PeerUnavailable("lost"))
    site.ports.advance(10_000)
    assert (len(site.asked), site.results) == (1, [InvalidUpdateVersion])


def test_late_answer_to_an_outdated_change_is_not_its_result(site: Site) -> None:
    partition = FakePartition()
    site.propose(partition, 1)
    site.settle()
    partition.leader_epoch = 4
    site.respond(isr=[1])
    assert site.results == [InvalidUpdateVersion]


def test_newer_change_replaces_one_that_waits_or_is_repeated(site: Site) -> None:
    partition = FakePartition()
    site.propose(partition, 1)
    site.settle()
    partition.partition_epoch = 6
    site.propose(partition, 1, 2)
    partition.partition_epoch = 7
    site.propose(partition, 1, 3)
    assert site.results == [InvalidUpdateVersion]
    site.asked[-1][2].fail(PeerUnavailable("lost"))
    assert site.results == [InvalidUpdateVersion] * 2
    site.ports.advance(RETRY_MS)
    assert site.proposed == [(0, [1, 3])]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INELIGIBLE_REPLICA,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_rejected_change_is_not_repeated(site: Site, code: ErrorCode) -> None:
    site.propose(FakePartition(), 1)
    site.settle()
    site.respond_to_partition(code)
    site.ports.advance(10_000)
    assert len(site.asked) == 1
    [error] = site.outcomes
    assert isinstance(error, KafkaError)
    assert error.code == code


@pytest.mark.parametrize("code", [ErrorCode.OPERATION_NOT_ATTEMPTED, -1, 9999])
def test_temporary_error_of_a_partition_is_repeated(site: Site, code: int) -> None:
    site.propose(FakePartition(0), 1)
    site.settle()
    site.respond_to_partition(code)
    site.ports.advance(RETRY_MS)
    assert (len(site.asked), site.outcomes) == (2, [])


def test_partition_that_is_missing_in_the_response_is_repeated(site: Site) -> None:
    site.propose(FakePartition(0), 1)
    site.settle()
    site.asked[-1][2].succeed(AlterPartitionResponse())
    site.ports.advance(RETRY_MS)
    assert (len(site.asked), site.outcomes) == (2, [])


def test_unchanged_state_withdraws_the_proposal(site: Site) -> None:
    site.propose(FakePartition(), 1, 2)
    site.settle()
    site.respond(isr=[1], partition_epoch=5)
    assert site.results == [IneligibleReplica]


def test_nothing_is_sent_after_close(site: Site) -> None:
    site.propose(FakePartition(0), 1)
    site.settle()
    site.propose(FakePartition(1), 1)
    site.manager.close()
    site.asked[-1][2].fail(PeerUnavailable("this broker is stopping"))
    site.propose(FakePartition(2), 1)
    site.ports.advance(10_000)
    assert (len(site.asked), site.outcomes) == (1, [])
