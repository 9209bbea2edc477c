"""Reading a known range of one partition: a fetch after the other from whoever leads it.

What a consumer does beyond that (several partitions beside each other, reading ahead, groups) is
not here, so that it runs on any `Network`, blocking sockets among them.

Source: KIP-74, KIP-98 (read_committed), KIP-320; Kafka 4.3 Fetcher.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plog.client.consumer.completed_fetch import CompletedFetch, ReadingRules, split_batches
from plog.client.consumer.offset_lookup import MAY_PASS, OffsetLookup
from plog.client.errors import error_about
from plog.client.network.backoff import Backoff
from plog.client.network.cluster import Cluster
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

_NO_SESSION_EPOCH = -1


class RangeReader:
    """See the module's text. One range at a time."""

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
        self.lookup = OffsetLookup(cluster, cluster.network, isolation_level=self._isolation_level)

    async def fetch(self, partition: TopicPartition, position: int, stop: int) -> CompletedFetch:
        """What lies from `position` on, at least one batch; it may reach beyond `stop`.

        Raises OffsetOutOfRange where the log has nothing at `position` any more; after
        ``default.api.timeout.ms`` RequestTimedOut where there is nothing yet, and whatever else
        was in the way for so long.
        """
        backoff = self._cluster.backoff(self._cluster.deadline(self._timeout_s))
        while True:
            try:
                told = await self._ask(partition, position, backoff.deadline)
            except KafkaError as error:
                if not error.retriable and error.code not in MAY_PASS:
                    raise
                await backoff.wait_or_raise(error)
                await self._refresh(partition, backoff)
                continue
            records = told.records
            if isinstance(records, bytes | bytearray | memoryview) and len(records):
                split = split_batches(partition, position, records)
                return CompletedFetch(
                    partition, position, split, self._rules, told.aborted_transactions or ()
                )
            end = told.last_stable_offset if self._rules.read_committed else told.high_watermark
            await backoff.wait_or_raise(_not_there(partition, position, stop, end))

    async def _ask(
        self, partition: TopicPartition, position: int, deadline: Deadline
    ) -> PartitionData:
        """One fetch from the leader. Raises what it answers, what breaks on the way."""
        metadata = self._cluster.metadata
        if partition.topic not in metadata.topics:
            metadata = await self._cluster.refresh({partition.topic}, deadline=deadline)
        known, leader = metadata.partition(partition), metadata.leader_of(partition)
        if known is None or leader is None:
            raise self.lookup.why_no_leader(partition)
        settings = self._settings
        wanted = FetchPartition(
            partition=partition.partition,
            current_leader_epoch=known.leader_epoch,
            fetch_offset=position,
            partition_max_bytes=settings.max_partition_fetch_bytes,
        )
        request = FetchRequest(
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=self._isolation_level,
            session_epoch=_NO_SESSION_EPOCH,
            topics=[FetchTopic(topic=partition.topic, partitions=[wanted])],
        )
        response = await self._cluster.ask_node(leader, request, FetchResponse, deadline=deadline)
        if response.error_code:
            raise error_about(response.error_code, f"{partition}: it cannot be fetched from")
        for topic in response.responses:
            for told in topic.partitions:
                if (topic.topic, told.partition_index) == partition:
                    return _checked(partition, position, told)
        raise WireError(f"{partition}: an answer to a fetch that does not tell of it")

    async def _refresh(self, partition: TopicPartition, backoff: Backoff) -> None:
        """Ask who leads it now. Raises what prevents that when there is no time left."""
        try:
            await self._cluster.refresh({partition.topic}, deadline=backoff.deadline)
        except KafkaError as error:
            if not error.retriable or backoff.is_over:
                raise


def _checked(partition: TopicPartition, position: int, told: PartitionData) -> PartitionData:
    if told.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        raise OffsetOutOfRange(
            f"{partition}: its log does not hold offset {position}; it may have been deleted. "
            "Begin at what `beginning_offsets` says, or later"
        )
    if told.error_code:
        raise error_about(told.error_code, f"{partition}: it cannot be fetched from")
    return told


def _not_there(partition: TopicPartition, position: int, stop: int, end: int) -> RequestTimedOut:
    return RequestTimedOut(
        f"{partition}: it was to be read up to offset {stop}, and there is nothing to read from "
        f"{position} on: it ends at {end} (`end_offsets` tells where)"
    )
