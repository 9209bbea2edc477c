"""One shard on one partition: loaded, written, read, and let go.

    LOADING --> ACTIVE            all of the log is replayed
    LOADING --> FAILED            the log cannot be read; tried again after a while
    any     --> CLOSED            the partition is not ours any more, or its disk has failed

An operation runs at once, on state that has every record appended so far. Its records are appended
as one batch, so that a crash leaves all or none of them, and then replayed; its answer waits until
they are below the high watermark (rule R8), as does the answer of one that only reads. A failed
append changes nothing. Between an operation and its replay nobody else has the thread. On a slow
disk an append may turn out to have failed after its replay; then the shard loads anew.

Such appends do not wait for room among the unsynced bytes, as produced records do: the operation
would be answered from state that others have changed meanwhile. They are small, and a client waits
for one answer at a time.

Source: Kafka 4.0 CoordinatorRuntime.CoordinatorContext.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Generic, TypeVar

from plog.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    NotCoordinator,
    NotLeaderOrFollower,
    RecordListTooLarge,
)
from plog.records.batch import HEADER_SIZE, Compression
from plog.records.builder import build_batch
from plog.records.codec import Record
from plogd.config import BrokerConfig
from plogd.coordinator.runtime.coordinator_result import CoordinatorRecord, Result
from plogd.coordinator.runtime.deferred_events import DeferredEvents, answer_of, refuse, tell
from plogd.coordinator.runtime.event_timers import EventTimers
from plogd.coordinator.runtime.shard import S, ShardKind
from plogd.coordinator.runtime.shard_loader import Loaded, LoadGate, ShardLoader
from plogd.log.batch_validator import AppendOrigin
from plogd.log.log_results import Writing
from plogd.metrics import Counter
from plogd.ports import Clock, Jobs, Later, Report, Timer, Timers, failed, spawn
from plogd.replica.partition import ACKS_ALL, Partition
from plogd.replica.replica_manager import ReplicaManager

T = TypeVar("T")

LOAD_RETRY_MS: Final = 10_000.0
_RECORD_OVERHEAD_BYTES = 32
"""More than a record takes besides its key and value."""


class RecordsTooLarge(KafkaError):
    """The records of one operation do not fit into a batch."""


class ShardState(Enum):
    """Where a shard is; the values are those of Kafka's metrics."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What shards are given besides their partition."""

    replica_manager: ReplicaManager
    config: Callable[[], BrokerConfig]
    clock: Clock
    timers: Timers
    jobs: Jobs
    report: Report
    on_bug: Callable[[str, Exception], None]
    skipped_records: Counter = field(default_factory=Counter)
    """Counts records that could not be replayed at a load."""


