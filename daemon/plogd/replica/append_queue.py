"""Appends that cannot be made at once: each partition's, in the order they came.

An append waits here for one of three things: until its file system has room for more unsynced bytes
(rule R10), until a job has validated its batch, or until other requests have had their turn, if its
request names very many partitions. The next appends to that partition wait after it, whatever they
need themselves; other partitions are not affected. An append that has not been made when its
request's time is over is never made: its client gets REQUEST_TIMED_OUT and may send it again.

Waiting appends hold copies of their records, because the memory of a request is reused. These are
bounded by ``plog.produce.parked.max.bytes``; beyond it an append is refused, so that a client that
waits for a hung disk cannot use up what other clients need.

A batch is validated under the topic's settings of the moment its validation begins. Settings that
change before the append apply to later batches, as they do when the append comes first.

Called on the reactor's thread by `ReplicaManager`. Coordinators append without waiting here.
Invariants: the appends of a partition are made, or fail, in the order they came; a given up append
is not made later; `parked_bytes` counts every copy that is held.
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
from plogd.ports import Clock, Jobs, Later, Timers, Turn
from plogd.replica.delayed_produce import PartitionAppend
from plogd.replica.partition import Partition
from plogd.replica.purgatory import Purgatory
from plogd.replica.validation_lanes import ValidationLanes

PARKED_MIN_MS: Final = 100
"""How long an append may wait at least: clients send a timeout of 0, too."""
PARKED_MAX_MS: Final = 120_000
"""How long it may wait at most; Kafka's producer gives up after this time (delivery.timeout.ms)."""
STEPS_PER_TURN: Final = 64
TURN_MAX_MS: Final = 2.0
"""How many appends are made, and how long they may take, before other work has the thread."""
_OVERHEAD_BYTES: Final = 4096
"""What a waiting append counts besides its records: so that few fit that end at the same time."""
_TOPIC_SHARE: Final = 2
"""The part of the bound that one topic may take: a half."""

MakeAppend = Callable[[PartitionAppend, "memoryview | ValidatedBatch", int], None]


class _GivenUp(Exception):
    """Stops the validation of a batch that is no longer wanted."""


class QueuedAppend:
    """One waiting append. `is_settled` once its `append` says what became of it."""

    __slots__ = ("append", "is_settled", "parked_bytes", "producer_id", "records", "request")

    def __init__(self, append: PartitionAppend, records: memoryview, request: AppendRequest):
        self.append = append
        self.records: memoryview | None = memoryview(bytearray(records))
        self.request = request
        self.parked_bytes = len(records) + _OVERHEAD_BYTES
        self.producer_id = _producer_id(records)
        self.is_settled = False


class AppendRequest:
    """The waiting appends of one request; `later` is done once all of them are settled."""

    __slots__ = ("_give_up", "inline_bytes", "later", "queued", "required_acks", "unsettled")

    def __init__(self, required_acks: int, give_up: Callable[[QueuedAppend], None]) -> None:
        self.required_acks = required_acks
        self._give_up = give_up
        self.inline_bytes = 0
        """Bytes of records that were read on the reactor, or had to be."""
        self.queued: list[QueuedAppend] = []
        self.unsettled = 0
        # Not canceled with its client: a retry on another connection must come after it.
        self.later: Later[None] = Later()

    def try_complete(self, key: Hashable) -> bool:
        """Whether every append is settled; nothing that is checked could change that."""
        return False

    def expire(self) -> None:
        """Give up every append that has not been made."""
        for queued in self.queued:
            if not queued.is_settled:
                self._give_up(queued)


class _PartitionQueue:
    """The waiting appends of one partition, oldest first."""

    __slots__ = ("by_producer", "partition", "queued", "running")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.queued: OrderedDict[QueuedAppend, None] = OrderedDict()
        self.running: QueuedAppend | None = None
        """The one whose batch a job validates."""
        self.by_producer: dict[int, OrderedDict[QueuedAppend, None]] = {}
        """The unsettled ones of each idempotent producer, in order."""


