"""Handle fetch responses: buffer records, and retry or report errors.

Offsets such as the high watermark are always updated. All other results apply only if the
partition's position has not changed since the request. An error is not reported while earlier
records from the partition are still buffered. offset_reset.py handles out-of-range offsets. The
module changes only `SubscriptionState` and `FetchBuffer`. Source: Kafka 3.9 FetchCollector.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from plog.client.consumer.completed_fetch import CompletedFetch, ReadingRules, split_batches
from plog.client.consumer.fetch_buffer import FetchBuffer
from plog.client.consumer.fetch_plan import WantedPartition
from plog.client.consumer.offset_lookup import MAY_PASS
from plog.client.consumer.offset_reset import reset_out_of_range
from plog.client.consumer.subscription_state import SubscriptionState
from plog.client.errors import CorruptRecords, error_about
from plog.errors import ErrorCode
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
# After these errors, the broker will catch up or recover, so new metadata would not help.
_WAIT = frozenset({ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.REQUEST_TIMED_OUT, *MAY_PASS})


@dataclass(slots=True)
class FetchOutcome:
    """The effects of a fetch response that the fetch loop must act on."""

    for_application: bool = False
    """Records or an error have arrived for the application."""
    metadata_is_stale: bool = False
    needs_offset: bool = False
    """A partition needs a new position."""
    has_moved: bool = False
    """A partition must be fetched from another broker."""
    size_bytes: int = 0


class FetchResponseHandler:
    """The component that applies fetch responses to a consumer's state."""

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

    def handle(
        self, asked: _Asked, response: FetchResponse, moved: Collection[TopicPartition] = ()
    ) -> FetchOutcome:
        """Apply the response to a fetch for `asked`; the response has no top-level error.

        The new leader of the partitions in `moved` is known already (KIP-951).
        """
        outcome = FetchOutcome()
        # If several partitions have data, copy it: otherwise, the buffered data of one small
        # partition would keep the whole response in memory.
        with_data = sum(
            bool(one.records) for topic in response.responses for one in topic.partitions
        )
        for topic in response.responses:
            for one in topic.partitions:
                wanted = asked.get(TopicPartition(topic.topic, one.partition_index))
                if wanted is not None and wanted.state.partition in moved:
                    self._positions.forget_replica(wanted.state)
                    outcome.has_moved = True
                elif wanted is not None:
                    self._partition(wanted, one, outcome, copies=with_data > 1)
        return outcome

    def _partition(
        self, wanted: WantedPartition, data: PartitionData, outcome: FetchOutcome, *, copies: bool
    ) -> None:
        if data.error_code:
            self._error(wanted, data.error_code, outcome)
            return
        # Update these offsets even if the position has changed: in a fetch session, the broker
        # sends them only when they change (KIP-227).
        state = wanted.state
        with self._positions.lock:
            if data.high_watermark >= 0:
                state.high_watermark = data.high_watermark
            if data.last_stable_offset >= 0:
                state.last_stable_offset = data.last_stable_offset
            if data.log_start_offset >= 0:
                state.log_start_offset = data.log_start_offset
            # KIP-392: the leader has selected a follower in the client's rack. Such a response does
            # not contain records.
            if data.preferred_read_replica >= 0:
                state.replica = data.preferred_read_replica
                state.replica_until_s = self._now_s() + self._replica_lease_s
                outcome.has_moved = True
        records = data.records
        if not isinstance(records, bytes | bytearray | memoryview) or not len(records):
            return
        outcome.size_bytes += len(records)
        batches = bytes(records) if copies else records
        split = split_batches(state.partition, wanted.offset, batches)
        fetched = CompletedFetch(
            state.partition,
            wanted.offset,
            split,
            self._rules,
            data.aborted_transactions or (),
        )
        if self._buffer.add(state, wanted.generation, wanted.offset, split.next_offset, fetched):
            outcome.for_application = True

    def _error(self, wanted: WantedPartition, code: int, outcome: FetchOutcome) -> None:
        state, generation = wanted.state, wanted.generation
        partition = state.partition
        if code in _STALE_METADATA:
            log.debug("cannot fetch %s: error %d; updating metadata", partition, code)
            # A follower may lack records that the leader has, so fetch from the leader next.
            self._positions.forget_replica(state)
            outcome.metadata_is_stale = True
        elif code in _WAIT:
            log.debug("cannot fetch %s: error %d; retrying", partition, code)
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(wanted, outcome)
            return
        elif self._positions.is_drained(state, generation):
            # Do not report an error while earlier records are buffered. By the time they have been
            # taken, the fetch has been retried, and the error may have disappeared.
            text = f"cannot fetch {partition}"
            error = error_about(code, text)
            if code == ErrorCode.CORRUPT_MESSAGE:
                error = CorruptRecords(
                    f"cannot read {partition} at offset {wanted.offset}: the broker reports corrupt"
                    f" records; the fetch will be retried; seek to {wanted.offset + 1} or later to"
                    " skip them",
                    partition,
                    wanted.offset,
                )
            outcome.for_application |= self._positions.fail(state, generation, error)
        self._positions.back_off(state, generation, self._now_s(), self._delay_s)

    def _out_of_range(self, wanted: WantedPartition, outcome: FetchOutcome) -> None:
        state, generation = wanted.state, wanted.generation
        if self._positions.forget_replica(state):
            outcome.has_moved = True
            # The follower may lag behind; only the leader's error shows that the offset is invalid
            # (KIP-392).
            return
        if self._positions.is_drained(state, generation):
            error = reset_out_of_range(self._positions, state, generation, wanted.offset)
            if error is None:
                outcome.needs_offset = True
                return
            outcome.for_application |= self._positions.fail(state, generation, error)
        self._positions.back_off(state, generation, self._now_s(), self._delay_s)
