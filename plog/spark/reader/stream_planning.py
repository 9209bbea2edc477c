"""`StreamPlanner`: the offsets and tasks of each batch of a streaming query.

It runs in the driver, in a process of the query's own. All state that a restarted query needs is in
Spark's checkpoint; the planner remembers only what detects lost data earlier, or saves lookups.
Its lookups and its clock are arguments, so it is tested without a cluster.

Source: Spark 4.2 KafkaMicroBatchStream.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from plog.errors import UnknownTopicOrPartition
from plog.spark.options.source_options import SourceOptions
from plog.spark.reader.data_loss import (
    LogBounds,
    data_loss_error,
    deleted_partition,
    recreated_topic,
    truncated_log,
    within_log,
)
from plog.spark.reader.log_lookup import LogLookup, no_offset, resolve
from plog.spark.reader.offset_range import OffsetRange
from plog.spark.reader.task_planning import TaskLimits, plan_tasks
from plog.spark.reader.trigger_limits import TriggerDelay, backlog, limit_bytes, limit_offsets
from plog.types import TopicPartition, Uuid

log = logging.getLogger("plog.spark")

Offsets: TypeAlias = Mapping[TopicPartition, int]

# Every broker is asked for sizes, and average sizes change slowly.
_SIZES_EXPIRE_MS = 60_000


class Clock(Protocol):
    """The time, and waiting."""

    def now_ms(self) -> int:
        """Return a time in ms that never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


@dataclass(frozen=True, slots=True)
class _Logs:
    """The partitions of a query as a lookup found them."""

    topic_ids: Mapping[TopicPartition, Uuid | None]
    bounds: Mapping[TopicPartition, LogBounds]

    def ends(self) -> dict[TopicPartition, int]:
        return {partition: bounds.end_offset for partition, bounds in self.bounds.items()}

    def contain(self, offsets: Offsets) -> bool:
        """Return whether every partition exists and has not ended before its offset."""
        return all(
            partition in self.bounds and offset <= self.bounds[partition].end_offset
            for partition, offset in offsets.items()
        )


