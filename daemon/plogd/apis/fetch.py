"""Fetch (key 1): record batches from partitions, as slices of the log's own files.

Versions served 4-18.

   7 fetch sessions (KIP-227)     9 current leader epoch (KIP-320)      10 zstd (KIP-110)
  11 preferred read replica      12 diverging epoch, current leader     13 topic ids (KIP-516)

Waits until `min_bytes` are there or `max_wait_ms` have passed. The first batch found comes whole
however large it is (KIP-74). A partition that cannot be read gets its error, the others their data.
Which partitions are meant is replica/fetch_sessions.py's knowledge, what may be seen of them
replica/partition.py's. There are no followers yet: a request from one is told so. A client over its
quota gets an empty answer and is told to wait (KIP-219).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from plog.errors import ErrorCode, KafkaError, NotLeaderOrFollower, UnsupportedCompressionType
from plog.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
    SnapshotId,
)
from plogd.apis.context import RequestContext
from plogd.apis.throttling import bound_fetch, grant_fetch
from plogd.ports import Later, MaybeLater
from plogd.replica.delayed import FetchParams
from plogd.replica.fetch_sessions import FetchContext, FetchItem
from plogd.replica.partition import PartitionRead

if TYPE_CHECKING:
    from plogd.broker import Broker

_FIRST_VERSION_WITH_REPLICA_STATE = 15
_FIRST_VERSION_WITH_LEADER = 12
_FIRST_ZSTD_VERSION = 10
_LAST_VERSION_WITHOUT_STORAGE_ERROR = 5
_READ_COMMITTED = 1

# Shared by all answers, for nobody changes them: a fetch of many partitions is mostly these.
_NO_DIVERGENCE = EpochEndOffset()
_NO_LEADER = LeaderIdAndEpoch()
_NO_SNAPSHOT = SnapshotId()


def handle_fetch(
    request: FetchRequest, context: RequestContext, broker: Broker
) -> MaybeLater[FetchResponse]:
    """Read what is asked, perhaps after a wait."""
    fetch = broker.fetch_sessions.begin(request, context.version, broker.cache.topic_name)
    if fetch.error is not None:
        return FetchResponse(error_code=fetch.error.code)
    answer = _Answer(request, context, broker, fetch)
    if _replica_id(request, context) >= 0:
        return answer([PartitionRead(NotLeaderOrFollower()) for _ in fetch.items])
    max_bytes = max(0, min(request.max_bytes, broker.config.fetch_max_bytes))
    if broker.quotas.fetch.is_set:
        max_bytes = bound_fetch(context, broker, max_bytes)
    params = FetchParams(
        max_wait_ms=request.max_wait_ms,
        min_bytes=min(request.min_bytes, max_bytes),
        max_bytes=max_bytes,
    )
    reads = broker.replica_manager.fetch_records(fetch.items, params)
    return reads.map(answer) if isinstance(reads, Later) else answer(reads)


def _replica_id(request: FetchRequest, context: RequestContext) -> int:
    if context.version >= _FIRST_VERSION_WITH_REPLICA_STATE:
        return request.replica_state.replica_id
    return request.replica_id


class _Answer:
    """Makes the answer of one fetch from what was read."""

    __slots__ = ("_broker", "_context", "_fetch", "_read_committed", "_version")

    def __init__(
        self, request: FetchRequest, context: RequestContext, broker: Broker, fetch: FetchContext
    ) -> None:
        self._broker = broker
        self._context = context
        self._fetch = fetch
        self._version = context.version
        self._read_committed = request.isolation_level == _READ_COMMITTED

    def __call__(self, reads: Sequence[PartitionRead]) -> FetchResponse:
        try:
            return self._respond(reads)
        except BaseException:
            for read in reads:
                read.close()
            raise

    def _respond(self, reads: Sequence[PartitionRead]) -> FetchResponse:
        items = self._fetch.items
        throttle_ms = 0
        if self._broker.quotas.fetch.is_set:
            may_send, throttle_ms = grant_fetch(self._context, self._broker, reads)
            if not may_send:
                return self._throttled(reads, throttle_ms)
        if self._version < _FIRST_ZSTD_VERSION:
            reads = [
                self._without_zstd(item, read) for item, read in zip(items, reads, strict=True)
            ]
        session_id, answered = self._fetch.finish(reads)
        if self._fetch.error is not None:
            for read in reads:
                read.close()
            return FetchResponse(error_code=self._fetch.error.code, session_id=session_id)
        topics: list[FetchableTopicResponse] = []
        for index in answered:
            item, read = items[index], reads[index]
            if not topics or not _is_same_topic(topics[-1], item):
                topics.append(
                    FetchableTopicResponse(topic=item.topic or "", topic_id=item.topic_id)
                )
            topics[-1].partitions.append(self._partition_data(item, read))
        return FetchResponse(throttle_time_ms=throttle_ms, session_id=session_id, responses=topics)

    def _throttled(self, reads: Sequence[PartitionRead], throttle_ms: int) -> FetchResponse:
        """The answer that holds nothing, because the client has had too much already."""
        for read in reads:
            read.close()
        session_id = self._fetch.finish_empty()
        error = self._fetch.error
        return FetchResponse(
            throttle_time_ms=throttle_ms,
            error_code=0 if error is None else error.code,
            session_id=session_id,
        )

    def _without_zstd(self, item: FetchItem, read: PartitionRead) -> PartitionRead:
        """An error for a topic that stores zstd, which the client's version does not know."""
        if read.error is not None:
            return read
        partition = self._broker.replica_manager.partition(item.topic or "", item.request.partition)
        if partition.log.config.compression_type != "zstd":
            return read
        read.close()
        return PartitionRead(
            UnsupportedCompressionType(f"zstd needs version {_FIRST_ZSTD_VERSION}")
        )

    def _partition_data(self, item: FetchItem, read: PartitionRead) -> PartitionData:
        if read.error is not None:
            return self._error_data(item, read.error)
        if read.region is not None:
            self._broker.topic_stats.fetched(item.topic or "", read.region.nbytes)
        diverging = _NO_DIVERGENCE
        if read.diverging_epoch is not None:
            epoch, end_offset = read.diverging_epoch
            diverging = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return PartitionData(
            partition_index=item.request.partition,
            high_watermark=read.high_watermark,
            last_stable_offset=read.high_watermark,
            log_start_offset=read.log_start_offset,
            diverging_epoch=diverging,
            current_leader=_NO_LEADER,
            snapshot_id=_NO_SNAPSHOT,
            aborted_transactions=[] if self._read_committed else None,
            records=b"" if read.region is None else read.region,
        )

    def _error_data(self, item: FetchItem, error: KafkaError) -> PartitionData:
        code = error.code
        if (
            code == ErrorCode.KAFKA_STORAGE_ERROR
            and self._version <= _LAST_VERSION_WITHOUT_STORAGE_ERROR
        ):
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        leader = _NO_LEADER
        if code == ErrorCode.FENCED_LEADER_EPOCH and self._version >= _FIRST_VERSION_WITH_LEADER:
            leader = self._current_leader(item)
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

    def _current_leader(self, item: FetchItem) -> LeaderIdAndEpoch:
        partition = self._broker.replica_manager.partition(item.topic or "", item.request.partition)
        return LeaderIdAndEpoch(leader_id=partition.leader, leader_epoch=partition.leader_epoch)


def _is_same_topic(topic: FetchableTopicResponse, item: FetchItem) -> bool:
    return topic.topic_id == item.topic_id and topic.topic == (item.topic or "")


def refuse_fetch(
    request: FetchRequest, context: RequestContext, error: KafkaError
) -> FetchResponse:
    """The answer in which every partition named gets `error`, and the whole as well."""
    return FetchResponse(
        error_code=error.code,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    PartitionData(
                        partition_index=partition.partition,
                        error_code=error.code,
                        high_watermark=-1,
                        aborted_transactions=None,
                        records=b"",
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
