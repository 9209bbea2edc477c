"""What a new topic may be: its name, its partitions, its settings.

Pure: `plan_topic` turns what somebody asks for into a `TopicPlan`, or raises the error the client
is to see. Writing it down is controller.py's work, spreading replicas replica_placement.py's.
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
from plogd.controller.replica_placement import Assignments, assign_replicas, check_assignments
from plogd.topic_config import validate_overrides

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
MAX_NAME_LENGTH: Final = 249
MAX_PARTITIONS: Final = 9_000
"""In one topic: what one atomic write of the metadata store holds, with room for settings."""

MAX_PARTITIONS_AT_ONCE: Final = 10_000
"""Of all topics that are created by one request, as in Kafka."""

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic as somebody asks for it; -1 means the broker's default."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    """(partition, brokers) pairs, if replicas are placed by hand."""
    config: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """A topic as it will be."""

    name: str
    assignments: Assignments
    config: Mapping[str, str]

    @property
    def replication_factor(self) -> int:
        """How many brokers hold each partition."""
        return len(self.assignments[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What a topic gets that says nothing itself, and the brokers there are."""

    num_partitions: int
    replication_factor: int
    brokers: Sequence[int]


def validate_name(name: str) -> None:
    """Raise InvalidTopicException if no topic may have this name.

    >>> validate_name("page-views.2024_01")
    """
    problem = _problem_of_name(name)
    if problem is not None:
        raise InvalidTopicException(f"Topic name is invalid: {problem}")


def _problem_of_name(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"it is longer than {MAX_NAME_LENGTH} characters"
    if not _LEGAL_NAME.fullmatch(name):
        return "it has characters other than ASCII letters, digits, '.', '_' and '-'"
    return None


def collision_key(name: str) -> str:
    """Names with the same key would share the names of their metrics.

    >>> collision_key("a.b") == collision_key("a_b")
    True
    """
    return name.replace(".", "_")


def plan_topic(new: NewTopic, existing: Mapping[str, str], defaults: Defaults) -> TopicPlan:
    """Check `new` against the rules and the `existing` topics, which are names by `collision_key`.

    Raises the KafkaError that says what is wrong.
    """
    validate_name(new.name)
    if new.name == CLUSTER_METADATA_TOPIC:
        raise InvalidRequest(f"Creation of internal topic {new.name} is prohibited.")
    other = existing.get(collision_key(new.name))
    if other == new.name:
        raise TopicAlreadyExists(f"Topic '{new.name}' already exists.")
    if other is not None:
        raise InvalidTopicException(f"Topic '{new.name}' collides with existing topic: {other}")
    config = _checked_config(new.config)
    if new.assignments:
        _refuse_counts_beside_assignments(new)
        assignments = check_assignments(new.assignments, defaults.brokers)
    else:
        assignments = _assign(new, defaults)
    if len(assignments) > MAX_PARTITIONS:
        raise _too_many(new)
    return TopicPlan(name=new.name, assignments=assignments, config=config)


def check_total(asked: Iterable[NewTopic], defaults: Defaults) -> None:
    """Raise PolicyViolation if the topics of one request would have too many partitions in all."""
    total = 0
    for new in asked:
        if new.assignments:
            total += len(new.assignments)
        else:
            count = new.num_partitions
            total += defaults.num_partitions if count == -1 else max(0, count)
    if total > MAX_PARTITIONS_AT_ONCE:
        raise PolicyViolation(
            f"The request asks for {total} partitions; {MAX_PARTITIONS_AT_ONCE} at once are"
            " allowed: create the topics by several requests."
        )


def _too_many(new: NewTopic) -> PolicyViolation:
    return PolicyViolation(f"Topic '{new.name}' would have more than {MAX_PARTITIONS} partitions.")


def _checked_config(config: Mapping[str, str | None]) -> Mapping[str, str]:
    nulls = sorted(name for name, value in config.items() if value is None)
    if nulls:
        raise InvalidConfig(f"Null value not supported for topic configs: {','.join(nulls)}")
    validate_overrides(config)
    return {name: value for name, value in config.items() if value is not None}


def _refuse_counts_beside_assignments(new: NewTopic) -> None:
    for what, count in (
        ("replication factor", new.replication_factor),
        ("numPartitions", new.num_partitions),
    ):
        if count != -1:
            raise InvalidRequest(
                f"A manual partition assignment was specified, but {what} was not set to -1."
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
        raise _too_many(new)  # Before placing two billion of them.
    return assign_replicas(defaults.brokers, count, factor)
