"""The records of `__share_group_state`: how far share groups have come in partitions (KIP-932).

A log of Kafka's holds them, and whoever shows it has to read them. Keys and values stand behind a
number as in `__consumer_offsets`; `SHARE_RECORDS` has both by the one before the key.
Source: Kafka 4.3 share-coordinator messages.
"""

from __future__ import annotations

from typing import Final

from plog.wire.schema import Message, Struct, field, int8, int16, int32, int64, uuid


class SharePartitionKey(Message, versions="0"):
    """A partition, as a share group reads it."""

    group_id: str = field()
    topic_id: uuid = field()
    partition: int32 = field()


class StateBatch(Struct):
    """Records of one state: 0 available, 2 acknowledged, 4 archived."""

    first_offset: int64 = field()
    last_offset: int64 = field()
    delivery_state: int8 = field()
    delivery_count: int16 = field()


class ShareSnapshotValue(Message, versions="0", flexible="0+"):
    """The whole state; timestamps are wall-clock ms."""

    snapshot_epoch: int32 = field()
    state_epoch: int32 = field()
    leader_epoch: int32 = field()
    start_offset: int64 = field()
    delivery_complete_count: int32 = field(tag=0, default=-1)
    create_timestamp: int64 = field()
    write_timestamp: int64 = field()
    state_batches: list[StateBatch] = field()


class ShareUpdateValue(Message, versions="0", flexible="0+"):
    """What has changed since the snapshot; a start offset of -1 has not."""

    snapshot_epoch: int32 = field()
    leader_epoch: int32 = field()
    start_offset: int64 = field()
    delivery_complete_count: int32 = field(tag=0, default=-1)
    state_batches: list[StateBatch] = field()


SHARE_RECORDS: Final[dict[int, tuple[type[Message], type[Message]]]] = {
    0: (SharePartitionKey, ShareSnapshotValue),
    1: (SharePartitionKey, ShareUpdateValue),
}
SHARE_MESSAGES: tuple[type[Message], ...] = (
    SharePartitionKey,
    ShareSnapshotValue,
    ShareUpdateValue,
)
