"""Produce (key 0): append record batches.

Changes by version:

   3  record batch v2, transactional id (KIP-98)
   4  KAFKA_STORAGE_ERROR may be returned (KIP-112)
   5  log start offset
   7  zstd (KIP-110)
   8  error message, and the records that caused the error (KIP-467)
   9  flexible
  10  the new leader and its address (KIP-951)
  11  TRANSACTION_ABORTABLE may be returned (KIP-890)
  12  the broker adds the partition to the transaction (KIP-890)
  13  topic ids instead of names (KIP-516)

Versions 0 to 2 had the older message formats and were removed in Kafka 4.0.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Records, Struct, field, int16, int32, int64, uuid


class PartitionProduceData(Struct):
    """The batch for one partition."""

    index: int32 = field()
    records: Records | None = field()


class TopicProduceData(Struct):
    """The batches for one topic."""

    name: str = field("0-12", ignorable=True)
    topic_id: uuid = field("13+", ignorable=True)
    partition_data: list[PartitionProduceData] = field()


class ProduceRequest(ApiMessage, api_key=ApiKey.PRODUCE, versions="3-13", flexible="9+"):
    """Batches to append. ``acks``: 0 for no response, 1 for the leader, -1 for the ISR."""

    transactional_id: str | None = field(default=None)
    acks: int16 = field()
    timeout_ms: int32 = field()
    topic_data: list[TopicProduceData] = field()


class BatchIndexAndErrorMessage(Struct):
    """A record that caused its batch to be rejected, by its index in the batch."""

    batch_index: int32 = field()
    batch_index_error_message: str | None = field(default=None)


class LeaderIdAndEpoch(Struct):
    """The current leader of the partition; -1 if unknown."""

    leader_id: int32 = field(default=-1)
    leader_epoch: int32 = field(default=-1)


class PartitionProduceResponse(Struct):
    """The result for one batch. ``log_append_time_ms`` is -1 with CreateTime."""

    index: int32 = field()
    error_code: int16 = field()
    base_offset: int64 = field()
    log_append_time_ms: int64 = field(default=-1)
    # Shows a producer whether retention has deleted its records, or whether they were lost.
    log_start_offset: int64 = field("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field("8+", ignorable=True)
    error_message: str | None = field("8+", default=None, ignorable=True)
    # Saves the producer a Metadata request after NOT_LEADER_OR_FOLLOWER.
    current_leader: LeaderIdAndEpoch = field("10+", tag=0)


class TopicProduceResponse(Struct):
    """The results for the batches of one topic."""

    name: str = field("0-12", ignorable=True)
    topic_id: uuid = field("13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = field()


class NodeEndpoint(Struct):
    """The address of a leader in this response."""

    node_id: int32 = field()
    host: str = field()
    port: int32 = field()
    rack: str | None = field(default=None)


class ProduceResponse(ApiMessage, api_key=ApiKey.PRODUCE, versions="3-13", flexible="9+"):
    """The result for each batch."""

    responses: list[TopicProduceResponse] = field()
    # At the end, unlike in other responses, because version 1 appended it to version 0.
    throttle_time_ms: int32 = field()
    node_endpoints: list[NodeEndpoint] = field("10+", tag=0)
