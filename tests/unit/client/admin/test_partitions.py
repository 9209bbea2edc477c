"""PartitionAdmin: conversion of requests and responses, and operations on a broker."""

from __future__ import annotations

import pytest

from plog.client.admin.partitions import (
    alter_partition_reassignments_request,
    elect_leaders_request,
    listed_reassignments,
)
from plog.client.admin.values import Reassignment
from plog.enums import ElectionType
from plog.errors import (
    ElectionNotNeeded,
    InvalidReplicaAssignment,
    KafkaError,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)
from plog.types import TopicPartition
from plog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from tests.helpers.sim.sim_broker import create_topic
from tests.unit.client.admin.conftest import Site

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


# -- pure -------------------------------------------------------------------------------------


def test_leaders_of_given_or_all_partitions_are_elected() -> None:
    some = elect_leaders_request(ElectionType.UNCLEAN, [A1, A0, B0], timeout_ms=5)
    assert some.topic_partitions is not None
    assert [(x.topic, x.partitions) for x in some.topic_partitions] == [("a", [1, 0]), ("b", [0])]
    assert some.election_type == 1
    every = elect_leaders_request(ElectionType.PREFERRED, None, timeout_ms=5)
    assert every.topic_partitions is None


def test_reassignments_are_started_or_cancelled() -> None:
    request = alter_partition_reassignments_request(
        {A0: (1, 2), A1: None}, allow_replication_factor_change=False, timeout_ms=5
    )
    [topic] = request.topics
    assert [(p.partition_index, p.replicas) for p in topic.partitions] == [(0, [1, 2]), (1, None)]
    assert not request.allow_replication_factor_change


def test_reassignment_lists_added_and_removed_replicas() -> None:
    moving = OngoingPartitionReassignment(
        partition_index=1, replicas=[1, 2, 3], adding_replicas=[3], removing_replicas=[1]
    )
    response = ListPartitionReassignmentsResponse(
        topics=[OngoingTopicReassignment(name="a", partitions=[moving])]
    )
    assert listed_reassignments(response) == {
        A1: Reassignment(replicas=(1, 2, 3), adding_replicas=(3,), removing_replicas=(1,))
    }


# -- at a broker ------------------------------------------------------------------------------


def test_election_is_not_needed_on_the_only_broker(site: Site) -> None:
    create_topic(site.sim.broker, "a", 2)
    elected = site.run(site.admin.elect_leaders(ElectionType.PREFERRED, [A0, B0]))
    assert {p: type(error) for p, error in elected.errors.items()} == {
        A0: ElectionNotNeeded,
        B0: UnknownTopicOrPartition,
    }
    assert site.run(site.admin.elect_leaders(ElectionType.PREFERRED)) == {}


def test_partition_on_the_only_broker_cannot_move(site: Site) -> None:
    create_topic(site.sim.broker, "a", 2)
    node_id = site.sim.broker.config.node_id
    altered = site.run(
        site.admin.alter_partition_reassignments({A0: (node_id,), A1: (node_id, 77), B0: None})
    )
    assert altered[A0] is None
    assert isinstance(altered[A1], InvalidReplicaAssignment)
    assert isinstance(altered[B0], UnknownTopicOrPartition)
    with pytest.raises(NoReassignmentInProgress):
        site.run(site.admin.alter_partition_reassignments({A0: None})).get(A0)
    assert site.run(site.admin.list_partition_reassignments()) == {}
    assert site.run(site.admin.list_partition_reassignments([A0])) == {}


def test_unknown_election_type_is_refused(site: Site) -> None:
    with pytest.raises(KafkaError):
        site.run(site.admin.elect_leaders(ElectionType.UNKNOWN))
