"""Fetch (key 1): return record batches of partitions as regions of their log files.

Serves versions 4-18.

   4 aborted transactions (KIP-98)
   7 fetch sessions (KIP-227)     9 current leader epoch (KIP-320)      10 zstd (KIP-110)
  11 preferred read replica      12 diverging epoch, current leader     13 topic ids (KIP-516)
  16 addresses of leaders (KIP-951)

The response is sent when `min_bytes` are available or `max_wait_ms` have passed. The first batch is
returned whole, regardless of its size (KIP-74). A partition that cannot be read has its own error.
A partition that is listed more than once is read once. replica/fetch/fetch_sessions.py determines
which partitions are read, and replica/partition.py limits the readable offsets. A client that
exceeds its quota gets an empty response and a throttle time (KIP-219). A fetch of more than `SLICE`
partitions is handled in slices.

From version 11 on, a consumer may also read from a follower, up to the high watermark that the
follower knows. replica/fetch/replica_selector.py selects the follower.

A fetch with a replica id is from a follower: it acknowledges the records below its offsets, so it
is accepted only on the inter-broker listener. The quotas of clients do not apply to it, but those
of replication do (replica/cluster/replication_quota.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from plog.errors import ErrorCode, KafkaError, UnsupportedCompressionType
from plog.wire.lazy_array import lazy_array
from plog.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ReplicaState,
    SnapshotId,
)
from plog.wire.primitives import Part
from plog.wire.single_fetch import (
    SingleFetch,
    encode_empty_response,
    encode_single_response,
    end_of_single_response,
)
from plogd.apis.cluster_requests import check_is_broker
from plogd.apis.current_leaders import CurrentLeaders
from plogd.apis.listener_view import Node
from plogd.apis.request_context import RequestContext
from plogd.apis.throttling import bound_fetch, grant_fetch
from plogd.broker import Broker
from plogd.fair_queue import SLICE, Slices
from plogd.ports import Later, MaybeLater, ready, settle, spawn
from plogd.replica.fetch.delayed_fetch import FetchParams
from plogd.replica.fetch.fetch_context import FetchContext, FetchItem
from plogd.replica.fetch.partition_read import PartitionRead
from plogd.replica.partition import READ_COMMITTED

_FIRST_VERSION_WITH_REPLICA_STATE = 15  # KIP-903.
_FIRST_VERSION_WITH_NODE_ENDPOINTS = 16  # KIP-951.
_FIRST_VERSIONS_WITH_LEADER: dict[int, int] = {
    ErrorCode.FENCED_LEADER_EPOCH: 12,  # KIP-595.
    ErrorCode.NOT_LEADER_OR_FOLLOWER: _FIRST_VERSION_WITH_NODE_ENDPOINTS,
}
"""The first version in which a response with this error names the leader."""
_FIRST_VERSION_WITH_RACK = 11  # KIP-392.
_FIRST_ZSTD_VERSION = 10  # KIP-110.
_LAST_VERSION_WITHOUT_STORAGE_ERROR = 5  # KIP-112.

# Shared by all responses: these objects never change, and nearly every partition needs them.
_NO_DIVERGENCE = EpochEndOffset()
_NO_LEADER = LeaderIdAndEpoch()
_NO_SNAPSHOT = SnapshotId()

Response: TypeAlias = FetchResponse | list[Part]
"""The response; parts are encoded (single_fetch.py), but lack the header."""


def handle_fetch(
    request: FetchRequest | SingleFetch, context: RequestContext, broker: Broker
) -> MaybeLater[Response]:
    """Read the requested partitions; wait if fewer than `min_bytes` are available."""
    follower = None if isinstance(request, SingleFetch) else _follower(request, context)
    if follower is not None:
        check_is_broker(context, broker, "Fetch by a replica")
    fetch = broker.fetch_sessions.begin(request, context.version, broker.cache.topic_name)
    if isinstance(fetch, Later):
        return spawn(_fetch_wide(request, context, broker, fetch, follower))
    if fetch.error is not None:
        # Without partitions, as in KIP-227: the client then starts a new session with a full fetch.
        return FetchResponse(error_code=fetch.error.code)
    if len(fetch.items) > SLICE:
        return spawn(_fetch_wide(request, context, broker, ready(fetch), follower))
    answer = _Answer(request, context, broker, fetch, follower)
    reads = _read(request, context, broker, fetch, answer)
    return reads.map(answer) if isinstance(reads, Later) else answer(reads)


async def _fetch_wide(
    request: FetchRequest | SingleFetch,
    context: RequestContext,
    broker: Broker,
    begun: Later[FetchContext],
    follower: ReplicaState | None,
) -> FetchResponse:
    fetch = await begun
    if fetch.error is not None:
        return FetchResponse(error_code=fetch.error.code)
    answer = _Answer(request, context, broker, fetch, follower)
    reads = await settle(_read(request, context, broker, fetch, answer))
    return await answer.in_slices(reads)


def _read(
    request: FetchRequest | SingleFetch,
    context: RequestContext,
    broker: Broker,
    fetch: FetchContext,
    answer: _Answer,
) -> MaybeLater[list[PartitionRead]]:
    follower = answer.follower
    max_bytes = max(0, min(request.max_bytes, broker.config.fetch_max_bytes))
    if broker.quotas.fetch.is_set and follower is None:
        max_bytes = bound_fetch(context, broker, max_bytes)
    params = FetchParams(
        max_wait_ms=request.max_wait_ms,
        # Bounded, as in Kafka: otherwise, the fetch would wait for more bytes than it may return.
        min_bytes=min(request.min_bytes, max_bytes),
        max_bytes=max_bytes,
        share=context.large_fetch,
        read_committed=request.isolation_level == READ_COMMITTED,
        follower=follower,
        # Clients of earlier versions do not expect that a follower responds.
        any_replica=follower is None and context.version >= _FIRST_VERSION_WITH_RACK,
        rack=request.rack_id if follower is None else "",
        listener_name=context.connection.listener_name,
    )
    return broker.replica_manager.fetch_records(fetch.items, params)


def _follower(request: FetchRequest, context: RequestContext) -> ReplicaState | None:
    """Return the broker that sent the request, or None if it is from a consumer."""
    if context.version >= _FIRST_VERSION_WITH_REPLICA_STATE:
        state = request.replica_state
    else:
        state = ReplicaState(replica_id=request.replica_id)
    return state if state.replica_id >= 0 else None


class _Answer:
    """Builds the response to a fetch from its reads."""

    __slots__ = (
        "_broker",
        "_context",
        "_fetch",
        "_leaders",
        "_read_committed",
        "_version",
        "follower",
    )

    def __init__(
        self,
        request: FetchRequest | SingleFetch,
        context: RequestContext,
        broker: Broker,
        fetch: FetchContext,
        follower: ReplicaState | None,
    ) -> None:
        self._broker = broker
        self._context = context
        self._fetch = fetch
        self._version = context.version
        self._read_committed = request.isolation_level == READ_COMMITTED
        self.follower = follower
        self._leaders: CurrentLeaders | None = None
        """The leaders in the response; None unless there are any."""

    def __call__(self, reads: Sequence[PartitionRead]) -> Response:
        try:
            return self._respond(reads)
        except BaseException:
            # The response would have closed the files after sending their records.
            _close_all(reads)
            raise

    def _respond(self, reads: Sequence[PartitionRead]) -> Response:
        throttle_ms, throttled = self._throttle(reads)
        if throttled is not None:
            return throttled
        if self._version < _FIRST_ZSTD_VERSION:
            items = self._fetch.items
            reads = [
                self._without_zstd(item, read) for item, read in zip(items, reads, strict=True)
            ]
        session_id, answered = self._fetch.finish(reads)
        if self._fetch.error is not None:
            return self._refused(reads)
        if not answered:
            return [encode_empty_response(self._version, throttle_ms, session_id)]
        if _is_single(answered, reads):
            item, read = self._fetch.items[answered[0]], reads[answered[0]]
            return self._single(item, read, throttle_ms, session_id)
        topics: list[FetchableTopicResponse] = []
        for index in answered:
            self._add(topics, self._fetch.items[index], reads[index])
        return self._response(throttle_ms, session_id, topics)

    def _single(
        self, item: FetchItem, read: PartitionRead, throttle_ms: int, session_id: int
    ) -> list[Part]:
        """Return the encoded response that `_add` would build for a single successful read."""
        region, version, topic = read.region, self._version, item.topic or ""
        start = encode_single_response(
            version,
            throttle_ms,
            session_id,
            topic,
            item.topic_id,
            item.request.partition,
            (read.high_watermark, read.last_stable_offset, read.log_start_offset),
            self._read_committed,
            0 if region is None else region.nbytes,
        )
        end = end_of_single_response(version)
        if region is None:
            return [start + end]
        self._count(topic, region.nbytes)
        return [start, region, end] if end else [start, region]

    def _count(self, topic: str, nbytes: int) -> None:
        """Count the records of one partition in the response."""
        if self.follower is None:
            self._broker.topic_stats.fetched(topic, nbytes)
        else:
            self._broker.topic_stats.replication_bytes_out.value += nbytes

    async def in_slices(self, reads: Sequence[PartitionRead]) -> FetchResponse:
        """Build the response in slices, so that other requests can run between slices."""
        try:
            return await self._respond_in_slices(reads)
        except BaseException:
            _close_all(reads)
            raise

    async def _respond_in_slices(self, reads: Sequence[PartitionRead]) -> FetchResponse:
        throttle_ms, throttled = self._throttle(reads)
        if throttled is not None:
            return throttled
        fetch = self._fetch
        fetch.check()
        if fetch.error is not None:
            return self._refused(reads)
        topics: list[FetchableTopicResponse] = []
        pairs = zip(fetch.items, reads, strict=True)
        async for item, read in Slices(self._broker.fair_queue).over(pairs):
            if self._version < _FIRST_ZSTD_VERSION:
                read = self._without_zstd(item, read)
            if fetch.is_answered(item, read):
                self._add(topics, item, read)
        return self._response(throttle_ms, fetch.end(), topics)

    def _response(
        self, throttle_ms: int, session_id: int, topics: list[FetchableTopicResponse]
    ) -> FetchResponse:
        nodes: Sequence[Node] = ()
        if self._leaders is not None and self._version >= _FIRST_VERSION_WITH_NODE_ENDPOINTS:
            nodes = self._leaders.nodes
        return FetchResponse(
            throttle_time_ms=throttle_ms,
            session_id=session_id,
            responses=topics,
            node_endpoints=[
                NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
                for node_id, host, port, rack in nodes
            ],
        )

    def _add(
        self, topics: list[FetchableTopicResponse], item: FetchItem, read: PartitionRead
    ) -> None:
        """Add a partition to the response, in its topic's element."""
        # As in Kafka, only the last element is checked, so a topic can have several elements: a
        # session does not keep a topic's partitions together (fetch_sessions.py).
        if not topics or not _is_same_topic(topics[-1], item):
            topics.append(FetchableTopicResponse(topic=item.topic or "", topic_id=item.topic_id))
        topics[-1].partitions.append(self._partition_data(item, read))

    def _throttle(self, reads: Sequence[PartitionRead]) -> tuple[int, FetchResponse | None]:
        """Return the throttle time and, if no records may be sent now, the empty response."""
        # The quotas of clients do not apply to followers.
        if self.follower is not None:
            self._broker.replica_manager.count_sent(self._fetch.items, reads)
            return 0, None
        if not self._broker.quotas.fetch.is_set:
            return 0, None
        may_send, throttle_ms = grant_fetch(self._context, self._broker, reads)
        if may_send:
            return throttle_ms, None
        _close_all(reads)
        # While this request was waiting, the client may have continued the session with another
        # request.
        self._fetch.check()
        error = self._fetch.error
        # Like Kafka's FetchContext.getThrottledResponse: no partition counts as sent, so the client
        # continues its session after the throttle time.
        empty = FetchResponse(
            throttle_time_ms=throttle_ms,
            error_code=0 if error is None else error.code,
            session_id=self._fetch.session_id,
        )
        return throttle_ms, empty

    def _refused(self, reads: Sequence[PartitionRead]) -> FetchResponse:
        """Return the error response for a request that no longer matches its session."""
        _close_all(reads)
        error = self._fetch.error
        assert error is not None
        return FetchResponse(error_code=error.code, session_id=self._fetch.session_id)

    def _without_zstd(self, item: FetchItem, read: PartitionRead) -> PartitionRead:
        """Return an error instead of `read` if the topic's ``compression.type`` is zstd."""
        if read.error is not None:
            return read
        partition = self._broker.replica_manager.partition(item.topic or "", item.request.partition)
        # As in Kafka, batches are not inspected: with any other setting, zstd batches are sent.
        if partition.log.config.compression_type != "zstd":
            return read
        read.close()
        return PartitionRead(
            UnsupportedCompressionType(
                f"zstd compression requires Fetch version {_FIRST_ZSTD_VERSION} or later"
            )
        )

    def _partition_data(self, item: FetchItem, read: PartitionRead) -> PartitionData:
        if read.error is not None:
            return self._error_data(item, read.error)
        if read.region is not None:
            self._count(item.topic or "", read.region.nbytes)
        diverging = _NO_DIVERGENCE
        if read.diverging_epoch is not None:
            epoch, end_offset = read.diverging_epoch
            diverging = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return PartitionData(
            partition_index=item.request.partition,
            high_watermark=read.high_watermark,
            last_stable_offset=read.last_stable_offset,
            log_start_offset=read.log_start_offset,
            diverging_epoch=diverging,
            current_leader=_NO_LEADER,
            snapshot_id=_NO_SNAPSHOT,
            # As in Kafka, null for read_uncommitted.
            aborted_transactions=_aborted(read) if self._read_committed else None,
            preferred_read_replica=read.preferred_replica,
            records=b"" if read.region is None else read.region,
        )

    def _error_data(self, item: FetchItem, error: KafkaError) -> PartitionData:
        code = error.code
        if (
            # Clients that use these versions do not know this error. The replacement makes them
            # refresh their metadata.
            code == ErrorCode.KAFKA_STORAGE_ERROR
            and self._version <= _LAST_VERSION_WITHOUT_STORAGE_ERROR
        ):
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        leader = _NO_LEADER
        # The field is not ignorable: earlier versions cannot encode a leader.
        first_version = _FIRST_VERSIONS_WITH_LEADER.get(code)
        if first_version is not None and self._version >= first_version:
            leader = self._current_leader(item, code)
        return PartitionData(
            partition_index=item.request.partition,
            error_code=code,
            high_watermark=-1,
            diverging_epoch=_NO_DIVERGENCE,
            current_leader=leader,
            snapshot_id=_NO_SNAPSHOT,
            aborted_transactions=None,
            records=b"",
        )

    def _current_leader(self, item: FetchItem, code: int) -> LeaderIdAndEpoch:
        if self._leaders is None:
            self._leaders = CurrentLeaders(self._context, self._broker)
        leader, epoch = self._leaders.after(code, item.topic or "", item.request.partition)
        return LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)


