"""Queues of appends that cannot run immediately: one queue per partition, in order of arrival.

An append is queued for one of three reasons: the file system has no room for more unsynced bytes
(rule R10), a job must validate the batch, or the request has so many partitions that other requests
get a turn in between. Later appends to the same partition are then also queued, even if none of
these reasons applies to them; other partitions are not affected. If an append is still queued when
its request times out, the client receives REQUEST_TIMED_OUT, and the append is never made.

Queued appends hold copies of their records. ``plog.produce.parked.max.bytes`` limits the total size
of the copies. Beyond this limit, appends are rejected, so that clients that write to a hung disk
cannot exhaust the memory that other clients need.

A batch is validated with the topic settings that are in effect when its validation starts. Settings
that change between validation and append apply only to later batches.

Called on the reactor thread by `ReplicaManager`. Coordinators bypass these queues.
Invariants: the appends to a partition succeed or fail in order of arrival; an abandoned append is
never made later; `parked_bytes` includes all copies.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

from plog.errors import KafkaError, MessageTooLarge, RequestTimedOut
from plog.records.batch import HEADER, HEADER_SIZE, BatchHeader
from plogd.config import BrokerConfig
from plogd.log.batch_validator import (
    FAR_TOO_MANY,
    INLINE_BYTES,
    AppendOrigin,
    RecordReading,
    ValidatedBatch,
    bytes_to_read,
    check_header,
)
from plogd.log.log import Log
from plogd.ports import Later, Ports
from plogd.replica.delayed_produce import PartitionAppend
from plogd.replica.partition import Partition
from plogd.replica.purgatory import Purgatory
from plogd.replica.validation_lanes import ValidationLanes

# Some clients send a timeout of 0.
PARKED_MIN_MS: Final = 100
"""Minimum time for which an append can wait in a queue."""
# The default of the producer setting delivery.timeout.ms.
PARKED_MAX_MS: Final = 120_000
"""Maximum time for which an append can wait in a queue."""
STEPS_PER_TURN: Final = 64
TURN_MAX_MS: Final = 2.0
"""Maximum number of appends, and maximum time, before other work can run on the thread."""
_OVERHEAD_BYTES: Final = 4096
"""Number of bytes counted for each append in addition to its records. This limits the number of
appends that can expire at the same time."""
_TOPIC_SHARE: Final = 2
"""A single topic can use the limit divided by this number, so that a topic with appends that cannot
run leaves memory for other topics (decision 0015)."""

MakeAppend = Callable[[PartitionAppend, "memoryview | ValidatedBatch", int], None]


class _Abandoned(Exception):
    """Stops the validation of a batch after its append has been abandoned."""


class QueuedAppend:
    """A queued append. `is_settled` is set as soon as `append` has a result or an error."""

    __slots__ = ("append", "is_settled", "parked_bytes", "producer_id", "records", "request")

    def __init__(self, append: PartitionAppend, records: memoryview, request: AppendRequest):
        self.append = append
        # A copy, because the memory of a request is reused when its handler returns.
        self.records: memoryview | None = memoryview(bytearray(records))
        self.request = request
        self.parked_bytes = len(records) + _OVERHEAD_BYTES
        self.producer_id = _producer_id(records)
        self.is_settled = False


class AppendRequest:
    """The queued appends of one request. `later` completes when all of them are settled."""

    __slots__ = ("_abandon", "inline_bytes", "later", "queued", "required_acks", "unsettled")

    def __init__(self, required_acks: int, abandon: Callable[[QueuedAppend], None]) -> None:
        self.required_acks = required_acks
        self._abandon = abandon
        self.inline_bytes = 0
        """Number of bytes that validation must read for the request's records, so far."""
        self.queued: list[QueuedAppend] = []
        self.unsettled = 0
        # Not cancelled if the client disconnects, because a retry on a new connection must be
        # queued after the original append.
        self.later: Later[None] = Later()

    def try_complete(self, key: Hashable) -> bool:
        """Return False, because no change to a partition settles a queued append."""
        return False

    def expire(self) -> None:
        """Abandon every append that is still queued."""
        for queued in self.queued:
            if not queued.is_settled:
                self._abandon(queued)


