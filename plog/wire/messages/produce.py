"""Produce (key 0): record batches to append, and where they went.

   3  record batch v2, transactional id (KIP-98)
   4  KAFKA_STORAGE_ERROR may be answered (KIP-112)
   5  log start offset
   7  zstd (KIP-110)
   8  error message, and which records were at fault (KIP-467)
   9  flexible
  10  the new leader and its address (KIP-951)
  11  TRANSACTION_ABORTABLE may be answered (KIP-890)
  12  a transaction takes the partition in by itself (KIP-890)
  13  topic ids instead of names (KIP-516)

Versions 0 to 2 carried the older message formats and are gone since Kafka 4.0.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Records, Struct, field, int16, int32, int64, uuid


class PartitionProduceData(Struct):
    """The batch for one partition."""

    index: int32 = field()
    records: Records | None = field()


class TopicProduceData(Struct):
    """What goes to one topic."""

    name: str = field("0-12", ignorable=True)
    topic_id: uuid = field("13+", ignorable=True)
    partition_data: list[PartitionProduceData] = field()


class ProduceRequest(ApiMessage, api_key=ApiKey.PRODUCE, versions="3-13", flexible="9+"):
    """Batches to append. ``acks``: 0 asks for no answer, 1 the leader alone, -1 the whole ISR."""

    transactional_id: str | None = field(default=None)
    acks: int16 = field()
    timeout_ms: int32 = field()
    topic_data: list[TopicProduceData] = field()


class BatchIndexAndErrorMessage(Struct):
    """A record because of which its batch was refused, by its place in the batch."""

    batch_index: int32 = field()
    batch_index_error_message: str | None = field(default=None)


class LeaderIdAndEpoch(Struct):
    """Who leads the partition now; -1 if that is not known."""

    leader_id: int32 = field(default=-1)
    leader_epoch: int32 = field(default=-1)


class PartitionProduceResponse(Struct):
    """What became of one batch. ``log_append_time_ms`` is -1 where the producer sets timestamps."""

    index: int32 = field()
    error_code: int16 = field()
    base_offset: int64 = field()
    log_append_time_ms: int64 = field(default=-1)
    log_start_offset: int64 = field("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field("8+", ignorable=True)
    error_message: str | None = field("8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = field("10+", tag=0)


class TopicProduceResponse(Struct):
    """What became of one topic's batches."""

    name: str = field("0-12", ignorable=True)
    topic_id: uuid = field("13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = field()


class NodeEndpoint(Struct):
    """Where to find a leader named in this answer."""

    node_id: int32 = field()
    host: str = field()
    port: int32 = field()
    rack: str | None = field(default=None)


class ProduceResponse(ApiMessage, api_key=ApiKey.PRODUCE, versions="3-13", flexible="9+"):
    """What became of each batch."""

    responses: list[TopicProduceResponse] = field()
    throttle_time_ms: int32 = field()
    node_endpoints: list[NodeEndpoint] = field("10+", tag=0)
