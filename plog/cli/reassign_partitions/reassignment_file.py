"""The JSON documents of kafka-reassign-partitions: new replicas, and topics to move."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from plog.cli.json_file import JsonValue, duplicates, read_json_file
from plog.client.admin.log_dirs import ANY_LOG_DIR
from plog.client.admin.values import TopicPartitionReplica
from plog.types import TopicPartition

REASSIGNMENT_FORM = (
    '{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2]}]}'
)
_NO_LOG_DIRS: Mapping[TopicPartitionReplica, str] = MappingProxyType({})
TOPICS_FORM = '{"version": 1, "topics": [{"topic": "orders"}]}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignments:
    """New replicas of partitions and, for some replicas, the log directories to move them to."""

    replicas: Mapping[TopicPartition, tuple[int, ...]]
    log_dirs: Mapping[TopicPartitionReplica, str]

    @property
    def brokers(self) -> set[int]:
        """The brokers of all replicas."""
        return {broker for some in self.replicas.values() for broker in some}

    @property
    def topics(self) -> list[str]:
        """The topics, sorted."""
        return sorted({partition.topic for partition in self.replicas})


def read_reassignments(path: str) -> Reassignments:
    """Return the document of ``--reassignment-json-file``. Raises OSError and UsageError."""
    rows = read_json_file(path, REASSIGNMENT_FORM).field("partitions")
    replicas: dict[TopicPartition, tuple[int, ...]] = {}
    log_dirs: dict[TopicPartitionReplica, str] = {}
    for row in rows.elements():
        partition = row.topic_partition()
        if partition in replicas:
            raise row.error(f"repeats partition {partition}")
        replicas[partition] = _replicas(row.field("replicas"))
        log_dirs |= _log_dirs(row, partition, replicas[partition])
    if not replicas:
        raise rows.error("lists no partition")
    return Reassignments(replicas=replicas, log_dirs=log_dirs)


def _replicas(value: JsonValue) -> tuple[int, ...]:
    replicas = tuple(each.number() for each in value.elements())
    if not replicas:
        raise value.error("lists no broker")
    repeated = duplicates(replicas)
    if repeated:
        raise value.error(f"lists broker {repeated[0]} twice")
    return replicas


def _log_dirs(
    row: JsonValue, partition: TopicPartition, replicas: Sequence[int]
) -> dict[TopicPartitionReplica, str]:
    field = row.optional_field("log_dirs")
    if field is None:
        return {}
    paths = [each.text() for each in field.elements()]
    if len(paths) != len(replicas):
        raise field.error(f"has {len(paths)} directories for {len(replicas)} replicas")
    return {
        TopicPartitionReplica(*partition, broker): path
        for broker, path in zip(replicas, paths, strict=True)
        if path != ANY_LOG_DIR
    }


def read_topics(path: str) -> list[str]:
    """Return the topics in ``--topics-to-move-json-file``. Raises OSError and UsageError."""
    rows = read_json_file(path, TOPICS_FORM).field("topics")
    topics = [each.field("topic").text() for each in rows.elements()]
    if not topics:
        raise rows.error("lists no topic")
    repeated = duplicates(topics)
    if repeated:
        raise rows.error(f"lists topic '{repeated[0]}' twice")
    return topics


def as_document(
    replicas: Mapping[TopicPartition, Sequence[int]],
    log_dirs: Mapping[TopicPartitionReplica, str] = _NO_LOG_DIRS,
) -> dict[str, object]:
    """Return the document for replicas, which ``--reassignment-json-file`` accepts."""
    return {
        "version": 1,
        "partitions": [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "replicas": list(replicas[partition]),
                "log_dirs": [
                    log_dirs.get(TopicPartitionReplica(*partition, broker), ANY_LOG_DIR)
                    for broker in replicas[partition]
                ],
            }
            for partition in sorted(replicas)
        ],
    }


def as_json(
    replicas: Mapping[TopicPartition, Sequence[int]],
    log_dirs: Mapping[TopicPartitionReplica, str] = _NO_LOG_DIRS,
) -> str:
    """Return the document as Kafka's tool prints it: on one line, without spaces.

    >>> as_json({TopicPartition("t", 0): (1,)})
    '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1],"log_dirs":["any"]}]}'
    """
    document = as_document(replicas, log_dirs)
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)
