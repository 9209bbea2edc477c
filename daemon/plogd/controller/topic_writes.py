"""The changes that write a topic to the metadata store, and the topic that they result in.

Pure functions. A topic may need several writes, because the store limits the changes of one. The
first write of a new or expanded topic contains the topic's key, which names all partitions, and
the first states of as many partitions as fit. The other states follow. If the controller stops in
between, the next controller finds partitions without a state and writes their first states, so no
other record of the operation is necessary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from plog.errors import KafkaStorageError
from plogd.controller.controller_context import KnownTopic
from plogd.controller.partition_creation import first_state
from plogd.metadata.cache import PartitionState, TopicState
from plogd.metadata.store import (
    ABSENT,
    Change,
    Key,
    Outcome,
    PartitionValue,
    TopicValue,
    Written,
)


def creation_changes(
    name: str, value: TopicValue, config: Mapping[str, str], config_version: int
) -> list[Change]:
    """Return the changes that create a topic, except those of its partitions.

    `config_version` is the version of the settings that a former topic of this name has left.
    """
    changes = [Change(key=("topic", name), value=value, expected=ABSENT)]
    if config or config_version != ABSENT:
        key: Key = ("config", "topic", name)
        changes.append(Change(key=key, value=config or None, expected=config_version))
    return changes


def partition_change(name: str, state: PartitionState) -> Change:
    """Return the change that writes the first state of a partition."""
    key: Key = ("partition", name, state.partition)
    return Change(key=key, value=partition_value(state), expected=ABSENT)


def partition_value(state: PartitionState) -> PartitionValue:
    """Return the part of a partition's state that has its own key in the store."""
    return PartitionValue(
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        partition_epoch=state.partition_epoch,
        is_recovering=state.is_recovering,
    )


def in_groups(states: Sequence[PartitionState], limit: int) -> Iterable[Sequence[PartitionState]]:
    """Split partitions into groups of at most `limit`, in order."""
    return (states[start : start + limit] for start in range(0, len(states), limit))


def partition_state(number: int, topic: TopicValue, value: PartitionValue | None) -> PartitionState:
    """Return the state of a partition of `topic`; its first state if the store has none."""
    state = first_state(number, topic.assignments[number])
    adding, removing = topic.adding_replicas.get(number), topic.removing_replicas.get(number)
    if adding or removing:
        state = replace(state, adding_replicas=adding or (), removing_replicas=removing or ())
    return state if value is None else with_value(state, value)


def with_value(state: PartitionState, value: PartitionValue) -> PartitionState:
    """Return the state of a partition after `value` has been written for it."""
    return replace(
        state,
        leader=value.leader,
        leader_epoch=value.leader_epoch,
        isr=value.isr,
        partition_epoch=value.partition_epoch,
        is_recovering=value.is_recovering,
    )


def known_topic(
    name: str,
    value: TopicValue,
    version: int,
    partitions: Sequence[tuple[PartitionState, int]],
    config: Mapping[str, str],
) -> KnownTopic:
    """Return the topic with these partitions, each with the version of its key."""
    return KnownTopic(
        state=TopicState(
            name=name,
            topic_id=value.topic_id,
            partitions=tuple(state for state, _ in partitions),
            config=config,
        ),
        version=version,
        partition_versions=tuple(version for _, version in partitions),
    )


def all_written(outcomes: Iterable[Outcome]) -> bool:
    """Return whether all changes of a write were made."""
    return all(isinstance(outcome, Written) for outcome in outcomes)


def changed_by_other(name: str) -> KafkaStorageError:
    """Return the error for an operation on a topic that another program has changed."""
    return KafkaStorageError(
        f"cannot change topic '{name}': another program has changed it in the metadata store at the"
        " same time; try again"
    )
