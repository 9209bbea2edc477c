"""A reader for a known offset range of one partition, with one fetch in flight at a time.

The reader sends the next fetch before the caller decodes the records of the previous fetch, so that
the broker and the network work in the meantime. It does not support groups or concurrent fetches,
so it runs on any `Network`, including blocking sockets.

Source: KIP-74, KIP-98 (read_committed), KIP-320; Kafka 4.3 Fetcher.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from plog.client.consumer.completed_fetch import CompletedFetch, ReadingRules, split_batches
from plog.client.consumer.offset_lookup import MAY_PASS, OffsetLookup
from plog.client.errors import error_about
from plog.client.network.backoff import Backoff
from plog.client.network.cluster import Cluster
from plog.client.network.connection import Connection
from plog.client.network.deadline import Deadline
from plog.client.settings.consumer import ConsumerSettings
from plog.errors import (
    ErrorCode,
    KafkaError,
    OffsetOutOfRange,
    RequestTimedOut,
)
from plog.types import TopicPartition
from plog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from plog.wire.schema import WireError

# With only one partition, a fetch session (KIP-227) would not make requests smaller.
_NO_SESSION_EPOCH = -1


class _NextFetch(NamedTuple):
    """A fetch that was sent before its records are needed."""

    partition: TopicPartition
    position: int
    connection: Connection
    response: Awaitable[FetchResponse]


class RangeReader:
    """A reader of offset ranges, one range at a time."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        *,
        key_deserializer: Callable[[bytes], Any] | None = None,
        value_deserializer: Callable[[bytes], Any] | None = None,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._timeout_s = settings.default_api_timeout_ms / 1000
        read_committed = settings.isolation_level == "read_committed"
        self._isolation_level = int(read_committed)
        self._rules = ReadingRules(
            check_crcs=settings.check_crcs,
            read_committed=read_committed,
            deserialize_key=key_deserializer,
            deserialize_value=value_deserializer,
        )
        self._next: _NextFetch | None = None
        self.lookup = OffsetLookup(cluster, cluster.network, isolation_level=self._isolation_level)

    async def fetch(self, partition: TopicPartition, position: int, stop: int) -> CompletedFetch:
        """Return at least one batch, starting at `position`; the data may extend past `stop`.

        Raises OffsetOutOfRange if the log does not contain `position`. After
        ``default.api.timeout.ms``, raises RequestTimedOut if there are no records yet, or the error
        that prevented the fetch.
        """
        backoff = self._cluster.backoff(self._cluster.deadline(self._timeout_s))
        while True:
            try:
                data = await self._ask(partition, position, backoff.deadline)
            except KafkaError as error:
                if not error.retriable and error.code not in MAY_PASS:
                    raise
                await backoff.wait_or_raise(error)
                # The leader has probably moved to another broker.
                await self._refresh(partition, backoff)
                continue
            records = data.records
            # An empty response means that the log ends at the position, although the broker has
            # waited for records.
            if isinstance(records, bytes | bytearray | memoryview) and len(records):
                split = split_batches(partition, position, records)
                if split.error is None and split.next_offset < stop:
                    self._send_next(partition, split.next_offset)
                return CompletedFetch(
                    partition, position, split, self._rules, data.aborted_transactions or ()
                )
            end = data.last_stable_offset if self._rules.read_committed else data.high_watermark
            await backoff.wait_or_raise(_beyond_end(partition, position, stop, end))

    async def _ask(
        self, partition: TopicPartition, position: int, deadline: Deadline
    ) -> PartitionData:
        """Send one fetch to the leader. Raises errors from the broker and the connection."""
        sent, self._next = self._next, None
        if sent is not None and (sent.partition, sent.position) == (partition, position):
            response = await sent.response
            # KIP-219: the broker expects a pause before the next request.
            if response.throttle_time_ms > 0:
                now_s = self._cluster.network.now_s()
                sent.connection.throttled_until_s = now_s + response.throttle_time_ms / 1000
        else:
            if partition.topic not in self._cluster.metadata.topics:
                await self._cluster.refresh({partition.topic}, deadline=deadline)
            leader = self._cluster.leader_of(partition)
            if leader is None:
                raise self.lookup.why_no_leader(partition)
            response = await self._cluster.ask_node(
                leader, self._request(partition, position), FetchResponse, deadline=deadline
            )
        if response.error_code:
            raise error_about(response.error_code, f"cannot fetch {partition}")
        for topic in response.responses:
            for data in topic.partitions:
                if (topic.topic, data.partition_index) == partition:
                    return _checked(partition, position, data)
        raise WireError(f"malformed fetch response: {partition} is missing")

    def _send_next(self, partition: TopicPartition, position: int) -> None:
        """Send the next fetch, at `position`, if a connection to the leader is ready."""
        leader = self._cluster.leader_of(partition)
        connection = None if leader is None else self._cluster.idle_connection(leader)
        # If no connection is ready, `fetch` sends the request when the records are needed.
        if connection is None or connection.throttled_until_s > self._cluster.network.now_s():
            return
        # `fetch` will wait for this response, so its time limit also applies here.
        timeout_s = min(self._timeout_s, self._settings.request_timeout_ms / 1000)
        request = self._request(partition, position)
        response = connection.ask(request, FetchResponse, timeout_s=timeout_s)
        self._next = _NextFetch(partition, position, connection, response)

    def _request(self, partition: TopicPartition, position: int) -> FetchRequest:
        known = self._cluster.metadata.partition(partition)
        settings = self._settings
        wanted = FetchPartition(
            partition=partition.partition,
            # KIP-320: with the epoch, a broker can reject a request based on old metadata.
            current_leader_epoch=-1 if known is None else known.leader_epoch,
            fetch_offset=position,
            partition_max_bytes=settings.max_partition_fetch_bytes,
        )
        return FetchRequest(
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=self._isolation_level,
            session_epoch=_NO_SESSION_EPOCH,
            topics=[FetchTopic(topic=partition.topic, partitions=[wanted])],
        )

    async def _refresh(self, partition: TopicPartition, backoff: Backoff) -> None:
        """Update the metadata. Raises an error only if it is permanent or no time is left."""
        try:
            await self._cluster.refresh({partition.topic}, deadline=backoff.deadline)
        except KafkaError as error:
            # The old metadata may still be good enough for another attempt.
            if not error.retriable or backoff.is_over:
                raise


def _checked(partition: TopicPartition, position: int, data: PartitionData) -> PartitionData:
    if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        raise OffsetOutOfRange(
            f"offset {position} of {partition} is out of range: its records may have been deleted;"
            " start at the offset that `beginning_offsets` returns, or later"
        )
    if data.error_code:
        raise error_about(data.error_code, f"cannot fetch {partition}")
    return data


def _beyond_end(partition: TopicPartition, position: int, stop: int, end: int) -> RequestTimedOut:
    return RequestTimedOut(
        f"cannot read {partition} up to offset {stop}: there are no records at or after"
        f" {position}, and the log ends at {end}; use `end_offsets` to find the end"
    )