class _PartitionQueue:
    """The queued appends of one partition, oldest first."""

    __slots__ = ("by_producer", "partition", "queued", "running")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.queued: OrderedDict[QueuedAppend, None] = OrderedDict()
        self.running: QueuedAppend | None = None
        """The append whose batch a job is validating."""
        self.by_producer: dict[int, OrderedDict[QueuedAppend, None]] = {}
        """The unsettled appends of each idempotent producer, in order."""


class AppendQueues:
    """All queued appends of a broker.

    `make_append` makes one append with the given records and acks, and sets its info or error.
    """

    def __init__(
        self,
        ports: Ports,
        *,
        config: Callable[[], BrokerConfig],
        make_append: MakeAppend,
        on_bug: Callable[[str, Exception], None],
    ) -> None:
        self._clock = ports.clock
        self._timers = ports.timers
        self._turn = ports.turn
        self._config = config
        self._make_append = make_append
        self._on_bug = on_bug
        self._lanes = ValidationLanes(ports.jobs)
        self._deadlines = Purgatory(ports.clock, ports.timers, on_bug=on_bug)
        self._queues: dict[Partition, _PartitionQueue] = {}
        self._ready: deque[_PartitionQueue] = deque()
        self._is_scheduled = False
        # By topic, because a topic with many partitions could otherwise use the whole limit.
        self._bytes_by_topic: Counter[str] = Counter()
        self.parked_bytes = 0
        self.refused = 0
        """Number of appends rejected because too many bytes were queued."""

    # -- enqueue and dequeue ------------------------------------------------------------------

    def new_request(self, required_acks: int) -> AppendRequest:
        """Return a request without appends. Call `watch` after adding its appends."""
        return AppendRequest(required_acks, self._abandon)

    def enqueue(
        self,
        append: PartitionAppend,
        records: memoryview,
        request: AppendRequest,
        is_one_of_many: bool,
    ) -> bool:
        """Queue or reject an append that has to wait; return False if it can be made now."""
        partition = append.partition
        assert partition is not None
        if partition.problem() is not None or len(records) > partition.log.rules.max_bytes:
            return False  # This append fails immediately, so it need not wait.
        nbytes = self._bytes_to_read(partition, records)
        request.inline_bytes += nbytes
        must_wait = (
            is_one_of_many
            or partition.has_queue
            or not partition.sync_rounds.has_room
            or (nbytes and request.inline_bytes > INLINE_BYTES)
        )
        if must_wait:
            self._add(partition, append, records, request)
        return bool(must_wait)

    def _bytes_to_read(self, partition: Partition, records: memoryview) -> int:
        if partition.record_check is not None and len(records) > HEADER_SIZE:
            return FAR_TOO_MANY  # Each record is decoded.
        return bytes_to_read(records, partition.log.rules, self._clock.now_ms())

    def _add(
        self,
        partition: Partition,
        append: PartitionAppend,
        records: memoryview,
        request: AppendRequest,
    ) -> None:
        refusal = self._refusal(partition, len(records) + _OVERHEAD_BYTES)
        queue = self._queues.get(partition)
        if refusal is not None:
            append.error = refusal
            self.refused += 1
            producer_id = _producer_id(records)
            # A producer does not retry a batch that is too large, so later batches need not wait
            # for it.
            may_be_retried = not isinstance(refusal, MessageTooLarge)
            # If earlier batches of the producer are queued, their sequence numbers reveal the gap.
            if may_be_retried and (queue is None or producer_id not in queue.by_producer):
                self._note_refused(partition, records, producer_id)
            return
        if queue is None:
            queue = self._queues[partition] = _PartitionQueue(partition)
            partition.has_queue = True
            self._make_ready(queue)
        queued = QueuedAppend(append, records, request)
        request.queued.append(queued)
        request.unsettled += 1
        self.parked_bytes += queued.parked_bytes
        self._bytes_by_topic[partition.topic_partition.topic] += queued.parked_bytes
        queue.queued[queued] = None
        if queued.producer_id >= 0:
            queue.by_producer.setdefault(queued.producer_id, OrderedDict())[queued] = None

    def watch(self, request: AppendRequest, timeout_ms: int) -> Later[None]:
        """Wait until every append of `request` is made, rejected or abandoned."""
        if request.unsettled:
            self._deadlines.watch(request, (), waiting_ms(timeout_ms))
        else:
            request.later.succeed(None)
        return request.later

    def _refusal(self, partition: Partition, nbytes: int) -> KafkaError | None:
        limit = self._config().plog_produce_parked_max_bytes
        failure = f"cannot append to {partition.topic_partition}"
        if nbytes > limit:
            return MessageTooLarge(
                f"{failure}: the records have to wait but exceed"
                f" plog.produce.parked.max.bytes={limit}; send smaller batches"
            )
        of_topic = self._bytes_by_topic[partition.topic_partition.topic]
        # A topic without queued bytes can exceed its share. Otherwise, an append larger than the
        # share would be rejected on every retry.
        exceeds_share = of_topic and of_topic + nbytes > limit // _TOPIC_SHARE
        if exceeds_share or self.parked_bytes + nbytes > limit:
            return RequestTimedOut(
                f"{failure}: the records have to wait and {self.parked_bytes} other bytes are"
                f" waiting (plog.produce.parked.max.bytes={limit}); retry later"
            )
        return None

    def reserve(self, nbytes: int) -> KafkaError | None:
        """Reserve bytes for copies of records; return an error if the limit does not allow it."""
        limit = self._config().plog_produce_parked_max_bytes
        if self.parked_bytes + nbytes <= limit:
            self.parked_bytes += nbytes
            return None
        self.refused += 1
        failure = f"cannot append {nbytes} bytes of records"
        if nbytes > limit:
            return MessageTooLarge(
                f"{failure}: they have to wait but exceed plog.produce.parked.max.bytes={limit};"
                " send fewer bytes at a time"
            )
        return RequestTimedOut(
            f"{failure}: they have to wait and {self.parked_bytes} other bytes are waiting"
            f" (plog.produce.parked.max.bytes={limit}); retry later"
        )

    def unreserve(self, nbytes: int) -> None:
        """Release bytes that `reserve` has reserved."""
        self.parked_bytes -= nbytes

    def close(self) -> None:
        """Abandon every queued append and stop its job, because the broker is stopping."""
        for queue in list(self._queues.values()):
            for queued in list(queue.queued):
                if not queued.is_settled:
                    self._abandon(queued, "the broker is stopping")

    def _abandon(self, queued: QueuedAppend, why: str = "the request timed out") -> None:
        """Fail an append that has not been made, so that it is never made."""
        append = queued.append
        partition = append.partition
        assert partition is not None
        queue = self._queues[partition]
        append.error = RequestTimedOut(f"cannot append to {append.topic_partition}: {why}")
        if queued.producer_id >= 0 and next(iter(queue.by_producer[queued.producer_id])) is queued:
            # If an earlier batch is queued, it may still be appended. The sequence number of the
            # producer's next batch then reveals the gap.
            assert queued.records is not None
            self._note_refused(partition, queued.records, queued.producer_id)
        self._settle(queue, queued)
        if queued is not queue.running:  # Otherwise, a job is still reading the records.
            self._drop(queue, queued)

    def _note_refused(self, partition: Partition, records: memoryview, producer_id: int) -> None:
        if producer_id >= 0:
            note_refused(partition.log, records)

    def _settle(self, queue: _PartitionQueue, queued: QueuedAppend) -> None:
        """Mark an append as settled; complete its request if it was the last one."""
        queued.is_settled = True
        if queued.producer_id >= 0:
            of_producer = queue.by_producer[queued.producer_id]
            del of_producer[queued]
            if not of_producer:
                del queue.by_producer[queued.producer_id]
        request = queued.request
        request.unsettled -= 1
        if not request.unsettled:
            self._deadlines.remove(request)
            # At the end of the turn, because an append may be in progress at this point.
            self._turn.defer(partial(request.later.succeed, None))

    def _drop(self, queue: _PartitionQueue, queued: QueuedAppend) -> None:
        """Remove a settled append from its queue and free its copy of the records."""
        del queue.queued[queued]
        queued.records = None
        topic = queued.append.topic_partition.topic
        self.parked_bytes -= queued.parked_bytes
        self._bytes_by_topic[topic] -= queued.parked_bytes
        if not self._bytes_by_topic[topic]:
            del self._bytes_by_topic[topic]

    # -- processing ---------------------------------------------------------------------------

    def _make_ready(self, queue: _PartitionQueue) -> None:
        """Schedule the first append of `queue`, which must not have an append in progress."""
        self._ready.append(queue)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._turn.defer(self._run)

    def _run(self) -> None:
        """Process ready queues until no queue is ready or other work has to run."""
        try:
            until_ms = self._clock.monotonic_ms() + TURN_MAX_MS
            with self._turn:  # The appends of one turn share a sync round.
                for _ in range(STEPS_PER_TURN):
                    if not self._ready or self._clock.monotonic_ms() > until_ms:
                        break
                    self._step_or_fail(self._ready.popleft())
        finally:
            self._is_scheduled = bool(self._ready)
            if self._ready:  # By timer, so that the reactor can serve requests in between.
                self._timers.call_later(0, self._run)

    def _step_or_fail(self, queue: _PartitionQueue) -> None:
        try:
            self._step(queue)
        except Exception as error:  # Otherwise, later appends to the partition would never run.
            self._on_validation_error(queue, next(iter(queue.queued)), error)

    def _step(self, queue: _PartitionQueue) -> None:
        """Append or validate the first entry of `queue`, or wait until there is room."""
        partition = queue.partition
        if not queue.queued:
            del self._queues[partition]
            partition.has_queue = False
            return
        # If the partition has a problem, the append fails, so it does not need room.
        if partition.problem() is None and not partition.sync_rounds.has_room:
            partition.sync_rounds.room().then(lambda _: self._make_ready(queue), _ignore)
            return
        queued = next(iter(queue.queued))
        assert queued.records is not None
        needs_job = self._bytes_to_read(partition, queued.records) > INLINE_BYTES
        if needs_job and partition.problem() is None:
            self._validate(queue, queued)
        else:
            self._append(queue, queued, queued.records)

    def _validate(self, queue: _PartitionQueue, queued: QueuedAppend) -> None:
        def on_step() -> None:
            if queued.is_settled:  # The result is no longer needed, and may take seconds.
                raise _Abandoned

        partition, records = queue.partition, queued.records
        assert records is not None
        queue.running = queued
        reading = RecordReading(
            max_decompressed_bytes=self._config().plog_decompressed_batch_max_bytes,
            check_record=partition.record_check,
            on_step=on_step,
        )
        self._lanes.validate(
            partition.topic_partition.topic,
            records,
            rules=partition.log.rules,
            now_ms=self._clock.now_ms(),
            reading=reading,
        ).then(
            lambda batch: self._on_validated(queue, queued, batch),
            lambda error: self._on_validation_error(queue, queued, error),
        )

    def _on_validated(
        self, queue: _PartitionQueue, queued: QueuedAppend, batch: ValidatedBatch
    ) -> None:
        queue.running = None
        self._append(queue, queued, batch)

    def _on_validation_error(
        self, queue: _PartitionQueue, queued: QueuedAppend, error: Exception
    ) -> None:
        queue.running = None
        if not queued.is_settled:
            if isinstance(error, KafkaError):
                queued.append.error = error.bare()
            else:
                self._on_bug(f"appending to {queued.append.topic_partition}", error)
                queued.append.error = KafkaError("unexpected error; see the broker log")
                if queued.records is not None:
                    self._note_refused(queue.partition, queued.records, queued.producer_id)
        self._append(queue, queued, None)

    def _append(
        self,
        queue: _PartitionQueue,
        queued: QueuedAppend,
        records: memoryview | ValidatedBatch | None,
    ) -> None:
        """Make an append unless it was abandoned, then continue with the next one."""
        if not queued.is_settled and records is not None:
            self._make_append(queued.append, records, queued.request.required_acks)
        try:
            if not queued.is_settled:
                self._settle(queue, queued)
        finally:  # An error while completing the request must not block the next appends.
            self._drop(queue, queued)
            self._make_ready(queue)


def waiting_ms(timeout_ms: int) -> int:
    """Return how long appends in a request with this timeout can wait in a queue."""
    return min(max(timeout_ms, PARKED_MIN_MS), PARKED_MAX_MS)


def note_refused(log: Log, records: memoryview) -> None:
    """Reject later batches of the producer until the one in `records` is resent (rule R15)."""
    try:
        header = check_header(records, log.rules, AppendOrigin.CLIENT)
    except KafkaError:
        return  # The append would have failed in any case, and is not retried.
    log.producer_state.note_refused(header)


def _producer_id(records: memoryview) -> int:
    """Return the producer id in the unchecked header, or -1 if the header is incomplete."""
    if len(records) < HEADER_SIZE:
        return -1
    return BatchHeader._make(HEADER.unpack_from(records)).producer_id


def _ignore(error: Exception) -> None:
    """Do nothing, because waiting for room never fails."""
