"""Load a shard by replaying the whole log of its partition.

Jobs find, read, check and decode a chunk of the log. The reactor thread then replays its records in
slices of a few milliseconds, so that clients that use other shards do not have to wait. In a log
written by Kafka, other protocols leave records of unknown types, which are skipped and counted.
Records that cannot be decoded or replayed are also skipped: a single invalid record must not make
all groups of its partition unavailable. An incorrect checksum or a read error aborts the load: an
operator may be able to repair the log, whereas skipping the batch would lose its records.

Source: Kafka 4.0 CoordinatorLoaderImpl.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, NamedTuple

from plog.errors import KafkaError, KafkaStorageError, PlogError
from plog.records.batch import crc_is_valid, iter_batches
from plog.records.codec import Record
from plog.records.control import ControlType, decode_control_key
from plog.records.reader import read_records
from plog.wire.primitives import WireError
from plogd.coordinator.runtime.coordinator_result import CoordinatorRecord
from plogd.coordinator.runtime.shard import RecordCodec, S
from plogd.log.log import Log
from plogd.log.segment.file_records import FileRegion
from plogd.log.segment.uncached_lookup import UncachedLookup
from plogd.ports import Later, Ports

SLICE_MS: Final = 3.0
# Reading the clock also takes time, so it is not read for every record.
_RECORDS_PER_CLOCK_CHECK = 64
_MAX_COLD_READS = 16
"""Maximum number of jobs that read cold data for one lookup: an index, its entries, batches."""


class LoadAbandoned(Exception):
    """The shard was unloaded or reloaded while this load was in progress."""


@dataclass(frozen=True, slots=True)
class Undecodable:
    """Records that were skipped because they could not be decoded or replayed."""

    count: int
    first_offset: int
    reason: str

    def and_then(self, later: Undecodable) -> Undecodable:
        """Return a copy that also counts the records of `later`."""
        return replace(self, count=self.count + later.count)


class _Batch(NamedTuple):
    """A parsed batch; a control batch has `marker` instead of `records`."""

    producer_id: int
    next_offset: int
    records: Sequence[Record]
    marker: ControlType | None
    undecodable: Undecodable | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The result of a load."""

    end_offset: int
    records: int
    unknown_records: int
    undecodable: Undecodable | None = None


class LoadGate:
    """Lets one load at a time read and replay a chunk of its log, in order of arrival.

    All shards are loaded when the broker starts. The slices of concurrent loads would add up to a
    long pause, and all their chunks would be in memory at the same time. Each log directory has its
    own queue, so that a disk that hangs does not block the loads from other disks.
    """

    def __init__(self) -> None:
        self._queues: dict[str, deque[Later[None]]] = {}
        """Waiting loads by log directory; a directory has a queue while one of its loads is inside
        the gate."""

    async def enter(self, log_dir: str) -> None:
        """Wait for a turn; the caller must call `leave` afterward."""
        queue = self._queues.get(log_dir)
        if queue is None:
            self._queues[log_dir] = deque()
            return
        turn: Later[None] = Later()
        queue.append(turn)
        await turn

    def leave(self, log_dir: str) -> None:
        """Let the next load enter."""
        queue = self._queues[log_dir]
        if queue:
            queue.popleft().succeed(None)
        else:
            del self._queues[log_dir]


