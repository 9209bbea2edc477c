"""Validate new topics: name, partitions and settings.

This module does not perform I/O: `plan_topic` converts a request into a `TopicPlan`, or raises the
error for the client. controller.py writes the topic; replica_placement.py places its replicas.
Source: Kafka 4.0 Topic, ReplicationControlManager.createTopics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from plog.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicException,
    PolicyViolation,
    TopicAlreadyExists,
)
from plogd.controller.replica_placement import (
    Assignments,
    assign_replicas,
    check_assignments,
)
from plogd.topic_config import validate_overrides

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
# Kafka's limit: a log directory's name consists of the topic name, a hyphen and the partition
# number, and can have at most 255 bytes.
MAX_NAME_LENGTH: Final = 249
MAX_PARTITIONS: Final = 9_000
"""Maximum number of partitions in a topic: all its records must fit in one atomic write."""

MAX_PARTITIONS_PER_REQUEST: Final = 10_000
"""Maximum total number of partitions that one request can create, as in Kafka."""

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A request to create a topic; -1 means the broker's default."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    """(partition, brokers) pairs, if the request places the replicas."""
    config: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """A valid topic that is ready to be written to the metadata store."""

    name: str
    assignments: Assignments
    config: Mapping[str, str]

    @property
    def replication_factor(self) -> int:
        """Number of replicas per partition."""
        return len(self.assignments[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """The broker's defaults for new topics, and the available brokers.

    Attributes:
        brokers: the ids of the live brokers, in ascending order.
        racks: their racks, without brokers that have none.
        start: the index of the broker that leads partition 0 of a new topic.
        shift: the number of brokers between that leader and the second replica.
    """

    num_partitions: int
    replication_factor: int
    brokers: Sequence[int]
    racks: Mapping[int, str] = field(default_factory=dict)
    start: int = 0
    shift: int = 0
    delete_topic_enable: bool = True
    """Whether other programs may mark topics for deletion."""


def validate_name(name: str) -> None:
    """Raise InvalidTopicException unless the name is valid for a topic.

    >>> validate_name("page-views.2024_01")
    """
    problem = _name_problem(name)
    if problem is not None:
        raise InvalidTopicException(f"Topic name is invalid: {problem}")


def _name_problem(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"it is longer than {MAX_NAME_LENGTH} characters"
    if not _LEGAL_NAME.fullmatch(name):
        return "it contains characters other than ASCII letters, digits, '.', '_' and '-'"
    return None


def collision_key(name: str) -> str:
    """Return a key that is equal for names whose metrics would collide.

    >>> collision_key("a.b") == collision_key("a_b")
    True
    """
    # Kafka replaces the periods in a topic name with underscores in the names of metrics.
    return name.replace(".", "_")


def plan_topic(new: NewTopic, existing: Mapping[str, str], defaults: Defaults) -> TopicPlan:
    """Validate `new` and return its plan; `existing` contains topic names by `collision_key`.

    Raises the KafkaError for the client.
    """
    validate_name(new.name)
    # Partition 0 of such a topic would have the directory of the metadata log.
    if new.name == CLUSTER_METADATA_TOPIC:
        raise InvalidRequest(f"Creation of internal topic {new.name} is prohibited.")
    other = existing.get(collision_key(new.name))
    if other == new.name:
        raise TopicAlreadyExists(f"Topic '{new.name}' already exists.")
    if other is not None:
        raise InvalidTopicException(f"Topic '{new.name}' collides with existing topic: {other}")
    config = _checked_config(new.config)
    if new.assignments:
        _check_counts_are_unset(new)
        assignments = check_assignments(new.assignments, defaults.brokers)
    else:
        assignments = _assign(new, defaults)
    if len(assignments) > MAX_PARTITIONS:
        raise _too_many(new)
    return TopicPlan(name=new.name, assignments=assignments, config=config)


def check_total(requested: Iterable[NewTopic], defaults: Defaults) -> None:
    """Raise PolicyViolation if the topics in one request have too many partitions in total."""
    total = 0
    for new in requested:
        if new.assignments:
            total += len(new.assignments)
        else:
            count = new.num_partitions
            # `plan_topic` reports invalid counts, each with its topic.
            total += defaults.num_partitions if count == -1 else max(0, count)
    if total > MAX_PARTITIONS_PER_REQUEST:
        raise PolicyViolation(
            f"the request creates {total} partitions, but at most {MAX_PARTITIONS_PER_REQUEST} are"
            " allowed; split the request"
        )


def _too_many(new: NewTopic) -> PolicyViolation:
    return PolicyViolation(
        f"cannot create topic '{new.name}': a topic can have at most {MAX_PARTITIONS} partitions"
    )


def _checked_config(config: Mapping[str, str | None]) -> Mapping[str, str]:
    nulls = sorted(name for name, value in config.items() if value is None)
    if nulls:
        # The message is Kafka's (ControllerConfigurationValidator).
        raise InvalidConfig(f"Null value not supported for topic configs: {','.join(nulls)}")
    validate_overrides(config)
    return {name: value for name, value in config.items() if value is not None}


def _check_counts_are_unset(new: NewTopic) -> None:
    # The message is Kafka's (ReplicationControlManager.createTopic).
    for field_name, count in (
        ("replication factor", new.replication_factor),
        ("numPartitions", new.num_partitions),
    ):
        if count != -1:
            raise InvalidRequest(
                f"A manual partition assignment was specified, but {field_name} was not set to -1."
            )


def _assign(new: NewTopic, defaults: Defaults) -> Assignments:
    if new.replication_factor < -1 or new.replication_factor == 0:
        raise InvalidReplicationFactor(
            "Replication factor must be larger than 0, or -1 to use the default value."
        )
    if new.num_partitions < -1 or new.num_partitions == 0:
        raise InvalidPartitions("Number of partitions was set to an invalid non-positive value.")
    count = defaults.num_partitions if new.num_partitions == -1 else new.num_partitions
    factor = defaults.replication_factor if new.replication_factor == -1 else new.replication_factor
    if count > MAX_PARTITIONS:
        # Also checked before the placement, because a client can request two billion partitions.
        raise _too_many(new)
    return assign_replicas(
        defaults.brokers,
        count,
        factor,
        racks=defaults.racks,
        start=defaults.start,
        shift=defaults.shift,
    )