class ShardRuntime(Generic[S]):
    """See the module's text."""

    def __init__(
        self, partition: Partition, kind: ShardKind[S], around: Surroundings, gate: LoadGate
    ) -> None:
        self.partition = partition
        self._gate = gate
        self.state = ShardState.LOADING
        self._kind = kind
        self._around = around
        self._load_number = 0
        self._retry: Timer | None = None
        self._end_offset = 0
        """The end of what is replayed."""
        self._newest_writing: Writing | None = None
        """Of the newest append, where a job writes it: if one before it fails it does, too."""
        self._waiting = DeferredEvents(
            clock=around.clock,
            timers=around.timers,
            timeout_ms=lambda: around.config().offsets_commit_timeout_ms,
            timed_out=lambda: CoordinatorNotAvailable(
                f"{partition.topic_partition}: the records were written, but did not become safe "
                "within offsets.commit.timeout.ms"
            ),
            on_bug=around.on_bug,
        )
        self._after_load: list[Callable[[], object]] = []
        self._running_loads: list[Later[None]] = []
        """One that nobody wants any more goes on until its read is done."""
        around.replica_manager.listen(partition.topic_partition, self._progress)
        self._load()

    def __str__(self) -> str:
        return f"the coordinator of {self.partition.topic_partition}"

    # -- loading and letting go ---------------------------------------------------------------

    def _load(self) -> None:
        self.state = ShardState.LOADING
        self._retry = None
        self._load_number += 1
        self._newest_writing = None
        number = self._load_number
        self._timers = EventTimers(
            self._around.timers, lambda run: self.write(lambda _: run()), self._around.on_bug
        )
        self._shard = self._kind.make_shard(self._timers)
        loader = ShardLoader(
            log=self.partition.log,
            shard=self._shard,
            codec=self._kind.codec,
            read_bytes=self._around.config().offsets_load_buffer_size,
            max_decompressed_bytes=self._around.config().plog_decompressed_batch_max_bytes,
            jobs=self._around.jobs,
            begin_read=self._around.replica_manager.begin_read,
            clock=self._around.clock,
            timers=self._around.timers,
            is_wanted=lambda: number == self._load_number,
            gate=self._gate,
        )

        running: Later[None] = Later()
        self._running_loads.append(running)

        def loaded(outcome: Loaded) -> None:
            self._running_loads.remove(running)
            self._loaded(outcome)
            running.succeed(None)

        def ended(error: Exception) -> None:
            self._running_loads.remove(running)
            if number == self._load_number:  # Else it is not this shard's any more.
                self._give_up(error)
            running.succeed(None)

        spawn(loader.run()).then(loaded, ended)

    def _loaded(self, loaded: Loaded) -> None:
        self._end_offset = loaded.end_offset
        self.state = ShardState.ACTIVE
        if loaded.records:
            self._around.report(
                "loaded {count} records of {partition}",
                count=loaded.records,
                partition=str(self.partition.topic_partition),
            )
        if loaded.unknown_records:
            self._around.report(
                "passed over {count} records of {partition} that belong to protocols this broker "
                "does not speak: consumer, share or streams groups",
                count=loaded.unknown_records,
                partition=str(self.partition.topic_partition),
                level="warn",
            )
        if loaded.undecodable is not None:
            self._around.skipped_records.inc(loaded.undecodable.count)
            self._around.report(
                "skipped {count} records of {partition} that cannot be replayed, the first at"
                " offset {offset}: {reason}; the groups and offsets they describe are lost",
                count=loaded.undecodable.count,
                partition=str(self.partition.topic_partition),
                offset=loaded.undecodable.first_offset,
                reason=loaded.undecodable.reason,
                level="error",
            )
        try:
            self._shard.on_loaded()
        except Exception as error:
            self._give_up(error)
            return
        after_load, self._after_load = self._after_load, []
        for call in after_load:
            call()

    def _give_up(self, error: Exception, *, load_after_ms: float = LOAD_RETRY_MS) -> None:
        """Forget the shard, and load it anew after a while."""
        if self.state is ShardState.CLOSED:
            return
        if not isinstance(error, KafkaError):
            self._around.on_bug(str(self), error)
        self._around.report(
            "{shard} cannot go on, and loads anew in {seconds} s: {error}",
            shard=str(self),
            seconds=int(load_after_ms / 1000),
            error=str(error),
            level="error",
        )
        self._let_go(ShardState.FAILED, NotCoordinator(f"{self} could not be loaded: {error}"))
        self._retry = self._around.timers.call_later(load_after_ms, self._load)

    def close(self, error: KafkaError) -> None:
        """Look after the shard no more: whoever waits gets `error`."""
        if self.state is ShardState.CLOSED:
            return
        self._around.replica_manager.stop_listening(self.partition.topic_partition)
        self._after_load.clear()
        self._let_go(ShardState.CLOSED, error)

    async def loads_ended(self) -> None:
        """Wait until nothing reads the log for this shard any more; once, when it is closed."""
        for running in self._running_loads[:]:
            await running

    def _let_go(self, state: ShardState, error: KafkaError) -> None:
        has_state = self.state in (ShardState.LOADING, ShardState.ACTIVE)
        self.state = state
        self._load_number += 1
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self._timers.stop()
        self._waiting.refuse_all(error)
        if has_state:  # What a failed load has replayed counts in the bounds, too.
            try:
                self._shard.on_unloaded(error)
            except Exception as problem:
                self._around.on_bug(f"unloading {self}", problem)

    def _progress(self) -> None:
        """The high watermark has moved, writes have ended, or the partition is lost."""
        self._check_written()
        problem = self.partition.problem()
        if problem is not None:
            self.close(NotCoordinator(f"{self} is gone: {problem.message}"))
        else:
            self._waiting.safe_until(self.partition.high_watermark)

    def _check_written(self) -> None:
        """Load anew if what was replayed is not in the log after all."""
        writing = self._newest_writing
        if writing is not None and writing.error is not None and self.state is ShardState.ACTIVE:
            self._give_up(writing.error, load_after_ms=0.0)

    # -- operations ---------------------------------------------------------------------------

    @property
    def shard(self) -> S:
        """The state. Raises CoordinatorLoadInProgress, NotCoordinator."""
        self._check_written()
        if self.state is ShardState.LOADING:
            raise CoordinatorLoadInProgress(f"{self} is being loaded")
        problem = self.partition.problem()
        if self.state is not ShardState.ACTIVE or problem is not None:
            why = problem.message if problem is not None else "it could not be loaded"
            raise NotCoordinator(f"{self} is not here: {why}")
        return self._shard

    def when_loaded(self, call: Callable[[], object]) -> None:
        """Call when the shard is active, now if it is; never if it is let go before."""
        if self.state is ShardState.ACTIVE:
            call()
        elif self.state is not ShardState.CLOSED:
            self._after_load.append(call)

    def write(self, operation: Callable[[S], Result[T]], *, atomic: bool = True) -> Later[T]:
        """Run `operation`, append and replay its records; its answer, once they are safe.

        Without `atomic` the records may be spread over several batches, where there are many. Fails
        with what the operation raises, or with NotCoordinator, CoordinatorLoadInProgress,
        CoordinatorNotAvailable, RecordsTooLarge.
        """
        try:
            result = operation(self.shard)
        except Exception as error:
            return failed(error)
        try:
            self._append_all(result, atomic)
        except Exception as error:
            answer = answer_of(result)
            refuse(result, answer, _for_client(error))
            return answer
        if not self._waiting and self.partition.high_watermark >= self._end_offset:
            answer = answer_of(result)
            tell(result, answer)
            return answer
        return self._waiting.add(result, self._end_offset)

    def read(self, operation: Callable[[S], T]) -> Later[T]:
        """What `operation` returns, once all it could see is safe. Fails as `write` does."""
        return self.write(lambda shard: Result(response=operation(shard)))

    def _append_all(self, result: Result[Any], atomic: bool) -> None:
        if not result.records:
            return
        now_ms = self._around.clock.now_ms()
        encoded = self._encoded(result.records, now_ms, atomic)
        for start, end in self._shares(encoded, atomic):
            first_offset = self._append(encoded[start:end], now_ms)
            if result.replay:
                self._replay(result.records[start:end], first_offset)

    def _encoded(
        self, records: Sequence[CoordinatorRecord], now_ms: int, atomic: bool
    ) -> list[Record]:
        """The records as they are written. Raises RecordListTooLarge once they cannot fit."""
        codec = self._kind.codec
        compression = self._around.config().offsets_topic_compression_codec
        is_bounded = atomic and compression == Compression.NONE
        room = self.partition.log.config.max_message_bytes - HEADER_SIZE
        encoded: list[Record] = []
        for record in records:
            key, value = codec.encode_key(record.key), codec.encode_value(record.value)
            encoded.append(Record(timestamp=now_ms, key=key, value=value))
            room -= len(key) + len(value or b"")
            if is_bounded and room < 0:
                raise RecordListTooLarge(
                    f"{len(records)} records, of which {len(encoded)} exceed max.message.bytes"
                )
        return encoded

    def _shares(self, encoded: Sequence[Record], atomic: bool) -> Iterator[tuple[int, int]]:
        """Which records go into one batch, as ranges."""
        if atomic:
            yield 0, len(encoded)
            return
        room = self.partition.log.config.max_message_bytes - HEADER_SIZE
        start, size_bytes = 0, 0
        for index, record in enumerate(encoded):
            nbytes = len(record.key or b"") + len(record.value or b"") + _RECORD_OVERHEAD_BYTES
            if size_bytes + nbytes > room and index > start:
                yield start, index
                start, size_bytes = index, 0
            size_bytes += nbytes
        yield start, len(encoded)

    def _append(self, records: Sequence[Record], now_ms: int) -> int:
        """Append one batch; its first offset. Raises KafkaError with nothing appended."""
        codec = Compression(self._around.config().offsets_topic_compression_codec)
        batch = bytearray(build_batch(records, compression=codec))
        info = self.partition.append_records_to_leader(
            memoryview(batch),
            required_acks=ACKS_ALL,
            now_ms=now_ms,
            origin=AppendOrigin.COORDINATOR,
        )
        self._end_offset = info.last_offset + 1
        self._newest_writing = info.writing
        return info.first_offset

    def _replay(self, records: Sequence[CoordinatorRecord], first_offset: int) -> None:
        try:
            for offset, record in enumerate(records, first_offset):
                self._shard.replay(record, offset=offset, producer_id=-1)
        except Exception as error:  # What is in the log and what is in memory differ now.
            self._give_up(error)
            raise NotCoordinator(f"{self} has to load anew") from error


def _for_client(error: Exception) -> Exception:
    """What a client is told of a failed append: Kafka's mapping, so that it looks for us anew."""
    match error:
        case NotCoordinator():
            return error
        case MessageTooLarge() | RecordListTooLarge():
            return RecordsTooLarge(
                f"the records of the request do not fit into one batch: {error.message}"
            )
        case NotLeaderOrFollower() | KafkaStorageError():
            return NotCoordinator(f"the coordinator cannot write: {error.message}")
        case KafkaError():
            return CoordinatorNotAvailable(f"the coordinator cannot write: {error.message}")
        case _:
            return error
