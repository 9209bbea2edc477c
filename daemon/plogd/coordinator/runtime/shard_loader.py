"""Filling a shard: the whole log of its partition, replayed.

Finding, reading, checking and decoding a stretch of the log are jobs; the reactor's thread replays
what came out of it, in slices of a few milliseconds, so that clients of other shards do not wait
for it. Records of unknown kinds, which other protocols leave in a log that Kafka has written, are
skipped and counted. So are records that cannot be decoded or replayed: one of them must not stop
every group of its partition. A batch with a wrong checksum ends the load, and so does a disk that
cannot be read: an operator can repair those, and their records must not be forgotten.

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
from plogd.log.segment.cold_read import ColdRead
from plogd.log.segment.file_records import FileRegion
from plogd.ports import Clock, Jobs, Later, Timers

SLICE_MS: Final = 3.0
_RECORDS_BETWEEN_LOOKS = 64
_WARMINGS = 100
"""How often jobs may bring into memory what a look-up needs: an index, its entries, batches."""


class LoadAbandoned(Exception):
    """Nobody wants the shard any more."""


@dataclass(frozen=True, slots=True)
class Undecodable:
    """Records that were skipped because they could not be decoded or replayed."""

    count: int
    first_offset: int
    reason: str

    def and_then(self, later: Undecodable) -> Undecodable:
        """Return both together; the first one's offset and reason."""
        return replace(self, count=self.count + later.count)


class _Batch(NamedTuple):
    """A batch, taken apart; `marker` is set instead of `records` for a control batch."""

    producer_id: int
    next_offset: int
    records: Sequence[Record]
    marker: ControlType | None
    undecodable: Undecodable | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What a load has done."""

    end_offset: int
    records: int
    unknown_records: int
    undecodable: Undecodable | None = None


class LoadGate:
    """Lets one load at a time read a stretch of its log and replay it, in the order they came.

    At a start all shards load. Their slices together would be one long one, and what they have read
    would be in memory at once. Each log directory has a row of its own, for a disk may hang.
    """

    def __init__(self) -> None:
        self._rows: dict[str, deque[Later[None]]] = {}
        """Who waits, by log directory; a row that is there has somebody inside."""

    async def enter(self, log_dir: str) -> None:
        """Wait for one's turn; `leave` has to follow."""
        row = self._rows.get(log_dir)
        if row is None:
            self._rows[log_dir] = deque()
            return
        turn: Later[None] = Later()
        row.append(turn)
        await turn

    def leave(self, log_dir: str) -> None:
        """Let the next one in."""
        row = self._rows[log_dir]
        if row:
            row.popleft().succeed(None)
        else:
            del self._rows[log_dir]


