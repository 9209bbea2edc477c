"""The runtime of one shard on its partition: loading, writes, reads and unloading.

    LOADING --> ACTIVE            the whole log is replayed
    LOADING --> FAILED            the log cannot be read; the shard reloads after a delay
    ACTIVE  --> FAILED            a replay or a delayed write failed; the shard reloads
    any     --> CLOSED            this broker lost the partition, or its disk has failed

An operation runs immediately, on state that includes every record appended so far. Its records are
appended as one batch, so that a crash keeps either all of them or none, and then replayed. The
response waits until the records are below the high watermark (rule R8); a response to a read waits
in the same way. A failed append does not change anything. No other code runs on the thread between
an operation and its replay. On a slow disk, a write can fail after its replay; the shard then
reloads.

Unlike produced records, these appends do not wait when too many bytes are unsynced: in the
meantime, other operations would change the state on which the response is based. The appends are
small, and a client waits for one response at a time.

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
from plogd.coordinator.runtime.deferred_events import DeferredEvents, complete, fail, new_answer
from plogd.coordinator.runtime.event_timers import EventTimers
from plogd.coordinator.runtime.shard import S, ShardKind
from plogd.coordinator.runtime.shard_loader import Loaded, LoadGate, ShardLoader
from plogd.log.batch_validator import AppendOrigin
from plogd.log.log_results import Writing
from plogd.metrics import Counter
from plogd.ports import Later, Ports, Timer, failed, spawn
from plogd.replica.partition import ACKS_ALL, Partition
from plogd.replica.replica_manager import ReplicaManager

T = TypeVar("T")

# Kafka does not reload a failed shard until the partition's leader changes. On a single broker, the
# leader never changes.
LOAD_RETRY_MS: Final = 10_000.0
_RECORD_OVERHEAD_BYTES = 32
"""Maximum size of a record without its key and value.

It consists of the attributes (1 byte), the timestamp delta (10), the length, the offset delta, the
lengths of key and value (5 each) and the number of headers, which is 0 (1).
"""


class RecordsTooLarge(KafkaError):
    """The records of one operation do not fit in a batch."""


class ShardState(Enum):
    """The state of a shard; the values are the same as in Kafka's metrics."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeContext:
    """The objects that all shards share: ports, configuration and the replica manager."""

    replica_manager: ReplicaManager
    config: Callable[[], BrokerConfig]
    ports: Ports
    on_bug: Callable[[str, Exception], None]
    skipped_records: Counter = field(default_factory=Counter)
    """Counts records that could not be replayed during loading."""


