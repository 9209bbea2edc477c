"""TxnOffsetCommit (key 28): commit a group's offsets in a transaction (KIP-98).

Changes by version:

  2  leader epoch (KIP-320)
  3  flexible; generation, member and instance, so that the group can reject former members
     (KIP-447)
  4  TRANSACTION_ABORTABLE may be returned (KIP-890)
  5  the coordinator adds the group to the transaction (KIP-890)

Versions 0 and 1 are identical.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32, int64


class TxnOffsetCommitRequestPartition(Struct):
    """An offset to commit, with the client's metadata."""

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
    """Offsets to commit in a transaction; generation -1 means no generation."""

    transactional_id: str = field()
    group_id: str = field()
    producer_id: int64 = field()
    producer_epoch: int16 = field()
    # Not ignorable: without these fields, the group would accept offsets of a former member.
    generation_id: int32 = field("3+", default=-1)
    member_id: str = field("3+")
    group_instance_id: str | None = field("3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = field()


class TxnOffsetCommitResponsePartition(Struct):
    """The result for one offset."""

    partition_index: int32 = field()
    error_code: int16 = field()


class TxnOffsetCommitResponseTopic(Struct):
    """The results for the offsets of one topic."""

    name: str = field()
    partitions: list[TxnOffsetCommitResponsePartition] = field()


class TxnOffsetCommitResponse(
    ApiMessage, api_key=ApiKey.TXN_OFFSET_COMMIT, versions="0-5", flexible="3+"
):
    """The result for each offset."""

    throttle_time_ms: int32 = field()
    topics: list[TxnOffsetCommitResponseTopic] = field()
