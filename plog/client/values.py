"""The values that the client library accepts and returns: records, positions and metadata.

Offsets count records; timestamps are in milliseconds since 1970. Raw records, as encoded on the
wire, are in plog.records.codec.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from plog.types import TopicPartition

if TYPE_CHECKING:  # Admin tools start faster without codecs and checksums.
    from plog.records.batch import TimestampType
    from plog.records.codec import Header

# All values are NamedTuples, which Python creates faster than dataclasses: a client may create up
# to a million of them per second.

UNKNOWN_OFFSET = -1
"""The offset of a record when it is not known, for example after a send with acks=0."""

NO_TIMESTAMP = -1
"""The timestamp of a record or batch that has none, as in the oldest formats."""


class ProducerRecord(NamedTuple):
    """A record to send, before serialization: the value that interceptors receive.

    If `partition` is None, the partitioner chooses; if `timestamp` is None, the current time is
    used.
    """

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Sequence[Header] = ()


class RecordMetadata(NamedTuple):
    """The topic, partition, offset and timestamp of a record that was sent.

    `offset` is -1 if the broker did not return it: with acks=0, and for a duplicate batch if the
    broker no longer knows its offset. `timestamp` is the broker's append time if the topic uses
    LogAppendTime. Sizes are in bytes; -1 stands for a null key or value.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    serialized_key_size: int
    serialized_value_size: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic and partition as a TopicPartition."""
        return TopicPartition(self.topic, self.partition)


class ConsumerRecord(NamedTuple):
    """A record that was read, with key and value as returned by the deserializers.

    `leader_epoch` is -1 if the batch does not contain it.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: Any
    value: Any
    headers: Sequence[Header]
    leader_epoch: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic and partition, for ``commit({record.topic_partition: record.offset + 1})``."""
        return TopicPartition(self.topic, self.partition)


class OffsetAndMetadata(NamedTuple):
    """A position to commit, or a committed one: the offset of the next record to read."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


class OffsetAndTimestamp(NamedTuple):
    """The offset and timestamp of the first record at or after a requested timestamp."""

    offset: int
    timestamp: int
    leader_epoch: int | None = None


def checked_partition(partition: object) -> TopicPartition:
    """Return the application's `partition`, which may be a plain pair, as a TopicPartition.

    Raises TypeError for any other value.
    """
    # TopicPartition is the usual case: records already contain it.
    if isinstance(partition, TopicPartition):
        return partition
    # `match` also checks the types; an application may write a partition as a plain pair.
    match partition:
        case (str(topic), int(number)):
            return TopicPartition(topic, number)
    raise TypeError(f"{partition!r} is not a TopicPartition: pass a topic and a partition number")


def checked_partitions(partitions: Iterable[object]) -> list[TopicPartition]:
    """Return the application's list of partitions as TopicPartitions.

    Raises TypeError for anything else, including a single partition.
    """
    # A single partition is a tuple and therefore iterable. Without this check, the error would be
    # about its topic, taken for the first partition.
    match partitions:
        case (str(), int()):
            raise TypeError(
                f"partitions must be a list: pass [{partitions!r}] instead of {partitions!r}"
            )
    return [checked_partition(partition) for partition in partitions]


def checked_offset(offset: OffsetAndMetadata | int) -> OffsetAndMetadata:
    """Return `offset` as an OffsetAndMetadata; a plain number gets empty metadata.

    Raises TypeError for any other value.
    """
    if isinstance(offset, int):
        return OffsetAndMetadata(offset)
    if not isinstance(offset, OffsetAndMetadata):
        raise TypeError(f"cannot commit {offset!r}: pass a number or an OffsetAndMetadata")
    return offset