@dataclass(slots=True, kw_only=True)
class ShardLoader(Generic[S]):
    """A load of one shard. After each wait, it calls `is_wanted`, and stops if that is False."""

    log: Log
    shard: S
    codec: RecordCodec
    read_bytes: int
    max_decompressed_bytes: int
    ports: Ports
    begin_read: Callable[[Log, UncachedLookup], Later[None]]
    """Starts a job that reads, or checks, the data that a lookup in the log needs."""
    is_wanted: Callable[[], bool]
    gate: LoadGate
    _records: int = 0
    _unknown: int = 0
    _undecodable: Undecodable | None = None
    _slice_started_ms: float = 0.0

    async def run(self) -> Loaded:
        """Replay the whole log. Raises KafkaStorageError, LoadAbandoned."""
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            await self.gate.enter(self.log.log_dir)
            try:
                offset = await self._load_chunk(offset)
            except Exception:
                self.gate.leave(self.log.log_dir)
                raise
            # Not `finally`: when a discarded broker is garbage-collected, its pending load is
            # closed, and that must not start the next one.
            self.gate.leave(self.log.log_dir)
        return Loaded(
            end_offset=offset,
            records=self._records,
            unknown_records=self._unknown,
            undecodable=self._undecodable,
        )

    async def _load_chunk(self, offset: int) -> int:
        """Replay the next batches from `offset` on; return the offset after them."""
        self._check_wanted()
        batches = await self._read(offset)
        self._check_wanted()
        self._slice_started_ms = self.ports.clock.monotonic_ms()
        for batch in batches:
            await self._replay(batch)
        return batches[-1].next_offset

    def _check_wanted(self) -> None:
        if not self.is_wanted():
            raise LoadAbandoned

    async def _read(self, offset: int) -> list[_Batch]:
        """Return the next batches from `offset` on, at least one."""
        # Disk errors become KafkaErrors, because the runtime reports all other errors as bugs.
        try:
            region = await self._find(offset)
            batches = []
            if region is not None:
                max_bytes = self.max_decompressed_bytes
                batches = await self.ports.jobs.submit(
                    self._lane, lambda: _parse_batches(region, offset, max_bytes)
                )
        except (PlogError, OSError) as error:
            raise self._unreadable(offset, error) from error
        if not batches:
            raise self._unreadable(offset, "did not find a batch")
        return batches

    async def _find(self, offset: int) -> FileRegion | None:
        """Return the location of the next batches; jobs read the data that the lookup needs."""
        for _ in range(_MAX_COLD_READS):
            try:
                return self._look_up(offset, nowait=True)
            except UncachedLookup as cold:
                await self.begin_read(self.log, cold)
                self._check_wanted()
        # If memory or descriptors are short, what a job has read or opened may be gone before the
        # next attempt, every time. The last attempt therefore blocks for the disk.
        return self._look_up(offset, nowait=False)

    def _look_up(self, offset: int, *, nowait: bool) -> FileRegion | None:
        """Return the location of the next batches. With `nowait`, raises UncachedLookup."""
        # Read up to the log end, not the high watermark, because the state must include all records
        # before those of the next operation.
        end_offset = self.log.log_end_offset
        return self.log.read(offset, self.read_bytes, end_offset=end_offset, nowait=nowait).region

    @property
    def _lane(self) -> str:
        return f"load:{self.log.log_dir}"

    async def _replay(self, batch: _Batch) -> None:
        if batch.undecodable is not None:
            self._skip(batch.undecodable)
        if batch.marker is not None:
            # Other control records do not end a transaction.
            if batch.marker in (ControlType.ABORT, ControlType.COMMIT):
                committed = batch.marker is ControlType.COMMIT
                self.shard.replay_end_marker(batch.producer_id, committed=committed)
            return
        for record in batch.records:
            self._replay_record(record, batch.producer_id)
            self._records += 1
            if self._records % _RECORDS_PER_CLOCK_CHECK == 0:
                await self._yield_if_due()

    def _replay_record(self, record: Record, producer_id: int) -> None:
        try:
            decoded = self.codec.decode(record.key, record.value)
            if decoded is None:
                self._unknown += 1
                return
            key, value = decoded
            self.shard.replay(
                CoordinatorRecord(key, value), offset=record.offset, producer_id=producer_id
            )
        except Exception as error:  # An invalid record must not affect other groups.
            reason = str(error) if isinstance(error, WireError | KafkaError) else repr(error)
            self._skip(Undecodable(1, record.offset, reason))

    def _skip(self, undecodable: Undecodable) -> None:
        # Only the first problem is reported, because a log can contain thousands of them.
        before = self._undecodable
        self._undecodable = undecodable if before is None else before.and_then(undecodable)

    async def _yield_if_due(self) -> None:
        """Yield to other work if this slice has used up its time."""
        if self.ports.clock.monotonic_ms() - self._slice_started_ms < SLICE_MS:
            return
        turn: Later[None] = Later()
        self.ports.timers.call_later(0, lambda: turn.succeed(None))
        await turn
        self._check_wanted()
        self._slice_started_ms = self.ports.clock.monotonic_ms()

    def _unreadable(self, offset: int, why: object) -> KafkaStorageError:
        return KafkaStorageError(
            f"cannot load the record at offset {offset} in {self.log.topic_partition}: {why}"
        )


def _parse_batches(region: FileRegion, offset: int, max_decompressed_bytes: int) -> list[_Batch]:
    """Return the complete batches of `region`, without records below `offset`. Runs in a job."""
    try:
        data = region.read()
    finally:
        region.close()
    batches = []
    for position, header in iter_batches(data):
        if header.next_offset <= offset:
            continue
        if not crc_is_valid(data, position, header):
            raise KafkaStorageError(f"the batch at offset {header.base_offset} is damaged")
        # Records of idempotent producers also have a producer id but take effect immediately.
        in_transaction = header.is_transactional or header.is_control
        producer_id = header.producer_id if in_transaction else -1
        records: list[Record] = []
        marker = undecodable = None
        try:
            records = read_records(data, position, header, max_bytes=max_decompressed_bytes)
            if header.is_control and records:
                marker = decode_control_key(records[0].key)
        except KafkaError as error:  # The checksum is correct, so the batch was written that way.
            # At least 1, so that the batch is reported even if its header counts no records.
            count = max(1, header.records_count)
            undecodable = Undecodable(count, header.base_offset, error.message)
        # DeleteRecords can move the log start offset into the middle of a batch.
        records = [] if header.is_control else [one for one in records if one.offset >= offset]
        batches.append(_Batch(producer_id, header.next_offset, records, marker, undecodable))
    return batches
