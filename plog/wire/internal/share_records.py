"""Records of `__share_group_state`: the positions of share groups in partitions (KIP-932).

plog does not write these records, but its tools print them if a Kafka log contains them. As in
`__consumer_offsets`, a number precedes keys and values; `SHARE_RECORDS` maps the key's number to
the declarations of key and value.
Source: Kafka 4.3 share-coordinator messages.
"""

from __future__ import annotations

from typing import Final

from plog.wire.schema import Message, Struct, field, int8, int16, int32, int64, uuid


class SharePartitionKey(Message, versions="0"):
    """The key: a share group and a partition."""

    group_id: str = field()
    topic_id: uuid = field()
    partition: int32 = field()


class StateBatch(Struct):
    """Consecutive records in one state: 0 available, 2 acknowledged, 4 archived."""

    first_offset: int64 = field()
    last_offset: int64 = field()
    delivery_state: int8 = field()
    delivery_count: int16 = field()


class ShareSnapshotValue(Message, versions="0", flexible="0+"):
    """A snapshot of the state; timestamps are wall-clock ms."""

    snapshot_epoch: int32 = field()
    state_epoch: int32 = field()
    leader_epoch: int32 = field()
    start_offset: int64 = field()
    # Earlier releases wrote the record without this count, hence the tag and the default.
    delivery_complete_count: int32 = field(tag=0, default=-1)
    create_timestamp: int64 = field()
    write_timestamp: int64 = field()
    state_batches: list[StateBatch] = field()


class ShareUpdateValue(Message, versions="0", flexible="0+"):
    """A change since the snapshot; a start offset of -1 means unchanged."""

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
