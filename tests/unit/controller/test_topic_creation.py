"""Validation of new topics."""

from __future__ import annotations

import dataclasses

import pytest

from plog.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicException,
    KafkaError,
    PolicyViolation,
    TopicAlreadyExists,
)
from plogd.controller.topic_creation import (
    MAX_PARTITIONS,
    Defaults,
    NewTopic,
    collision_key,
    plan_topic,
    validate_name,
)

DEFAULTS = Defaults(num_partitions=4, replication_factor=1, brokers=(1, 2))
EXISTING = {collision_key(name): name for name in ("old", "a.b")}


@pytest.mark.parametrize("name", ["a", "A-Z_0.9", "x" * 249, "..."])
def test_valid_name_is_accepted(name: str) -> None:
    validate_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "ä", "a/b", "a\n", "a:b"])
def test_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidTopicException, match="Topic name is invalid"):
        validate_name(name)


def test_unset_fields_use_the_defaults() -> None:
    plan = plan_topic(NewTopic(name="new"), {}, DEFAULTS)
    assert (len(plan.assignments), plan.replication_factor, plan.config) == (4, 1, {})


def test_set_fields_are_used() -> None:
    new = NewTopic(name="new", num_partitions=2, replication_factor=2, config={"retention.ms": "5"})
    plan = plan_topic(new, EXISTING, DEFAULTS)
    assert plan.assignments == {0: (1, 2), 1: (2, 1)}
    assert plan.config == {"retention.ms": "5"}


def test_replicas_may_be_assigned_manually() -> None:
    plan = plan_topic(NewTopic(name="new", assignments=[(0, [2])]), {}, DEFAULTS)
    assert plan.assignments == {0: (2,)}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"name": "a/b"}, InvalidTopicException),
        ({"name": "__cluster_metadata"}, InvalidRequest),
        ({"name": "old"}, TopicAlreadyExists),
        ({"name": "a_b"}, InvalidTopicException),
        ({"num_partitions": 0}, InvalidPartitions),
        ({"num_partitions": -2}, InvalidPartitions),
        ({"replication_factor": 0}, InvalidReplicationFactor),
        ({"replication_factor": -2}, InvalidReplicationFactor),
        ({"replication_factor": 3}, InvalidReplicationFactor),
        ({"num_partitions": 2**31 - 1}, PolicyViolation),
        ({"config": {"retention.ms": None}}, InvalidConfig),
        ({"config": {"retention.ms": "soon"}}, InvalidConfig),
        ({"config": {"no.such.thing": "1"}}, InvalidConfig),
        ({"assignments": [(0, [1])], "num_partitions": 1}, InvalidRequest),
        ({"assignments": [(0, [1])], "replication_factor": 1}, InvalidRequest),
        ({"assignments": [(0, [9])]}, InvalidReplicaAssignment),
        (
            {"assignments": [(n, [1]) for n in range(MAX_PARTITIONS + 1)]},
            PolicyViolation,
        ),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else value.__name__,
)
def test_invalid_topic_is_refused(changes: dict[str, object], error: type[KafkaError]) -> None:
    new = dataclasses.replace(NewTopic(name="new"), **changes)  # type: ignore[arg-type]
    with pytest.raises(error):
        plan_topic(new, EXISTING, DEFAULTS)