def _is_single(answered: Sequence[int], reads: Sequence[PartitionRead]) -> bool:
    """Return whether the response contains one partition, which was read without an error.

    `_Answer._single` encodes neither aborted transactions nor a preferred replica.
    """
    if len(answered) != 1:
        return False
    read = reads[answered[0]]
    return not read.is_urgent and not read.aborted


def _aborted(read: PartitionRead) -> list[AbortedTransaction]:
    return [
        AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
        for one in read.aborted
    ]


def _close_all(reads: Sequence[PartitionRead]) -> None:
    """Close the files of records that will not be sent."""
    for read in reads:
        read.close()


def _is_same_topic(topic: FetchableTopicResponse, item: FetchItem) -> bool:
    return topic.topic_id == item.topic_id and topic.topic == (item.topic or "")


def refuse_fetch(
    request: FetchRequest | SingleFetch, context: RequestContext, error: KafkaError
) -> FetchResponse:
    """Reject all partitions with `error`, and also set the top-level error."""
    if isinstance(request, SingleFetch):
        request = request.as_message()

    def of_partition(partition: FetchPartition) -> PartitionData:
        return PartitionData(
            partition_index=partition.partition,
            error_code=error.code,
            high_watermark=-1,
            aborted_transactions=None,
            records=b"",
        )

    def of_topic(topic: FetchTopic) -> FetchableTopicResponse:
        return FetchableTopicResponse(
            topic=topic.topic,
            topic_id=topic.topic_id,
            partitions=lazy_array(topic.partitions, of_partition),
        )

    # In both places, because versions before 7 have no top-level error.
    return FetchResponse(error_code=error.code, responses=lazy_array(request.topics, of_topic))
