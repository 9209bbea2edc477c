"""The values a client of the library holds in its hands: what was sent, where it went, what came.

All are NamedTuples: a million a second are made of some of them. Offsets count records; times are
in milliseconds since 1970. Records as the wire has them, bytes and all, are plog.records.codec's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from plog.types import TopicPartition

if TYPE_CHECKING:  # Tools that only administrate do not wait for codecs and checksums.
    from plog.records.batch import TimestampType
    from plog.records.codec import Header

UNKNOWN_OFFSET = -1
"""What stands for an offset nobody has told: of a record sent with acks=0, for one."""

NO_TIMESTAMP = -1
"""A record, or a batch of the oldest formats, without a time."""


class ProducerRecord(NamedTuple):
    """A record on its way to a topic, before the serializers: what interceptors are given.

    None as `partition` leaves the choice to the partitioner, None as `timestamp` means now.
    """

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Sequence[Header] = ()


class RecordMetadata(NamedTuple):
    """Where a record that was sent is now.

    `offset` is -1 where the broker has not told it: with acks=0, and for a batch that had been
    written before and is forgotten in detail. `timestamp` is the broker's where the topic has log
    append time. Sizes are those of the bytes, -1 for null.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    serialized_key_size: int
    serialized_value_size: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition as one."""
        return TopicPartition(self.topic, self.partition)


class ConsumerRecord(NamedTuple):
    """A record that was read; key and value as the deserializers have made them.

    `leader_epoch` is -1 where the batch does not tell it.
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
        """Topic and partition as one: ``commit({record.topic_partition: record.offset + 1})``."""
        return TopicPartition(self.topic, self.partition)


class OffsetAndMetadata(NamedTuple):
    """A position to commit or committed: the offset of the next record to be read."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


class OffsetAndTimestamp(NamedTuple):
    """The first record at or behind a time, and the time it really has."""

    offset: int
    timestamp: int
    leader_epoch: int | None = None


def checked_partition(partition: object) -> TopicPartition:
    """A partition that a user has named, which may be a plain pair. Raises TypeError for others.

    >>> checked_partition(("page-views", 0))
    TopicPartition(topic='page-views', partition=0)
    """
    if isinstance(partition, TopicPartition):
        return partition
    match partition:
        case (str(topic), int(number)):
            return TopicPartition(topic, number)
    raise TypeError(f"{partition!r} is no TopicPartition: give topic and number")


def checked_partitions(partitions: Iterable[object]) -> list[TopicPartition]:
    """Several that a user has named. Raises TypeError for what is none, or one by itself."""
    match partitions:
        case (str(), int()):
            raise TypeError(f"partitions are a list: [{partitions!r}] instead of {partitions!r}")
    return [checked_partition(partition) for partition in partitions]


def checked_offset(offset: OffsetAndMetadata | int) -> OffsetAndMetadata:
    """An offset to commit: a number is one without metadata. Raises TypeError for others."""
    if isinstance(offset, int):
        return OffsetAndMetadata(offset)
    if not isinstance(offset, OffsetAndMetadata):
        raise TypeError(f"{offset!r} is no offset to commit: give a number or OffsetAndMetadata")
    return offset
