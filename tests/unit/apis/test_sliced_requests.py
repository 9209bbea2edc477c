"""The limit of changes in a request, and operations that start a few at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from plog.errors import ErrorCode, KafkaError, UnknownTopicOrPartition
from plog.wire.messages.acls import AclCreation, CreateAclsRequest, DeleteAclsFilter
from plog.wire.messages.acls import DeleteAclsRequest as DeleteAcls
from plog.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from plog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from plog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from plog.wire.messages.delete_topics import DeleteTopicsRequest
from plog.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from plog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from plog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from plog.wire.messages.find_coordinator import FindCoordinatorRequest
from plog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from plog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from plog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from plog.wire.messages.user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from plogd.apis.sliced_requests import MAX_CHANGES, ask_in_slices
from plogd.ports import Later, failed, spawn
from tests.helpers.sim.sim_broker import SimBroker, create_topic
from tests.helpers.sim.sim_ports import outcome

_NAMES = [f"t{number}" for number in range(MAX_CHANGES + 1)]
_TOO_MUCH: dict[str, tuple[Any, int, str]] = {
    "CreateTopics": (
        CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=0) for name in _NAMES],
            validate_only=True,
        ),
        7,
        "topics",
    ),
    "DeleteTopics": (DeleteTopicsRequest(topic_names=_NAMES), 5, "responses"),
    "CreatePartitions": (
        CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=2, assignments=None) for name in _NAMES]
        ),
        3,
        "results",
    ),
    "AlterConfigs": (
        AlterConfigsRequest(
            resources=[AlterConfigsResource(resource_type=2, resource_name=x) for x in _NAMES]
        ),
        2,
        "responses",
    ),
    "CreateAcls": (
        CreateAclsRequest(creations=[AclCreation(resource_name=name) for name in _NAMES]),
        3,
        "results",
    ),
    "DeleteAcls": (DeleteAcls(filters=[DeleteAclsFilter() for _ in _NAMES]), 3, "filter_results"),
    "AlterUserScramCredentials": (
        AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name=name, mechanism=1) for name in _NAMES]
        ),
        0,
        "results",
    ),
}


@pytest.mark.parametrize("api", _TOO_MUCH)
def test_request_with_too_many_changes_changes_nothing(api: str) -> None:
    request, version, results = _TOO_MUCH[api]
    broker = SimBroker().start()
    actual = {one.error_code for one in getattr(broker.ask(request, version), results)}
    assert actual == {ErrorCode.POLICY_VIOLATION}
    assert list(broker.broker.cache.topics()) == []


def test_operations_start_a_few_at_a_time_and_answer_in_order() -> None:
    broker = SimBroker().start()
    laters: list[Later[int]] = [Later() for _ in range(5)]
    asked: list[int] = []

    def ask(number: int) -> Later[int]:
        asked.append(number)
        return laters[number]

    answers = spawn(ask_in_slices(range(5), ask, broker.broker, at_once=2))
    laters[1].succeed(11)
    broker.settle()
    assert asked == [0, 1]
    laters[0].succeed(10)
    assert asked == [0, 1]  # Other requests run before the next operations start.
    broker.settle()
    assert asked == [0, 1, 2, 3]
    for number in (2, 3, 4):
        laters[number].succeed(10 + number)
    broker.settle()
    assert outcome(answers) == [10, 11, 12, 13, 14]


def test_raised_or_delivered_error_is_a_result_without_traceback() -> None:
    broker = SimBroker().start()

    def ask(number: int) -> Later[int]:
        if number:
            raise UnknownTopicOrPartition("raised")
        return failed(UnknownTopicOrPartition("delivered"))

    answers = spawn(ask_in_slices(range(2), ask, broker.broker))
    errors = outcome(answers)
    assert [str(error) for error in errors] == ["delivered", "raised"]
    assert all(isinstance(one, KafkaError) and one.__traceback__ is None for one in errors)


# -- elements that are named repeatedly ---------------------------------------------------------

_REPEATED = 500


def _named_repeatedly() -> dict[str, tuple[Any, int, Callable[[Any], list[object]]]]:
    """A request that names one element repeatedly, and the elements of its response."""
    partitions = [0] * _REPEATED
    return {
        "DescribeProducers": (
            DescribeProducersRequest(
                topics=[TopicRequest(name="t", partition_indexes=partitions)] * 3
            ),
            0,
            lambda answer: [x.partition_index for t in answer.topics for x in t.partitions],
        ),
        "ElectLeaders": (
            ElectLeadersRequest(
                topic_partitions=[TopicPartitions(topic="t", partitions=partitions)]
            ),
            2,
            lambda answer: [
                x.partition_id for t in answer.replica_election_results for x in t.partition_result
            ],
        ),
        "OffsetForLeaderEpoch": (
            OffsetForLeaderEpochRequest(
                topics=[
                    OffsetForLeaderTopic(
                        topic="t", partitions=[OffsetForLeaderPartition()] * _REPEATED
                    )
                ]
            ),
            4,
            lambda answer: [x.partition for t in answer.topics for x in t.partitions],
        ),
        "DescribeLogDirs": (
            DescribeLogDirsRequest(
                topics=[DescribableLogDirTopic(topic="t", partitions=partitions)] * 3
            ),
            4,
            lambda answer: [
                x.partition_index for d in answer.results for t in d.topics for x in t.partitions
            ],
        ),
        "FindCoordinator": (
            FindCoordinatorRequest(coordinator_keys=["g"] * _REPEATED),
            6,
            lambda answer: [one.key for one in answer.coordinators],
        ),
        "LeaveGroup": (
            LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")] * _REPEATED),
            5,
            lambda answer: [one.member_id for one in answer.members],
        ),
        "Metadata": (
            MetadataRequest(topics=[MetadataRequestTopic(name="t")] * _REPEATED),
            9,
            lambda answer: [one.name for one in answer.topics],
        ),
    }


@pytest.mark.parametrize("api", _named_repeatedly())
def test_element_named_repeatedly_is_answered_once(api: str) -> None:
    broker = SimBroker().start()
    create_topic(broker, "t")
    request, version, named = _named_repeatedly()[api]
    assert len(named(broker.ask(request, version))) == 1


def test_operations_are_cancelled_when_the_client_disconnects() -> None:
    broker = SimBroker().start()
    laters: list[Later[int]] = [Later() for _ in range(5)]
    answers = spawn(ask_in_slices(laters, lambda later: later, broker.broker, at_once=3))
    answers.cancel()
    assert [later.done for later in laters] == [True, True, True, False, False]