class ShardRuntime(Generic[S]):
    """A shard of coordinator state with its partition and its pending responses.

    It loads itself when it is created, and reloads after a failure until `close` is called.
    """

    def __init__(
        self, partition: Partition, kind: ShardKind[S], context: RuntimeContext, gate: LoadGate
    ) -> None:
        self.partition = partition
        self._gate = gate
        self.state = ShardState.LOADING
        self._kind = kind
        self._context = context
        self._clock = context.ports.clock
        self._report = context.ports.report
        self._load_number = 0
        self._retry: Timer | None = None
        self._end_offset = 0
        """The offset after the last replayed record."""
        self._newest_writing: Writing | None = None
        """The newest append, if a job writes it. If an earlier one fails, this one also fails."""
        self._deferred = DeferredEvents(
            clock=context.ports.clock,
            timers=context.ports.timers,
            timeout_ms=lambda: context.config().offsets_commit_timeout_ms,
            timeout_error=lambda: CoordinatorNotAvailable(
                f"{partition.topic_partition}: the records were written but did not become durable"
                " within offsets.commit.timeout.ms"
            ),
            on_bug=context.on_bug,
        )
        self._after_load: list[Callable[[], object]] = []
        self._running_loads: list[Later[None]] = []
        """Loads in progress. An abandoned load continues until its current read has ended."""
        context.replica_manager.listen(partition.topic_partition, self._progress)
        self._load()

    def __str__(self) -> str:
        return f"the coordinator of {self.partition.topic_partition}"

    # -- loading and unloading ----------------------------------------------------------------

    def _load(self) -> None:
        self.state = ShardState.LOADING
        self._retry = None
        self._load_number += 1
        self._newest_writing = None
        self._leader_epoch = self.partition.leader_epoch
        number = self._load_number
        self._timers = EventTimers(
            self._context.ports.timers,
            lambda run: self._write(lambda _: run()),
            self._context.on_bug,
        )
        # New state: a failed load may have replayed a part of the log, and its timers are stopped.
        self._shard = self._kind.make_shard(self._timers)
        loader = ShardLoader(
            log=self.partition.log,
            shard=self._shard,
            codec=self._kind.codec,
            read_bytes=self._context.config().offsets_load_buffer_size,
            max_decompressed_bytes=self._context.config().plog_decompressed_batch_max_bytes,
            ports=self._context.ports,
            begin_read=self._context.replica_manager.begin_read,
            is_wanted=lambda: number == self._load_number,
            gate=self._gate,
        )

        running: Later[None] = Later()
        self._running_loads.append(running)

        def loaded(outcome: Loaded) -> None:
            # Only the newest load gets here: an abandoned one raises LoadAbandoned.
            self._running_loads.remove(running)
            self._on_loaded(outcome)
            running.succeed(None)

        def failed_load(error: Exception) -> None:
            self._running_loads.remove(running)
            if number == self._load_number:  # Otherwise, the load was abandoned.
                self._fail(error)
            running.succeed(None)

        spawn(loader.run()).then(loaded, failed_load)

    def _on_loaded(self, loaded: Loaded) -> None:
        self._end_offset = loaded.end_offset
        self.state = ShardState.ACTIVE
        if loaded.records:
            self._report(
                "loaded {count} records from {topic_partition}",
                count=loaded.records,
                topic_partition=self.partition.topic_partition,
            )
        if loaded.unknown_records:
            self._report(
                "skipped {count} records in {topic_partition} that belong to protocols this"
                " broker does not support: consumer, share or streams groups",
                count=loaded.unknown_records,
                topic_partition=self.partition.topic_partition,
                level="warn",
            )
        if loaded.undecodable is not None:
            self._context.skipped_records.inc(loaded.undecodable.count)
            self._report(
                "skipped {count} records in {topic_partition} that cannot be replayed, the first"
                " at offset {offset}: {reason}; their groups and offsets are lost",
                count=loaded.undecodable.count,
                topic_partition=self.partition.topic_partition,
                offset=loaded.undecodable.first_offset,
                reason=loaded.undecodable.reason,
                level="error",
            )
        try:
            self._shard.on_loaded()
        except Exception as error:
            self._fail(error)
            return
        after_load, self._after_load = self._after_load, []
        for call in after_load:
            call()

    def _fail(self, error: Exception, *, reload_after_ms: float = LOAD_RETRY_MS) -> None:
        """Unload the shard and reload it after a delay."""
        if self.state is ShardState.CLOSED:
            return
        if not isinstance(error, KafkaError):
            self._context.on_bug(str(self), error)
        self._report(
            "{shard} failed and will reload in {seconds} s: {error}",
            shard=str(self),
            topic_partition=self.partition.topic_partition,
            seconds=int(reload_after_ms / 1000),
            error=str(error),
            level="error",
        )
        self._unload(ShardState.FAILED, NotCoordinator(f"{self} could not be loaded: {error}"))
        self._retry = self._context.ports.timers.call_later(reload_after_ms, self._load)

    def close(self, error: KafkaError) -> None:
        """Unload the shard permanently; pending requests fail with `error`."""
        if self.state is ShardState.CLOSED:
            return
        self._context.replica_manager.stop_listening(self.partition.topic_partition)
        self._after_load.clear()
        self._unload(ShardState.CLOSED, error)

    async def loads_ended(self) -> None:
        """Wait for the loads of a closed shard to stop reading the log."""
        for running in self._running_loads[:]:
            await running

    def _unload(self, state: ShardState, error: KafkaError) -> None:
        has_state = self.state in (ShardState.LOADING, ShardState.ACTIVE)
        self.state = state
        self._load_number += 1  # A load in progress stops at its next check.
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        # Stop the timers first, because callbacks of failed events may schedule operations.
        self._timers.stop()
        self._deferred.fail_all(error)
        if has_state:  # State replayed by a failed load also counts toward the memory bounds.
            try:
                self._shard.on_unloaded(error)
            except Exception as problem:
                self._context.on_bug(f"unloading {self}", problem)

    def _progress(self) -> None:
        """Complete responses up to the high watermark; close the shard if its partition is lost."""
        self._check_written()
        problem = self._problem()
        if problem is not None:
            self.close(NotCoordinator(f"{self} was unloaded: {problem.message}"))
        else:
            self._deferred.complete_up_to(self.partition.high_watermark)

    def _problem(self) -> KafkaError | None:
        """Return why the loaded state must not be used, or None."""
        problem = self.partition.problem()
        if problem is None and self.partition.leader_epoch != self._leader_epoch:
            # Rule C5: another broker may have led the partition, and written other records.
            return NotLeaderOrFollower(
                f"the leader epoch of {self.partition.topic_partition} has changed from"
                f" {self._leader_epoch} to {self.partition.leader_epoch}"
            )
        return problem

    def _check_written(self) -> None:
        """Reload the shard if a write whose records were already replayed has failed."""
        writing = self._newest_writing
        if writing is not None and writing.error is not None and self.state is ShardState.ACTIVE:
            # Reload without a delay: the log is readable; only the state in memory is ahead of it.
            self._fail(writing.error, reload_after_ms=0.0)

    # -- operations ---------------------------------------------------------------------------

    @property
    def shard(self) -> S:
        """The state of the shard. Raises CoordinatorLoadInProgress, NotCoordinator."""
        self._check_written()
        if self.state is ShardState.LOADING:
            raise CoordinatorLoadInProgress(f"{self} is being loaded")
        problem = self._problem()
        if self.state is not ShardState.ACTIVE or problem is not None:
            why = problem.message if problem is not None else "it could not be loaded"
            raise NotCoordinator(f"{self} is not available on this broker: {why}")
        return self._shard

    def when_loaded(self, call: Callable[[], object]) -> None:
        """Call `call` as soon as the shard is active, but never if the shard closes first."""
        if self.state is ShardState.ACTIVE:
            call()
        elif self.state is not ShardState.CLOSED:
            self._after_load.append(call)

    def write(self, operation: Callable[[S], Result[T]], *, atomic: bool = True) -> Later[T]:
        """Run `operation`, append and replay its records, and respond once they are durable.

        Without `atomic`, the records can be split into several batches. Fails with the error that
        the operation raises, or with NotCoordinator, CoordinatorLoadInProgress,
        CoordinatorNotAvailable, RecordsTooLarge.
        """
        try:
            self._check_lease()
        except KafkaError as error:
            return failed(error)
        return self._write(operation, atomic=atomic)

    def _check_lease(self) -> None:
        """Raise NotCoordinator if another broker may be the coordinator already (rule C3).

        The shard stays loaded, and its timers run: if no other broker is elected, it continues.
        """
        if self.partition.remote is not None:
            try:
                self.partition.remote.check_lease()
            except NotLeaderOrFollower as error:
                raise NotCoordinator(f"{self} is not available: {error.message}") from error

    def _write(self, operation: Callable[[S], Result[T]], *, atomic: bool = True) -> Later[T]:
        try:
            result = operation(self.shard)
        except Exception as error:
            return failed(error)
        try:
            self._append_all(result, atomic)
        except Exception as error:
            # The operation may already have changed a group, so it is notified of the failure.
            answer = new_answer(result)
            fail(result, answer, _client_error(error))
            return answer
        # Responses keep their order: the responses of earlier operations complete first.
        if not self._deferred and self.partition.high_watermark >= self._end_offset:
            answer = new_answer(result)
            complete(result, answer)
            return answer
        return self._deferred.add(result, self._end_offset)

    def read(self, operation: Callable[[S], T]) -> Later[T]:
        """Return the result of `operation` once the state it read is durable; see `write`."""
        return self.write(lambda shard: Result(response=operation(shard)))

    def _append_all(self, result: Result[Any], atomic: bool) -> None:
        if not result.records:
            return
        now_ms = self._clock.now_ms()
        # All records are encoded before the first append: an encoding error must not change
        # anything.
        encoded = self._encode(result.records, now_ms, atomic)
        for start, end in self._batch_ranges(encoded, atomic):
            first_offset = self._append(encoded[start:end], now_ms)
            if result.replay:
                self._replay(result.records[start:end], first_offset)

    def _encode(
        self, records: Sequence[CoordinatorRecord], now_ms: int, atomic: bool
    ) -> list[Record]:
        """Encode the records. Raises RecordListTooLarge as soon as they do not fit in a batch."""
        codec = self._kind.codec
        compression = self._context.config().offsets_topic_compression_codec
        # The size of compressed records is known only after compression.
        is_bounded = atomic and compression == Compression.NONE
        room = self.partition.log.config.max_message_bytes - HEADER_SIZE
        encoded: list[Record] = []
        for record in records:
            key, value = codec.encode_key(record.key), codec.encode_value(record.value)
            encoded.append(Record(timestamp=now_ms, key=key, value=value))
            # A lower bound on the size: it rejects a request of many megabytes before all of its
            # records are encoded. The log checks the exact size.
            room -= len(key) + len(value or b"")
            if is_bounded and room < 0:
                raise RecordListTooLarge(
                    f"the first {len(encoded)} of {len(records)} records already exceed"
                    " max.message.bytes"
                )
        return encoded

    def _batch_ranges(self, encoded: Sequence[Record], atomic: bool) -> Iterator[tuple[int, int]]:
        """Yield the range of records for each batch."""
        if atomic:
            yield 0, len(encoded)
            return
        room = self.partition.log.config.max_message_bytes - HEADER_SIZE
        start, size_bytes = 0, 0
        for index, record in enumerate(encoded):
            nbytes = len(record.key or b"") + len(record.value or b"") + _RECORD_OVERHEAD_BYTES
            # A record that is too large by itself still gets a batch, which the log rejects.
            if size_bytes + nbytes > room and index > start:
                yield start, index
                start, size_bytes = index, 0
            size_bytes += nbytes
        yield start, len(encoded)

    def _append(self, records: Sequence[Record], now_ms: int) -> int:
        """Append one batch; return its first offset. Raises KafkaError if nothing was appended."""
        codec = Compression(self._context.config().offsets_topic_compression_codec)
        batch = bytearray(build_batch(records, compression=codec))
        info = self.partition.append_records_to_leader(
            memoryview(batch),
            # As in Kafka, which writes to __consumer_offsets with acks=all and thus
            # min.insync.replicas.
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
                # Operations of this broker never write in a transaction.
                self._shard.replay(record, offset=offset, producer_id=-1)
        except Exception as error:  # The state in memory now differs from the log.
            self._fail(error)
            raise NotCoordinator(f"{self} must reload") from error


def _client_error(error: Exception) -> Exception:
    """Map the error from a failed append as Kafka does, so that clients look up the coordinator."""
    match error:
        case NotCoordinator():
            return error
        case MessageTooLarge() | RecordListTooLarge():
            return RecordsTooLarge(
                f"cannot write the request's records in a single batch: {error.message}"
            )
        case NotLeaderOrFollower() | KafkaStorageError():
            return NotCoordinator(f"the coordinator cannot write: {error.message}")
        case KafkaError():
            return CoordinatorNotAvailable(f"the coordinator cannot write: {error.message}")
        case _:
            return error
