"""What a fetch was answered, taken in: records to the buffer, errors to where they are cured.

Bounds (high watermark and so on) are news whenever they come, for a session's broker tells them
once; all else counts only if the partition is still where it was when it was asked for. An error
of what was fetched ahead is not told before the records in front of it were taken: it is met again
then. Pure but for `SubscriptionState` and `FetchBuffer`. Source: Kafka 3.9 FetchCollector.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from plog.client.consumer.completed_fetch import CompletedFetch, ReadingRules, split_batches
from plog.client.consumer.fetch_buffer import FetchBuffer
from plog.client.consumer.fetch_plan import WantedPartition
from plog.client.consumer.offset_lookup import MAY_PASS
from plog.client.consumer.subscription_state import SubscriptionState
from plog.client.errors import CorruptRecords, error_about
from plog.errors import ErrorCode, OffsetOutOfRange
from plog.types import TopicPartition
from plog.wire.messages.fetch import FetchResponse, PartitionData

log = logging.getLogger("plog.client")

_Asked: TypeAlias = Mapping[TopicPartition, WantedPartition]

_STALE_METADATA = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
_WAIT = frozenset({ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.REQUEST_TIMED_OUT, *MAY_PASS})


@dataclass(slots=True)
class FetchNews:
    """What came of a fetch, for those who wait for it."""

    for_application: bool = False
    """Records, or an error."""
    metadata_is_stale: bool = False
    needs_offset: bool = False
    """A partition has to find a position."""
    has_moved: bool = False
    """A partition is to be fetched from another broker."""
    size_bytes: int = 0


class FetchResponseHandler:
    """See the module's text."""

    def __init__(
        self,
        positions: SubscriptionState,
        buffer: FetchBuffer,
        rules: ReadingRules,
        *,
        now_s: Callable[[], float],
        delay_s: Callable[[int], float],
        replica_lease_s: float,
    ) -> None:
        self._positions = positions
        self._buffer = buffer
        self._rules = rules
        self._now_s = now_s
        self._delay_s = delay_s
        self._replica_lease_s = replica_lease_s

    def take_in(self, asked: _Asked, response: FetchResponse) -> FetchNews:
        """Take in an answer without an error of its own, to a fetch of `asked`."""
        news = FetchNews()
        # A small part of a large answer would keep all of it in memory until it is taken.
        with_data = sum(
            bool(one.records) for topic in response.responses for one in topic.partitions
        )
        for topic in response.responses:
            for one in topic.partitions:
                wanted = asked.get(TopicPartition(topic.topic, one.partition_index))
                if wanted is not None:
                    self._partition(wanted, one, news, copies=with_data > 1)
        return news

    def _partition(
        self, wanted: WantedPartition, told: PartitionData, news: FetchNews, *, copies: bool
    ) -> None:
        if told.error_code:
            self._error(wanted, told.error_code, news)
            return
        state = wanted.state
        with self._positions.lock:
            if told.high_watermark >= 0:
                state.high_watermark = told.high_watermark
            if told.last_stable_offset >= 0:
                state.last_stable_offset = told.last_stable_offset
            if told.log_start_offset >= 0:
                state.log_start_offset = told.log_start_offset
            if told.preferred_read_replica >= 0:
                state.replica = told.preferred_read_replica
                state.replica_until_s = self._now_s() + self._replica_lease_s
                news.has_moved = True
        records = told.records
        if not isinstance(records, bytes | bytearray | memoryview) or not len(records):
            return
        news.size_bytes += len(records)
        data = bytes(records) if copies else records
        split = split_batches(state.partition, wanted.offset, data)
        fetched = CompletedFetch(
            state.partition,
            wanted.offset,
            split,
            self._rules,
            told.aborted_transactions or (),
        )
        if self._buffer.add(state, wanted.generation, wanted.offset, split.next_offset, fetched):
            news.for_application = True

    def _error(self, wanted: WantedPartition, code: int, news: FetchNews) -> None:
        state, generation = wanted.state, wanted.generation
        partition = state.partition
        if code in _STALE_METADATA:
            log.debug("%s: error %d of a fetch; asking who leads it", partition, code)
            self._positions.forget_replica(state)
            news.metadata_is_stale = True
        elif code in _WAIT:
            log.debug("%s: error %d of a fetch; it is asked again", partition, code)
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(wanted, news)
            return
        elif self._positions.is_drained(state, generation):
            text = f"{partition}: it cannot be fetched from"
            error = error_about(code, text)
            if code == ErrorCode.CORRUPT_MESSAGE:
                error = CorruptRecords(
                    f"{partition}, offset {wanted.offset}: the broker finds its records damaged. "
                    f"They will be asked for again; seek to {wanted.offset + 1} or further to "
                    "leave them out",
                    partition,
                    wanted.offset,
                )
            news.for_application |= self._positions.fail(state, generation, error)
        self._positions.back_off(state, generation, self._now_s(), self._delay_s)

    def _out_of_range(self, wanted: WantedPartition, news: FetchNews) -> None:
        state, generation = wanted.state, wanted.generation
        if self._positions.forget_replica(state):
            news.has_moved = True
            return  # The leader knows better than a follower.
        if self._positions.is_drained(state, generation):
            what = f"{state.partition}: its log does not hold offset {wanted.offset}"
            if self._positions.reset_by_default(state, generation):
                log.warning("%s: goes on at %s", what, self._positions.default_reset)
                news.needs_offset = True
                return
            error = OffsetOutOfRange(
                f"{what}, and auto.offset.reset is none: seek to where to go on"
            )
            news.for_application |= self._positions.fail(state, generation, error)
        self._positions.back_off(state, generation, self._now_s(), self._delay_s)
