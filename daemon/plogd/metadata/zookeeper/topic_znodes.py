"""The znodes of topics, of the states of their partitions, and of legacy reassignments.

Fields that plog does not know are kept. Source: Kafka 3.9 TopicZNode, TopicPartitionStateZNode,
ReassignPartitionsZNode.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from plog.types import ZERO_UUID, TopicPartition, uuid_from_text, uuid_to_text
from plogd.metadata.store import PartitionValue, TopicValue
from plogd.metadata.zookeeper.znode_json import (
    decode_object,
    encode_json,
    int_of,
    ints_of,
    merged,
    object_of,
    text_of,
)

_RECOVERY_STATE: Final = "leader_recovery_state"
"""1 if the leader comes from an unclean election (KIP-704)."""


def decode_topic(data: bytes) -> TopicValue:
    """Return the topic in a znode. Raises ValueError.

    Topics that were created before Kafka 2.8 may lack an id; they have the id `ZERO_UUID`.
    """
    value = decode_object(data)
    assignments = _replicas_of(value, "partitions")
    if not assignments:
        raise ValueError("the topic has no partitions")
    return TopicValue(
        topic_id=uuid_from_text(text_of(value, "topic_id")) if "topic_id" in value else ZERO_UUID,
        assignments=assignments,
        adding_replicas=_replicas_of(value, "adding_replicas"),
        removing_replicas=_replicas_of(value, "removing_replicas"),
    )


def _replicas_of(value: Mapping[str, Any], name: str) -> dict[int, tuple[int, ...]]:
    replicas = {int(n): ints_of(ids, name) for n, ids in object_of(value, name).items()}
    # Numbers are texts in JSON, which sort as 1, 10, 2.
    return dict(sorted(replicas.items()))


def encode_topic(topic: TopicValue, old: bytes | None = None) -> bytes:
    """Return the contents of a topic's znode; `old` are its present contents."""
    fields: dict[str, Any] = {
        "removing_replicas": _texts(topic.removing_replicas),
        "partitions": _texts(topic.assignments),
    }
    if topic.topic_id != ZERO_UUID:
        fields["topic_id"] = uuid_to_text(topic.topic_id)
    fields |= {"adding_replicas": _texts(topic.adding_replicas), "version": 3}
    return encode_json(merged(old, fields))


def _texts(replicas: Mapping[int, tuple[int, ...]]) -> dict[str, list[int]]:
    return {str(number): list(ids) for number, ids in sorted(replicas.items()) if ids}


def decode_partition(data: bytes, version: int) -> PartitionValue:
    """Return the state in a znode, whose version is the partition epoch. Raises ValueError."""
    value = decode_object(data)
    int_of(value, "controller_epoch")
    return PartitionValue(
        leader=int_of(value, "leader"),
        leader_epoch=int_of(value, "leader_epoch"),
        isr=ints_of(value.get("isr"), "isr"),
        partition_epoch=version,
        is_recovering=int_of(value, _RECOVERY_STATE, 0) != 0,
    )


def encode_partition(
    partition: PartitionValue, controller_epoch: int, old: bytes | None = None
) -> bytes:
    """Return the contents of a partition's znode; the znode's version is its partition epoch."""
    fields = {
        "controller_epoch": controller_epoch,
        "leader": partition.leader,
        "version": 1,
        "leader_epoch": partition.leader_epoch,
        "isr": list(partition.isr),
        _RECOVERY_STATE: 1,
    }
    value = merged(old, fields)
    if not partition.is_recovering:
        # As in Kafka, the field exists only while the partition recovers.
        del value[_RECOVERY_STATE]
    return encode_json(value)


def controller_epoch_of(data: bytes) -> int:
    """Return the epoch of the controller that wrote a partition's state. Raises ValueError."""
    return int_of(decode_object(data), "controller_epoch")


def decode_reassignment(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the replicas that the znode of a legacy reassignment requests. Raises ValueError."""
    partitions = decode_object(data).get("partitions")
    if not isinstance(partitions, list) or not all(isinstance(x, dict) for x in partitions):
        raise ValueError("partitions is not a list of objects")
    return {
        TopicPartition(text_of(one, "topic"), int_of(one, "partition")): ints_of(
            one.get("replicas"), "replicas"
        )
        for one in partitions
    }