class AppendQueues:
    """All waiting appends of a broker.

    `make_append` makes one with these records and required acks, and sets its info or its error.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        timers: Timers,
        jobs: Jobs,
        turn: Turn,
        config: Callable[[], BrokerConfig],
        make_append: MakeAppend,
        on_bug: Callable[[str, Exception], None],
    ) -> None:
        self._clock = clock
        self._timers = timers
        self._turn = turn
        self._config = config
        self._make_append = make_append
        self._on_bug = on_bug
        self._lanes = ValidationLanes(jobs)
        self._deadlines = Purgatory(clock, timers, on_bug=on_bug)
        self._queues: dict[Partition, _PartitionQueue] = {}
        self._ready: deque[_PartitionQueue] = deque()
        self._is_scheduled = False
        self._bytes_by_topic: Counter[str] = Counter()
        self.parked_bytes = 0
        self.refused = 0
        """Appends refused because too many bytes were waiting."""

    # -- in and out ---------------------------------------------------------------------------

    def new_request(self, required_acks: int) -> AppendRequest:
        """Return a request without appends; `watch` it when they are added."""
        return AppendRequest(required_acks, self._give_up)

    def takes(
        self,
        append: PartitionAppend,
        records: memoryview,
        request: AppendRequest,
        is_one_of_many: bool,
    ) -> bool:
        """Queue an append that has to wait, or refuse it; False for one that can be made now."""
        partition = append.partition
        assert partition is not None
        if partition.problem() is not None or len(records) > partition.log.rules.max_bytes:
            return False  # It will be refused.
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
            # A batch that is too large does not come again, so no other has to wait for it.
            may_come_again = not isinstance(refusal, MessageTooLarge)
            if may_come_again and (queue is None or producer_id not in queue.by_producer):
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
        """Wait until every append of `request` is made, refused or given up."""
        if request.unsettled:
            self._deadlines.watch(request, (), waiting_ms(timeout_ms))
        else:
            request.later.succeed(None)
        return request.later

    def _refusal(self, partition: Partition, nbytes: int) -> KafkaError | None:
        limit = self._config().plog_produce_parked_max_bytes
        text = f"{partition.topic_partition}: not appended: the records have to wait, "
        if nbytes > limit:
            return MessageTooLarge(f"{text}and exceed plog.produce.parked.max.bytes={limit}")
        of_topic = self._bytes_by_topic[partition.topic_partition.topic]
        exceeds_share = of_topic and of_topic + nbytes > limit // _TOPIC_SHARE
        if exceeds_share or self.parked_bytes + nbytes > limit:
            return RequestTimedOut(
                f"{text}and {self.parked_bytes} bytes of others are waiting"
                f" (plog.produce.parked.max.bytes={limit}); send them again later"
            )
        return None

    def reserve(self, nbytes: int) -> KafkaError | None:
        """Count copies that a handler keeps until `unreserve`, or return why it must not."""
        limit = self._config().plog_produce_parked_max_bytes
        if self.parked_bytes + nbytes <= limit:
            self.parked_bytes += nbytes
            return None
        self.refused += 1
        text = f"not appended: {nbytes} bytes of records have to wait, "
        if nbytes > limit:
            return MessageTooLarge(f"{text}and exceed plog.produce.parked.max.bytes={limit}")
        return RequestTimedOut(
            f"{text}and {self.parked_bytes} bytes of others are waiting"
            f" (plog.produce.parked.max.bytes={limit}); send fewer, or later"
        )

    def unreserve(self, nbytes: int) -> None:
        """Stop counting reserved bytes."""
        self.parked_bytes -= nbytes

    def close(self) -> None:
        """Give up every append and end the jobs, because the broker stops."""
        for queue in list(self._queues.values()):
            for queued in list(queue.queued):
                if not queued.is_settled:
                    self._give_up(queued, "before the broker stopped")

    def _give_up(self, queued: QueuedAppend, when: str = "in the request's time") -> None:
        """Answer that an append was not made; from now on it will not be."""
        append = queued.append
        partition = append.partition
        assert partition is not None
        queue = self._queues[partition]
        append.error = RequestTimedOut(f"{append.topic_partition}: not appended {when}")
        if queued.producer_id >= 0 and next(iter(queue.by_producer[queued.producer_id])) is queued:
            # Otherwise an earlier batch may still be appended, and its sequence number decides.
            assert queued.records is not None
            self._note_refused(partition, queued.records, queued.producer_id)
        self._settle(queue, queued)
        if queued is not queue.running:
            self._drop(queue, queued)

    def _note_refused(self, partition: Partition, records: memoryview, producer_id: int) -> None:
        """Take no later batch of this producer before this one (rule R15)."""
        if producer_id < 0:
            return
        log = partition.log
        try:
            header = check_header(records, log.rules, AppendOrigin.CLIENT)
        except KafkaError:
            return  # It would have been refused anyway.
        log.producer_state.note_refused(header)

    def _settle(self, queue: _PartitionQueue, queued: QueuedAppend) -> None:
        """Note that it is known what became of an append."""
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
            self._turn.defer(partial(request.later.succeed, None))

    def _drop(self, queue: _PartitionQueue, queued: QueuedAppend) -> None:
        """Take a settled append out of its queue, and free its copy of the records."""
        del queue.queued[queued]
        queued.records = None
        topic = queued.append.topic_partition.topic
        self.parked_bytes -= queued.parked_bytes
        self._bytes_by_topic[topic] -= queued.parked_bytes
        if not self._bytes_by_topic[topic]:
            del self._bytes_by_topic[topic]

    # -- one step after the other -------------------------------------------------------------

    def _make_ready(self, queue: _PartitionQueue) -> None:
        """Look at the first append of `queue` soon; nothing else of it is under way."""
        self._ready.append(queue)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._turn.defer(self._run)

    def _run(self) -> None:
        """Make the appends that can be made, and let others have the thread in between."""
        try:
            until_ms = self._clock.monotonic_ms() + TURN_MAX_MS
            with self._turn:  # They share a sync round.
                for _ in range(STEPS_PER_TURN):
                    if not self._ready or self._clock.monotonic_ms() > until_ms:
                        break
                    self._step_or_fail(self._ready.popleft())
        finally:
            self._is_scheduled = bool(self._ready)
            if self._ready:
                self._timers.call_later(0, self._run)

    def _step_or_fail(self, queue: _PartitionQueue) -> None:
        try:
            self._step(queue)
        except Exception as error:  # Or the next appends to the partition would wait forever.
            self._invalid(queue, next(iter(queue.queued)), error)

    def _step(self, queue: _PartitionQueue) -> None:
        """Make the first append of `queue`, or find out what it waits for."""
        partition = queue.partition
        if not queue.queued:
            del self._queues[partition]
            partition.has_queue = False
            return
        if partition.problem() is None and not partition.sync_rounds.has_room:
            partition.sync_rounds.room().then(lambda _: self._make_ready(queue), _ignore)
            return
        queued = next(iter(queue.queued))
        assert queued.records is not None
        is_much = self._bytes_to_read(partition, queued.records) > INLINE_BYTES
        if is_much and partition.problem() is None:
            self._validate(queue, queued)
        else:
            self._append(queue, queued, queued.records)

    def _validate(self, queue: _PartitionQueue, queued: QueuedAppend) -> None:
        def on_step() -> None:
            if queued.is_settled:
                raise _GivenUp

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
            lambda batch: self._validated(queue, queued, batch),
            lambda error: self._invalid(queue, queued, error),
        )

    def _validated(
        self, queue: _PartitionQueue, queued: QueuedAppend, batch: ValidatedBatch
    ) -> None:
        queue.running = None
        self._append(queue, queued, batch)

    def _invalid(self, queue: _PartitionQueue, queued: QueuedAppend, error: Exception) -> None:
        queue.running = None
        if not queued.is_settled:
            if isinstance(error, KafkaError):
                queued.append.error = error.bare()
            else:
                self._on_bug(f"append to {queued.append.topic_partition}", error)
                queued.append.error = KafkaError("unexpected error, see the broker's log")
                if queued.records is not None:
                    self._note_refused(queue.partition, queued.records, queued.producer_id)
        self._append(queue, queued, None)

    def _append(
        self,
        queue: _PartitionQueue,
        queued: QueuedAppend,
        records: memoryview | ValidatedBatch | None,
    ) -> None:
        """Make an append, unless it was given up; continue with the next."""
        if not queued.is_settled and records is not None:
            self._make_append(queued.append, records, queued.request.required_acks)
        try:
            if not queued.is_settled:
                self._settle(queue, queued)
        finally:  # If no timer can be set for the answer, the next ones do not wait for it.
            self._drop(queue, queued)
            self._make_ready(queue)


def waiting_ms(timeout_ms: int) -> int:
    """Return how long appends of a request with this timeout may wait."""
    return min(max(timeout_ms, PARKED_MIN_MS), PARKED_MAX_MS)


def _producer_id(records: memoryview) -> int:
    """The producer's id in the header, which need not be sound; -1 if there is none."""
    if len(records) < HEADER_SIZE:
        return -1
    return BatchHeader._make(HEADER.unpack_from(records)).producer_id


def _ignore(error: Exception) -> None:
    """Waiting for room does not fail."""
