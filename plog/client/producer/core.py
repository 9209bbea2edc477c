"""The core of every producer: it accepts records from any thread and delivers them to brokers.

    core = ProducerCore(cluster, network, settings, wake=…)
    handle = core.send("page-views", b"/index.html", key=b"alice")
    if handle is None:
        handle = await core.send_soon("page-views", b"/index.html", key=b"alice")

`send` never waits: it adds a record to the accumulator. The sender, which runs in the engine's
thread, takes batches from the accumulator. The function `wake`, which any thread may call, makes
`woken` run in the engine's thread. The faces determine how handles and waiting appear to callers.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from plog.client.errors import ClosedError
from plog.client.network.backoff import timed_out
from plog.client.network.cluster import Cluster
from plog.client.network.metadata import (
    NO_NODE,
    ClusterMetadata,
    PartitionMetadata,
    check_topic_names,
)
from plog.client.network.ports import Network, Task
from plog.client.producer.accumulator import accumulator_for
from plog.client.producer.batch_completion import BatchCompletion
from plog.client.producer.blocked_sends import BlockedSends
from plog.client.producer.interceptors import Interceptors, ProducerInterceptor
from plog.client.producer.memory_claim import Claim
from plog.client.producer.metrics import ProducerMetrics
from plog.client.producer.partitioner import Partitioner, chooser
from plog.client.producer.producer_batch import (
    RECORD_OVERHEAD,
    OnDelivery,
    OnFailure,
    ProducerBatch,
    RecordHandle,
    SendHandle,
    size_of_headers,
)
from plog.client.producer.record_checks import (
    Headers,
    Serializer,
    as_bytes,
    checked_headers,
    checked_partition,
    checked_timestamp,
    header_pairs,
    largest_record_bytes,
    serialized,
    too_large,
    with_own_headers,
)
from plog.client.producer.sender import Sender
from plog.client.producer.topic_lookup import TopicLookup
from plog.client.settings import ProducerSettings
from plog.client.task_completion import TaskCompletion
from plog.client.transactions.calls import TransactionCalls
from plog.client.transactions.transaction_state import TransactionState
from plog.client.values import ProducerRecord
from plog.errors import UnknownTopicOrPartition
from plog.records.codec import Header, RecordFields

if TYPE_CHECKING:
    from plog.client.producer.audit_reporter import AuditReporter

log = logging.getLogger("plog.client")

H = TypeVar("H", bound=RecordHandle)
T = TypeVar("T")


class ProducerCore(BlockedSends[H], TransactionCalls):
    """A producer without the interface of a face.

    Use only in the engine's thread, except for methods marked "any thread" or "thread-safe".
    """

    def __init__(
        self,
        cluster: Cluster,
        network: Network,
        settings: ProducerSettings,
        *,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        partitioner: Partitioner | Callable[..., int] | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        wake: Callable[[], None] | None = None,
        make_handle: Callable[[ProducerBatch, int], H] = SendHandle,  # type: ignore[assignment]
        transaction: TransactionState | None = None,
    ) -> None:
        self._cluster = cluster
        self._network = network
        self._settings = settings
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._interceptors = Interceptors(interceptors)
        # `send` runs for each record, so check this only once, here.
        self._has_hooks = bool(key_serializer or value_serializer or interceptors)
        self._choose = chooser(partitioner, in_turn=settings.partitioner_class is not None)
        self._largest_bytes = largest_record_bytes(settings)
        self._audit = _audit_reporter(cluster, network, settings)
        self._add_headers(() if self._audit is None else (self._audit.header,))
        self._wall_ms = network.wall_ms
        self._metrics = ProducerMetrics(network.now_s)
        self._accumulator = accumulator_for(
            settings, network, make_handle, wake or self.woken, transaction
        )
        # A transactional producer replaces this function with its own.
        self._append: Callable[..., H | None] = self._accumulator.append
        self._deliveries = BatchCompletion(
            self._accumulator,
            settings,
            self._metrics,
            now_s=network.now_s,
            random=network.random,
            on_outcome=self._on_outcome,
            audit=self._audit,
        )
        self._sender = Sender(
            cluster,
            network,
            settings,
            self._accumulator,
            self._deliveries,
            self._metrics,
            # KIP-794: records without a key avoid the partitions of slow brokers.
            on_slow=lambda: self._update_topics(cluster.metadata),
            transaction=transaction,
        )
        super().__init__(network, settings, self._accumulator, TopicLookup(cluster, network))
        self._task: Task | None = None
        self._is_closed = self._is_ended = False
        self._refused: Counter[str] = Counter()
        """Number of records that were still blocked when the producer was closed, by topic."""
        cluster.on_update.append(self._update_topics)

    # -- any thread -----------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
        on_delivery: OnDelivery | None = None,
        claim: Claim = Claim.NEW,
    ) -> H | None:
        """Accept a record, or return None if it must wait: retry after `room`, or use `send_soon`.

        Any thread may call this. `timestamp` is in ms; None means the current time. `on_delivery`
        is called in the engine's thread.

        Raises:
            RecordTooLarge: the record is larger than max.request.size or buffer.memory.
            SerializationFailed: a serializer failed, or the key or value is not bytes.
            ClosedError: the producer is closed.
            ValueError: the partition, the timestamp or the headers are invalid.
        """
        if self._has_hooks:
            return self._send_with_hooks(
                ProducerRecord(topic, value, key, partition, timestamp, header_pairs(headers)),
                on_delivery,
                claim,
            )
        return self._send(topic, value, key, partition, timestamp, headers, on_delivery, claim)

    def _send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp: int | None,
        headers: Headers,
        on_delivery: OnDelivery | None,
        claim: Claim,
    ) -> H | None:
        size_bytes = self._overhead_bytes
        if value is not None:
            # For bytes, the usual case, this check is cheaper than isinstance.
            if type(value) is not bytes:
                value = as_bytes(value, "value", topic)
            size_bytes += len(value)
        if key is not None:
            if type(key) is not bytes:
                key = as_bytes(key, "key", topic)
            size_bytes += len(key)
        if headers:
            headers = checked_headers(headers)
            size_bytes += size_of_headers(headers)
            if self._own_headers:
                headers = with_own_headers(headers, self._own_headers)
        else:
            headers = self._own_headers
        # Check the size now: a record that cannot be sent must not wait for memory first.
        if size_bytes > self._largest_bytes:
            raise too_large(self._settings, topic, size_bytes)
        if timestamp is None:
            timestamp = self._wall_ms()
        else:
            timestamp = checked_timestamp(timestamp)
        if partition is not None:
            if type(partition) is not int or partition < 0:
                partition = checked_partition(partition, topic)
        elif self._choose is not None:
            partition = self._chosen(self._choose, topic, key, value)
            # Without a partition, the topic is not known yet or the producer is closing.
            if partition is None:
                self._check_open()
                return None
        try:
            handle = self._append(
                topic, partition, timestamp, key, value, headers, size_bytes, on_delivery, claim
            )
        except TypeError:
            # The accumulator raises TypeError for an unhashable topic name. Checking the name only
            # then keeps the check out of the hot path.
            check_topic_names((topic,))
            raise
        if handle is None:
            self._check_open()
        return handle

    def send_all(
        self,
        topic: str,
        partition: int | None,
        records: Sequence[RecordFields],
        on_failure: OnFailure,
    ) -> Sequence[RecordFields]:
        """Accept records without handles, and return the rest: send its first record with `send`.

        The records are not checked. Their order within a partition stays the same. `on_failure` is
        called in the engine's thread for each batch in which a record failed. Any thread may call
        this. Raises ValueError for an invalid partition.
        """
        if type(topic) is not str:
            check_topic_names((topic,))
        if partition is not None:
            partition = checked_partition(partition, topic)
        is_plain = not (self._has_hooks or self._choose or self._own_headers)
        # A transactional producer has an `append` of its own.
        if not is_plain or self._append != self._accumulator.append:
            return records
        return self._accumulator.append_all(topic, partition, records, on_failure)

    def _send_with_hooks(
        self, record: ProducerRecord, on_delivery: OnDelivery | None, claim: Claim
    ) -> H | None:
        """Pass a record through interceptors and serializers, then accept it as `send` does."""
        accumulator = self._accumulator
        self._check_open()
        if type(record.topic) is not str:
            check_topic_names((record.topic,))
        if record.partition is not None:
            checked_partition(record.partition, record.topic)
        if not accumulator.knows(record.topic, record.partition):
            return None
        # The hooks must run only once for each record, so make sure that memory is available.
        if not accumulator.has_room(claim):
            accumulator.want_room()
            return None
        record = self._interceptors.on_send(record)
        try:
            # An interceptor may have changed the topic or the partition.
            if not accumulator.knows(record.topic, record.partition):
                raise UnknownTopicOrPartition(
                    f"cannot send to partition {record.partition} of topic {record.topic}: an"
                    " interceptor chose it, but the topic does not have this partition"
                )
            return self._send(
                record.topic,
                serialized(self._value_serializer, record.value, "value", record.topic),
                serialized(self._key_serializer, record.key, "key", record.topic),
                record.partition,
                record.timestamp,
                record.headers,
                on_delivery,
                # Another thread may have taken the memory in the meantime. In that case, exceed the
                # limit, because the hooks must not run twice for a record.
                Claim.GRANTED,
            )
        except Exception as error:
            # KIP-42: an interceptor that has received the record is also notified of its failure.
            self._interceptors.on_refusal(record, error)
            raise

    def _chosen(
        self, choose: Callable[..., int], topic: str, key: bytes | None, value: bytes | None
    ) -> int | None:
        """Return the partition that the partitioner chooses, or None while the topic is unknown."""
        known = self._accumulator.topic(topic)
        count = 0 if known is None else len(known.queues)
        # In a producer that is closing, a topic has no partitions.
        if known is None or not count:
            return None
        partition = choose(topic, key, value, count, known.available)
        # The application's function may return anything. Without this check, a negative number
        # would silently select another partition, as a list index.
        if not isinstance(partition, int) or not 0 <= partition < count:
            raise ValueError(
                f"invalid partition {partition!r} from the partitioner: topic {topic} has {count}"
                " partitions"
            )
        return partition

    # -- waiting --------------------------------------------------------------------------------

    async def partitions_for(
        self, topic: str, timeout_s: float | None = None
    ) -> tuple[PartitionMetadata, ...]:
        """Return a topic's partitions in order, waiting up to `timeout_s` for its metadata.

        `timeout_s` is max.block.ms by default. Raises UnknownTopicOrPartition, RequestTimedOut, or
        the error that the broker returned for the topic.
        """
        self._check_open()
        limit_s = self._settings.max_block_ms / 1000 if timeout_s is None else timeout_s
        await self._lookup.find(topic, None, limit_s)
        self._update_topics(self._cluster.metadata, topic)
        return self._cluster.metadata.topics[topic].partitions

    async def flush(self, timeout_s: float | None = None) -> None:
        """Send all buffered records, and wait until every record sent so far has its outcome.

        The call does not wait for records that are sent after it. Raises RequestTimedOut after
        `timeout_s`; the producer still sends the records.
        """
        # This list does not grow, so the wait does not include records sent after the call.
        batches = self._accumulator.expedite()
        self.woken()
        await self._until_finished(batches, timeout_s)
        if timeout_s is not None and (left := sum(not batch.is_finished for batch in batches)):
            raise timed_out(f"a flush ({left} batches are still pending)", timeout_s)

    async def _until_finished(
        self, batches: list[ProducerBatch], timeout_s: float | None = None
    ) -> None:
        """Wait until all `batches` are finished, or until `timeout_s` has passed."""
        deadline_s = None if timeout_s is None else self._network.now_s() + timeout_s
        while batches:
            # The newest batch usually finishes last. Checking it first saves checking all others
            # after each wait.
            if batches[-1].is_finished:
                batches.pop()
                continue
            self._progress.clear()
            left_s = None if deadline_s is None else max(0.0, deadline_s - self._network.now_s())
            if not await self._progress.wait(left_s):
                return

    async def close(self, timeout_s: float | None = None) -> None:
        """Reject new records, send the pending records, and close.

        Records that are not acknowledged within `timeout_s` (default: no limit) fail with
        ClosedError. Repeated calls have no effect; a concurrent call waits for the first call. The
        cluster's connections stay open.
        """
        begun_s = self._network.now_s()
        self._refuse_records()
        with TaskCompletion(self._stop_audit):
            # Every record needs an outcome, even if the wait is cancelled.
            with TaskCompletion(self._close_rest):
                await self._until_finished(list(self._accumulator.incomplete), timeout_s)
            if self._audit is not None:
                spent_s = self._network.now_s() - begun_s
                await self._audit.close(
                    None if timeout_s is None else max(0.0, timeout_s - spent_s)
                )

    def _refuse_records(self) -> None:
        self._is_closed = True
        # Count the blocked sends now: they fail as soon as they are woken below.
        self._refused += self._blocked
        self._accumulator.close()
        self._lookup.close()
        self._waiters.wake_all()
        self._progress.set()
        self.woken()

    def _close_rest(self) -> None:
        # Log a warning: an application that never reads its futures would not notice the loss.
        left, self._refused = self._refused, Counter()
        for batch in self._accumulator.incomplete:
            if not batch.is_done:
                left[batch.topic_partition.topic] += batch.count
        if left:
            topics = ", ".join(f"{topic}: {count}" for topic, count in sorted(left.items()))
            text = "closed a producer before %d records were acknowledged (%s)"
            log.warning(text, left.total(), topics)
        self._deliveries.abort(_closed_before)
        self._sender.stop()
        self._progress.set()
        # A second call to `close` must not close the interceptors again.
        if not self._is_ended:
            self._is_ended = True
            self._interceptors.close()

    def _stop_audit(self) -> None:
        if self._audit is not None:
            self._audit.stop()

    def _add_headers(self, headers: tuple[Header, ...]) -> None:
        """Add `headers` to every record that is sent from now on."""
        # Two attributes keep the check for the audit out of the hot path.
        self._own_headers = headers
        self._overhead_bytes = RECORD_OVERHEAD + size_of_headers(headers)

    # -- the engine's thread --------------------------------------------------------------------

    def woken(self) -> None:
        """Wake the sender, starting it on the first call."""
        if self._task is None:
            self._task = self._network.spawn(self._sender.run(), "sending records")
        self._sender.wake()

    @property
    def is_full(self) -> bool:
        """Whether buffer.memory has no room for another batch. Any thread may call this."""
        return not self._accumulator.has_room()

    def forked(self, error: Exception) -> None:
        """Fail all pending records in a forked child, which cannot send them."""
        # Do not acquire the lock: if a thread held it during the fork, that thread exists only in
        # the parent, and the child would wait forever. Iterate over a copy instead.
        for batch in tuple(self._accumulator.incomplete):
            if not batch.is_done:
                batch.abandon(error)

    def metrics(self) -> dict[str, float]:
        """Return the metrics by Kafka's names; averages without values are NaN. Thread-safe."""
        found = self._metrics.snapshot()
        total = self._settings.buffer_memory
        found["buffer-total-bytes"] = total
        found["buffer-available-bytes"] = max(0, total - self._accumulator.used_bytes)
        found["waiting-threads"] = self._accumulator.line_length
        return found

    def _on_outcome(self, batch: ProducerBatch) -> None:
        if self._interceptors:
            self._interceptors.on_batch(batch)
        self._progress.set()
        # The batch has released its memory, so the first waiter may continue.
        self._waiters.serve()

    def _update_topics(self, metadata: ClusterMetadata, topic: str | None = None) -> None:
        """Pass the metadata of `topic`, or of all topics in use, to the accumulator."""
        if topic is None:
            idle_s = self._settings.metadata_max_idle_ms / 1000
            self._cluster.forget_topics(self._accumulator.forget_idle_topics(idle_s))
        for name in self._accumulator.topics if topic is None else (topic,):
            # A topic without partitions has an error or is being created. In that case, keep the
            # partitions that are already known.
            known = metadata.topics.get(name)
            if known is not None and known.partitions:
                slow = self._sender.slow_nodes
                self._accumulator.update_topic(
                    name,
                    len(known.partitions),
                    # Records without a key avoid partitions with a slow leader (KIP-794).
                    [x.index for x in known.partitions if x.leader not in (NO_NODE, *slow)],
                    known.topic_id,
                )

    def _check_open(self) -> None:
        if self._is_closed:
            raise _closed()


def _audit_reporter(
    cluster: Cluster, network: Network, settings: ProducerSettings
) -> AuditReporter | None:
    """Return the audit reporter of a producer, or None if the audit is disabled."""
    if not settings.plog_audit_enable:
        return None
    # Most producers are not audited, so import it only here.
    from plog.client.producer.audit_reporter import AuditReporter

    return AuditReporter(cluster, network, settings)


def _closed() -> ClosedError:
    return ClosedError("the producer is closed; create a new one")


def _closed_before(batch: ProducerBatch) -> ClosedError:
    may_be = "it may be in the log" if batch.may_be_written else "it was not written"
    return ClosedError(
        f"the producer was closed before a record for {batch.topic_partition} was acknowledged;"
        f" {may_be}"
    )