@dataclass(slots=True, kw_only=True)
class ShardLoader(Generic[S]):
    """One load of one shard; `is_wanted` is asked whenever the load has waited."""

    log: Log
    shard: S
    codec: RecordCodec
    read_bytes: int
    max_decompressed_bytes: int
    jobs: Jobs
    begin_read: Callable[[Log, ColdRead], Later[None]]
    """Starts a job that reads, or checks, what a look-up in the log needs."""
    clock: Clock
    timers: Timers
    is_wanted: Callable[[], bool]
    gate: LoadGate
    _records: int = 0
    _unknown: int = 0
    _undecodable: Undecodable | None = None
    _slice_began_ms: float = 0.0

    async def run(self) -> Loaded:
        """Replay everything. Raises KafkaStorageError, LoadAbandoned."""
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            await self.gate.enter(self.log.log_dir)
            try:
                offset = await self._stretch(offset)
            except Exception:
                self.gate.leave(self.log.log_dir)
                raise
            # Not `finally`: the collector closes the load of a broker that is gone from memory, and
            # must not run the next one.
            self.gate.leave(self.log.log_dir)
        return Loaded(
            end_offset=offset,
            records=self._records,
            unknown_records=self._unknown,
            undecodable=self._undecodable,
        )

    async def _stretch(self, offset: int) -> int:
        """Replay the next batches from `offset` on; the offset after them."""
        self._continue()
        batches = await self._read(offset)
        self._continue()
        self._slice_began_ms = self.clock.monotonic_ms()
        for batch in batches:
            await self._replay(batch)
        return batches[-1].next_offset

    def _continue(self) -> None:
        if not self.is_wanted():
            raise LoadAbandoned

    async def _read(self, offset: int) -> list[_Batch]:
        """The next batches from `offset` on, at least one."""
        try:
            region = await self._find(offset)
            batches = []
            if region is not None:
                max_bytes = self.max_decompressed_bytes
                batches = await self.jobs.submit(
                    self._lane, lambda: _take_apart(region, offset, max_bytes)
                )
        except (PlogError, OSError) as error:
            raise self._unreadable(offset, error) from error
        if not batches:
            raise self._unreadable(offset, "there is no batch")
        return batches

    async def _find(self, offset: int) -> FileRegion | None:
        """Where the next batches are; what the look-up has to read is read by jobs."""
        log = self.log
        for _ in range(_WARMINGS):
            try:
                return log.read(
                    offset, self.read_bytes, end_offset=log.log_end_offset, nowait=True
                ).region
            except ColdRead as cold:
                await self.begin_read(log, cold)
                self._continue()
        raise self._unreadable(offset, "the page cache does not hold what was just read")

    @property
    def _lane(self) -> str:
        return f"load:{self.log.log_dir}"

    async def _replay(self, batch: _Batch) -> None:
        if batch.undecodable is not None:
            self._skip(batch.undecodable)
        if batch.marker is not None:
            if batch.marker in (ControlType.ABORT, ControlType.COMMIT):
                committed = batch.marker is ControlType.COMMIT
                self.shard.replay_end_marker(batch.producer_id, committed=committed)
            return
        for record in batch.records:
            self._replay_record(record, batch.producer_id)
            self._records += 1
            if self._records % _RECORDS_BETWEEN_LOOKS == 0:
                await self._breathe()

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
        except Exception as error:  # Whatever it breaks, the groups of the other records go on.
            reason = str(error) if isinstance(error, WireError | KafkaError) else repr(error)
            self._skip(Undecodable(1, record.offset, reason))

    def _skip(self, undecodable: Undecodable) -> None:
        before = self._undecodable
        self._undecodable = undecodable if before is None else before.and_then(undecodable)

    async def _breathe(self) -> None:
        """Let others have the thread, if this slice has had its time."""
        if self.clock.monotonic_ms() - self._slice_began_ms < SLICE_MS:
            return
        turn: Later[None] = Later()
        self.timers.call_later(0, lambda: turn.succeed(None))
        await turn
        self._continue()
        self._slice_began_ms = self.clock.monotonic_ms()

    def _unreadable(self, offset: int, why: object) -> KafkaStorageError:
        return KafkaStorageError(
            f"{self.log.topic_partition}: cannot load the record at offset {offset}: {why}"
        )


def _take_apart(region: FileRegion, offset: int, max_decompressed_bytes: int) -> list[_Batch]:
    """A job: the whole batches of `region` with their records, those below `offset` left out."""
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
        in_transaction = header.is_transactional or header.is_control
        producer_id = header.producer_id if in_transaction else -1
        records: list[Record] = []
        marker = undecodable = None
        try:
            records = read_records(data, position, header, max_bytes=max_decompressed_bytes)
            if header.is_control and records:
                marker = decode_control_key(records[0].key)
        except KafkaError as error:  # The checksum is right: it was written like that.
            count = max(1, header.records_count)
            undecodable = Undecodable(count, header.base_offset, error.message)
        records = [] if header.is_control else [one for one in records if one.offset >= offset]
        batches.append(_Batch(producer_id, header.next_offset, records, marker, undecodable))
    return batches
