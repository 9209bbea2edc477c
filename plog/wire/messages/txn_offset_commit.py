"""TxnOffsetCommit (key 28): offsets of a group that count when a transaction commits (KIP-98).

  2  leader epoch (KIP-320)
  3  flexible; generation, member and instance of the group, so that it can refuse who has left it
     (KIP-447)
  4  TRANSACTION_ABORTABLE may be answered (KIP-890)
  5  the transaction takes the group in by itself (KIP-890)

Versions 0 and 1 are the same.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32, int64


class TxnOffsetCommitRequestPartition(Struct):
    """An offset, with what the client wants to remember of it."""

    partition_index: int32 = field()
    committed_offset: int64 = field()
    committed_leader_epoch: int32 = field("2+", default=-1, ignorable=True)
    committed_metadata: str | None = field()


class TxnOffsetCommitRequestTopic(Struct):
    """The offsets of one topic."""

    name: str = field()
    partitions: list[TxnOffsetCommitRequestPartition] = field()


class TxnOffsetCommitRequest(
    ApiMessage, api_key=ApiKey.TXN_OFFSET_COMMIT, versions="0-5", flexible="3+"
):
    """Offsets to commit with a transaction; generation -1 comes from who is in no generation."""

    transactional_id: str = field()
    group_id: str = field()
    producer_id: int64 = field()
    producer_epoch: int16 = field()
    generation_id: int32 = field("3+", default=-1)
    member_id: str = field("3+")
    group_instance_id: str | None = field("3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = field()


class TxnOffsetCommitResponsePartition(Struct):
    """What became of one offset."""

    partition_index: int32 = field()
    error_code: int16 = field()


class TxnOffsetCommitResponseTopic(Struct):
    """What became of the offsets of one topic."""

    name: str = field()
    partitions: list[TxnOffsetCommitResponsePartition] = field()


class TxnOffsetCommitResponse(
    ApiMessage, api_key=ApiKey.TXN_OFFSET_COMMIT, versions="0-5", flexible="3+"
):
    """What became of each offset."""

    throttle_time_ms: int32 = field()
    topics: list[TxnOffsetCommitResponseTopic] = field()
