"""Fetch (key 1): read record batches, as a consumer or as a follower.

Changes by version:

   4  record batch v2, isolation level, aborted transactions (KIP-98)
   5  log start offsets (KIP-107)
   7  fetch sessions: requests and responses only contain changes (KIP-227)
   9  the leader epoch that the client knows, for fencing (KIP-320)
  10  zstd (KIP-110)
  11  rack, preferred read replica (KIP-392)
  12  flexible; last fetched epoch and diverging epoch (KIP-595)
  13  topic ids instead of names (KIP-516)
  14  OFFSET_MOVED_TO_TIERED_STORAGE may be returned (KIP-405)
  15  replica id moves into a tagged field, with the broker epoch (KIP-903)
  16  addresses of new leaders (KIP-951)
  17  directory id of the follower (KIP-853)
  18  high watermark that the follower knows (KIP-1166)

Versions 0 to 3 had the older message formats and were removed in Kafka 4.0.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Records, Struct, field, int8, int16, int32, int64, uuid

INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1


class ReplicaState(Struct):
    """The follower that sends the request, and its broker epoch."""

    replica_id: int32 = field(default=-1)
    replica_epoch: int64 = field(default=-1)


class FetchPartition(Struct):
    """A partition to read, and the offset to read from."""

    partition: int32 = field()
    # -1 disables the check, for clients that do not know an epoch.
    current_leader_epoch: int32 = field("9+", default=-1, ignorable=True)
    fetch_offset: int64 = field()
    last_fetched_epoch: int32 = field("12+", default=-1)
    # Only followers set it: DeleteRecords completes when all replicas have moved their start.
    log_start_offset: int64 = field("5+", default=-1, ignorable=True)
    partition_max_bytes: int32 = field()
    replica_directory_id: uuid = field("17+", tag=0, ignorable=True)
    # The high watermark that the replica knows, or -1 if it does not know any. The default means
    # that the replica does not support the field (KIP-1166).
    high_watermark: int64 = field("18+", tag=1, default=INT64_MAX, ignorable=True)


class FetchTopic(Struct):
    """The partitions of one topic to read."""

    topic: str = field("0-12", ignorable=True)
    topic_id: uuid = field("13+", ignorable=True)
    partitions: list[FetchPartition] = field()


class ForgottenTopic(Struct):
    """Partitions to drop from the fetch session."""

    topic: str = field("7-12", ignorable=True)
    topic_id: uuid = field("13+", ignorable=True)
    partitions: list[int32] = field()


class FetchRequest(ApiMessage, api_key=ApiKey.FETCH, versions="4-18", flexible="12+"):
    """Partitions to read. The broker waits up to ``max_wait_ms`` for ``min_bytes``."""

    cluster_id: str | None = field("12+", tag=0, default=None, ignorable=True)
    replica_id: int32 = field("0-14", default=-1)
    replica_state: ReplicaState = field("15+", tag=1)
    max_wait_ms: int32 = field()
    min_bytes: int32 = field()
    # Before version 3, a response had no limit (KIP-74).
    max_bytes: int32 = field(default=INT32_MAX)
    isolation_level: int8 = field()
    session_id: int32 = field("7+", ignorable=True)
    # The default requests a full fetch without a session (KIP-227).
    session_epoch: int32 = field("7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = field()
    forgotten_topics_data: list[ForgottenTopic] = field("7+")
    rack_id: str = field("11+", ignorable=True)


class EpochEndOffset(Struct):
    """The largest epoch that leader and follower share, and its end offset."""

    epoch: int32 = field(default=-1)
    end_offset: int64 = field(default=-1)


class LeaderIdAndEpoch(Struct):
    """The current leader of the partition; -1 if unknown."""

    leader_id: int32 = field(default=-1)
    leader_epoch: int32 = field(default=-1)


class SnapshotId(Struct):
    """The snapshot of the metadata log to fetch instead."""

    end_offset: int64 = field(default=-1)
    epoch: int32 = field(default=-1)


class AbortedTransaction(Struct):
    """An aborted transaction, whose records a read_committed consumer skips."""

    producer_id: int64 = field()
    first_offset: int64 = field()


class PartitionData(Struct):
    """The records read from one partition."""

    partition_index: int32 = field()
    error_code: int16 = field()
    high_watermark: int64 = field()
    last_stable_offset: int64 = field(default=-1)
    log_start_offset: int64 = field("5+", default=-1, ignorable=True)
    # Set instead of records: the follower truncates its log, and then fetches again.
    diverging_epoch: EpochEndOffset = field("12+", tag=0)
    current_leader: LeaderIdAndEpoch = field("12+", tag=1)
    snapshot_id: SnapshotId = field("12+", tag=2)
    # Null in responses to read_uncommitted consumers.
    aborted_transactions: list[AbortedTransaction] | None = field()
    preferred_read_replica: int32 = field("11+", default=-1)
    records: Records | None = field()


class FetchableTopicResponse(Struct):
    """The records read from one topic."""

    topic: str = field("0-12", ignorable=True)
    topic_id: uuid = field("13+", ignorable=True)
    partitions: list[PartitionData] = field()


class NodeEndpoint(Struct):
    """The address of a leader in this response."""

    node_id: int32 = field()
    host: str = field()
    port: int32 = field()
    rack: str | None = field(default=None)


class FetchResponse(ApiMessage, api_key=ApiKey.FETCH, versions="4-18", flexible="12+"):
    """Record batches. The first one may start below the requested offset."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field("7+", ignorable=True)
    session_id: int32 = field("7+")
    responses: list[FetchableTopicResponse] = field()
    node_endpoints: list[NodeEndpoint] = field("16+", tag=0)