class StreamPlanner:
    """Plans the batches of one query, for as long as the query runs."""

    def __init__(self, lookup: LogLookup, options: SourceOptions, clock: Clock) -> None:
        self._lookup = lookup
        self._options = options
        self._clock = clock
        self._initial: dict[TopicPartition, int] | None = None
        self._initial_is_saved = True
        self._targets: dict[TopicPartition, int] | None = None
        self._latest: dict[TopicPartition, int] | None = None
        self._topic_ids: dict[str, Uuid] = {}
        self._planned: tuple[Offsets, _Logs] | None = None
        self._delay: TriggerDelay | None = None
        if options.min_offsets_per_trigger is not None:
            self._delay = TriggerDelay(
                min_offsets=options.min_offsets_per_trigger,
                max_delay_ms=options.max_trigger_delay_ms,
            )
        self._record_bytes: dict[TopicPartition, float] = {}
        self._record_bytes_expire_ms: int | None = None
        self._has_warned = False

    # -- offsets --------------------------------------------------------------------------------

    def initial(self) -> dict[TopicPartition, int]:
        """Return where a new query starts; repeated calls return the same.

        Raises NoOffsetForTime, ConfigError, and the errors of the lookups.
        """
        # Spark calls initialOffset twice, and the latest offset may grow in between.
        if self._initial is None:
            logs = self._look({})
            bound = self._options.starting
            starts = resolve(self._lookup, bound, logs.bounds)
            self._initial = {}
            for partition, bounds in logs.bounds.items():
                start = starts[partition]
                if start is None and self._options.timestamp_strategy == "error":
                    raise no_offset(bound, partition)
                self._initial[partition] = bounds.end_offset if start is None else start
            self._initial_is_saved = False
        return dict(self._initial)

    def stop_at_latest(self) -> None:
        """Let the query end at the offsets that are the latest now (``Trigger.AvailableNow``)."""
        # Missing topics are reported later, with the position of the query.
        self._targets = self._look({}, skip_missing=True).ends()

    def latest(self, start: Offsets, *, all_available: bool = False) -> dict[TopicPartition, int]:
        """Return the end of the next batch; equal to `start` if there are no new records.

        `all_available` overrides the limits. Raises DataLossError unless ``failOnDataLoss`` is
        false.
        """
        logs = self._look(start)
        self._report(self._losses(start, logs))
        self._latest = logs.ends()
        if not self._initial_is_saved and start == self._initial and not all_available:
            # Spark saves the end of a batch, but not its start, before it runs the batch. An empty
            # first batch saves the start: otherwise, a query that is restarted during its first
            # batch would start elsewhere, because logs and topics have changed, and skip records.
            # A trigger that overrides the limits runs only one batch, which cannot be empty.
            self._initial_is_saved = True
            return dict(start)
        # Deleted records count neither as backlog nor against the limits.
        starts = {
            partition: max(start.get(partition, 0), bounds.start_offset)
            for partition, bounds in logs.bounds.items()
        }
        ends = logs.ends()
        if self._targets is not None:
            ends = self._up_to_targets(start, ends)
        elif self._delay is not None and not all_available:
            # A query that ends by itself is not delayed: it would end without its last records.
            size = sum(backlog(starts, ends).values())
            if not self._delay.is_due(size, self._clock.now_ms()):
                return dict(start)
        if not all_available:
            ends = self._limited(starts, ends, logs)
        self._planned = (ends, logs)
        return ends

    def _up_to_targets(self, start: Offsets, ends: Offsets) -> dict[TopicPartition, int]:
        """Return ends that do not exceed the targets; reached targets stay where they are."""
        assert self._targets is not None
        limited: dict[TopicPartition, int] = {}
        for partition, end in ends.items():
            if partition in self._targets or partition in start:
                target = max(self._targets.get(partition, 0), start.get(partition, 0))
                # The log ends earlier if the query continues after data loss.
                limited[partition] = min(end, target)
        return limited

    def newest(self) -> dict[TopicPartition, int] | None:
        """Return the ends of the logs that the last call of `latest` found, for Spark's metrics."""
        return self._latest

    def _limited(self, starts: Offsets, ends: Offsets, logs: _Logs) -> dict[TopicPartition, int]:
        options = self._options
        limited = dict(ends)
        if options.max_offsets_per_trigger is not None:
            limited = limit_offsets(starts, limited, options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            sizes = self._sizes(logs.bounds, backlog(starts, limited))
            limited = limit_bytes(starts, limited, options.max_bytes_per_trigger, sizes)
        return limited

    def _sizes(
        self, bounds: Mapping[TopicPartition, LogBounds], sizes: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, float]:
        """Return the average size of a record in each log.

        The averages are looked up once a minute, and for a partition that had no records before.
        """
        now_ms = self._clock.now_ms()
        unknown = [one for one, size in sizes.items() if size and not self._record_bytes.get(one)]
        expire_ms = self._record_bytes_expire_ms
        if unknown or expire_ms is None or now_ms >= expire_ms:
            self._record_bytes = {
                partition: size / max(1, bounds[partition].size)
                for partition, size in self._lookup.size_bytes(bounds.keys()).items()
            }
            self._record_bytes_expire_ms = now_ms + _SIZES_EXPIRE_MS
            missing = [str(one) for one in unknown if not self._record_bytes.get(one)]
            if missing and not self._has_warned:
                self._has_warned = True
                log.warning(
                    "maxBytesPerTrigger does not limit %s: no broker has reported the size of the"
                    " log; check that this client may describe the cluster",
                    ", ".join(missing),
                )
        return self._record_bytes

    # -- tasks ----------------------------------------------------------------------------------

    def tasks(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """Return the range of each task of a batch; they depend only on the arguments.

        Raises DataLossError unless ``failOnDataLoss`` is false.
        """
        if start == end:
            return []
        # A batch that `latest` has just planned needs no second lookup.
        logs = self._planned[1] if self._planned and self._planned[0] == end else self._look(end)
        self._planned = None
        ranges: list[OffsetRange] = []
        losses = [
            deleted_partition(partition, offset)
            for partition, offset in start.items()
            # A query that is restarted during its first batch may find new partitions.
            if partition not in end and start != self._initial
        ]
        for partition, end_offset in sorted(end.items()):
            # A partition that was added during the query is read from its first record.
            start_offset = start.get(partition, 0)
            if partition not in logs.bounds:
                losses.append(deleted_partition(partition, start_offset))
                continue
            if start_offset > end_offset:
                # A restarted query has found another initial offset, or the log was truncated.
                if start != self._initial:
                    losses.append(truncated_log(partition, start_offset, end_offset))
                continue
            wanted = OffsetRange(
                partition=partition, start_offset=start_offset, end_offset=end_offset
            )
            found, missing = within_log(wanted, logs.bounds[partition])
            ranges.append(found)
            losses += missing
        self._report(losses)
        limits = TaskLimits(
            min_tasks=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )
        return plan_tasks(ranges, limits)

    # -- lost data ------------------------------------------------------------------------------

    def _look(self, known: Offsets, *, skip_missing: bool = False) -> _Logs:
        """Look up all partitions; again if those of `known` seem to have lost records.

        A broker that has just started may not know all topics yet.
        """
        attempts = self._options.offset_lookup_retries
        while True:
            skip_missing = skip_missing or bool(known)
            ids = self._lookup.partitions(self._options.topics, skip_missing=skip_missing)
            try:
                logs = _Logs(ids, self._lookup.bounds(ids.keys()))
            except UnknownTopicOrPartition:
                # A topic was deleted between the two lookups; the first one decides.
                if attempts <= 0 or not skip_missing:
                    raise
            else:
                if attempts <= 0 or logs.contain(known):
                    return logs
            attempts -= 1
            self._clock.sleep(self._options.offset_lookup_retry_interval_ms / 1000)

    def _losses(self, start: Offsets, logs: _Logs) -> list[str]:
        losses: list[str] = []
        for partition, offset in sorted(start.items()):
            bounds = logs.bounds.get(partition)
            if bounds is None:
                losses.append(deleted_partition(partition, offset))
                continue
            topic_id = logs.topic_ids[partition]
            if self._topic_ids.get(partition.topic, topic_id) != topic_id:
                losses.append(recreated_topic(partition, offset))
            elif bounds.end_offset < offset:
                losses.append(truncated_log(partition, offset, bounds.end_offset))
        for partition, topic_id in logs.topic_ids.items():
            # Brokers before KIP-516 return no ids. A recreated topic is then only detected if it is
            # shorter.
            if topic_id is not None:
                self._topic_ids[partition.topic] = topic_id
        return losses

    def _report(self, losses: list[str]) -> None:
        if not losses:
            return
        if self._options.fail_on_data_loss:
            raise data_loss_error(losses)
        log.warning("continuing after data loss: %s", "; ".join(losses))
