"""The outcome of a sent batch: written, retried, split or failed.

sender.py reports a batch's response, or that no response arrived. This module decides the outcome
and passes it to the accumulator, to the partition's sequence numbers and to the callers that wait
for the batch's records. Every batch gets its outcome here, exactly once.

Source: Kafka 4.3 Sender.completeBatch, TransactionManager.canRetry; KIP-98, KIP-360, KIP-467.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from plog.client.errors import DeliveryTimedOut
from plog.client.producer.accumulator import Accumulator
from plog.client.producer.metrics import ProducerMetrics
from plog.client.producer.producer_batch import ProducerBatch
from plog.client.producer.sequence_numbers import PartitionSequences
from plog.client.settings import ProducerSettings
from plog.client.values import NO_TIMESTAMP, UNKNOWN_OFFSET
from plog.error_codes import RETRIABLE
from plog.errors import ErrorCode, InvalidRecord, KafkaError, error_from_code
from plog.wire.messages.produce import PartitionProduceResponse

if TYPE_CHECKING:
    from plog.client.producer.audit_reporter import AuditReporter

log = logging.getLogger("plog.client")

# The same values as in Kafka's producer (KIP-580).
_JITTER = 0.2
_GROWTH = 2
# After 30 doublings, every backoff has reached its maximum. The limit avoids huge powers.
_MAX_DOUBLINGS = 30

NOT_WRITTEN = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""Errors that mean that the broker has not written the batch.

Errors that a broker may also return after writing, when replication fails, are excluded. An example
is NOT_LEADER_OR_FOLLOWER from a leader that is deposed while the batch waits for other replicas.
"""

STALE_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
    }
)
"""Errors that may mean that a partition's leader has changed."""


class BatchCompletion:
    """The component that completes a producer's batches. Use only in the engine's thread."""

    def __init__(
        self,
        accumulator: Accumulator[Any],
        settings: ProducerSettings,
        metrics: ProducerMetrics,
        *,
        now_s: Callable[[], float],
        random: Callable[[], float],
        on_outcome: Callable[[ProducerBatch], None],
        audit: AuditReporter | None = None,
    ) -> None:
        self._accumulator = accumulator
        self._settings = settings
        self._metrics = metrics
        self._now_s = now_s
        self._random = random
        self._on_outcome = on_outcome
        self._audit = audit
        self.on_failure: Callable[[ProducerBatch, Exception], None] = lambda *_: None
        """Called when a batch fails, before its records' callbacks."""
        self.may_retry: Callable[[], bool] = lambda: True
        """Whether batches may be retried at all."""
        self._delivery_timeout_s = settings.delivery_timeout_ms / 1000

    # -- responses ------------------------------------------------------------------------------

    def answered(self, batch: ProducerBatch, answer: PartitionProduceResponse) -> None:
        """Handle a broker's response for `batch`."""
        code = answer.error_code
        self._left_wire(batch)
        if code == ErrorCode.NONE:
            self._written(batch, answer.base_offset, answer.log_append_time_ms)
        elif code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            # An earlier attempt was written, and the broker no longer knows its offset (KIP-98).
            self._written(batch, UNKNOWN_OFFSET, NO_TIMESTAMP)
        elif batch.is_done:
            # The batch expired in flight: its records have already failed, and only its sequence
            # numbers still matter.
            self._abandon(batch)
        elif code == ErrorCode.MESSAGE_TOO_LARGE and batch.count > 1 and self.may_retry():
            # A single record cannot be split, and a failed transaction does not resend anything.
            self._split(batch)
        elif not self._retried_or_deferred(batch, answer):
            self._refused(batch, answer)
        # This may have been the last response that the partition needed to recover.
        self._recover(batch)

    def unanswered(self, batch: ProducerBatch, error: Exception) -> None:
        """Retry or fail `batch` after its request failed; whether it was written is unknown."""
        self._left_wire(batch)
        batch.unanswered()
        if batch.is_done:
            self._abandon(batch)
        elif self._may_retry(batch):
            self._retry(batch, str(error))
        else:
            self.fail(batch, error)
        self._recover(batch)

    def unsent(self, batch: ProducerBatch, error: Exception) -> None:
        """Fail `batch`, which was taken but could not be sent."""
        self._left_wire(batch)
        # A callback for another batch of the same request may have aborted this one.
        if batch.is_done:
            self._abandon(batch)
            self._recover(batch)
        else:
            self.fail(batch, error)

    def sent_without_acks(self, batch: ProducerBatch) -> None:
        """Complete `batch`, which was sent with acks=0, without an offset."""
        self._left_wire(batch)
        self._written(batch, UNKNOWN_OFFSET, NO_TIMESTAMP)

    def _left_wire(self, batch: ProducerBatch) -> None:
        self._accumulator.queue_of(batch).on_wire -= 1
        batch.on_wire = False

    def _sequences_of(self, batch: ProducerBatch) -> PartitionSequences[ProducerBatch] | None:
        return self._accumulator.queue_of(batch).sequences

    def _written(self, batch: ProducerBatch, base_offset: int, append_time: int) -> None:
        sequences = self._sequences_of(batch)
        late: list[ProducerBatch] = []
        if sequences is not None:
            # `written` settles `batch`. `overtaken` needs its place among the unsettled batches, so
            # it must be called first.
            late = sequences.overtaken(batch)
            for earlier in sequences.written(batch, base_offset):
                if not earlier.is_done:
                    self._succeed(earlier, UNKNOWN_OFFSET, NO_TIMESTAMP)
        # A batch that expired in flight keeps its error, even if it was written after all.
        if not batch.is_done:
            self._succeed(batch, base_offset, append_time)
        for earlier in late:
            if not earlier.is_done:
                self._accumulator.remove(earlier)
                self.fail(earlier, _overtaken(earlier))

    def _abandon(self, batch: ProducerBatch) -> None:
        sequences = self._sequences_of(batch)
        if sequences is not None:
            sequences.give_up(batch)

    def _retried_or_deferred(self, batch: ProducerBatch, answer: PartitionProduceResponse) -> bool:
        """Queue `batch` for a retry or defer it; return False if it must fail instead."""
        code = answer.error_code
        sequences = self._sequences_of(batch)
        waits = code in RETRIABLE
        # Despite such an error, the batch may have been written: from now on, it is in doubt.
        if code not in NOT_WRITTEN:
            batch.unanswered()
        if sequences is not None:
            if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                waits = sequences.out_of_order(batch)
                if not waits:
                    return True
            elif code == ErrorCode.UNKNOWN_PRODUCER_ID and answer.log_start_offset < 0:
                # Without a log start offset, the broker no longer hosts the partition. The new
                # leader may still know the producer.
                waits = True
            elif code in (ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH):
                is_fenced = code == ErrorCode.INVALID_PRODUCER_EPOCH
                waits = sequences.unknown_producer(batch, is_fenced=is_fenced)
        if waits and self._may_retry(batch):
            self._retry(batch, _text_of(answer))
            return True
        return False

    def _refused(self, batch: ProducerBatch, answer: PartitionProduceResponse) -> None:
        """Fail `batch` with the broker's error; invalid records get their own errors (KIP-467)."""
        # The broker may have written an earlier attempt, although it rejected the last one.
        doubt = "; the record may be in the log" if batch.in_doubt else ""
        error: KafkaError = error_from_code(
            answer.error_code, f"{batch.topic_partition}: {_text_of(answer)}{doubt}"
        )
        errors: dict[int, Exception] = {
            x.batch_index: InvalidRecord(x.batch_index_error_message or _text_of(answer))
            for x in answer.record_errors
        }
        # KIP-467: if a single record is invalid, the response's error code is about that record.
        if len(errors) == 1 and answer.error_code != ErrorCode.NONE:
            [(index, single)] = errors.items()
            errors = {index: error_from_code(answer.error_code, str(single))}
        if errors:
            error = InvalidRecord(
                f"{batch.topic_partition}: record not written: other records in its batch are"
                " invalid"
            )
        self.fail(batch, error, errors)

    # -- outcomes -------------------------------------------------------------------------------

    def _may_retry(self, batch: ProducerBatch) -> bool:
        age_s = self._now_s() - batch.created_s
        # If the transaction can only be aborted, a retry would be useless (decision 0014).
        if not self.may_retry():
            return False
        return batch.attempts < self._settings.retries and age_s < self._delivery_timeout_s

    def _retry(self, batch: ProducerBatch, why: str) -> None:
        """Queue `batch` again, with a backoff that grows with each attempt."""
        settings = self._settings
        doublings = min(batch.attempts, _MAX_DOUBLINGS)
        wait_ms = min(settings.retry_backoff_ms * _GROWTH**doublings, settings.retry_backoff_max_ms)
        jitter = 1 + _JITTER * (2 * self._random() - 1)
        batch.attempts += 1
        batch.trouble = why
        batch.retry_at_s = self._now_s() + wait_ms / 1000 * jitter
        # The batch has already lingered before its first attempt.
        batch.is_urgent = True
        self._metrics.retried(batch.count)
        log.debug("retrying a batch of %s: %s", batch.topic_partition, why)
        self._accumulator.put_back(batch)

    def _split(self, batch: ProducerBatch) -> None:
        """Split `batch` to fit the topic's max.message.bytes; a part may be split again later."""
        parts = batch.split(self._settings.batch_size)
        sequences = self._sequences_of(batch)
        if sequences is not None:
            sequences.replace(batch, parts)
        # The records compressed worse than expected, so reset the estimate to no compression.
        self._accumulator.queue_of(batch).topic.expect_ratio(1.0)
        self._accumulator.replace(batch, parts)
        self._metrics.split()
        log.info("split a batch of %s into %d: it was too large", batch.topic_partition, len(parts))

    def _recover(self, batch: ProducerBatch) -> None:
        """Resume sending to the partition if it was waiting for the outcome of `batch`."""
        sequences = self._sequences_of(batch)
        # Usually, no numbers are missing.
        if sequences is None or not sequences.is_broken:
            return
        lost, renumbered = sequences.recover()
        for other in renumbered:
            # The encoded batch contains the old sequence numbers.
            other.encoded = None
        for other in lost:
            if not other.is_done:
                error = error_from_code(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"{other.topic_partition}: the broker has lost the state of this producer;"
                    " the record may have been written",
                )
                self.fail(other, error)

    def expire(self) -> float:
        """Fail batches older than delivery.timeout.ms, and return when to check again."""
        now_s = self._now_s()
        while (batch := self._accumulator.oldest()) is not None:
            due_s = batch.created_s + self._delivery_timeout_s
            if due_s > now_s:
                return due_s
            self._accumulator.remove(batch)
            self.fail(batch, self._timed_out(batch))
        return now_s + self._delivery_timeout_s

    def _timed_out(self, batch: ProducerBatch) -> DeliveryTimedOut:
        may_be = "it may be in the log" if batch.may_be_written else "it was not written"
        last_try = f" (last attempt: {batch.trouble})" if batch.trouble else ""
        return DeliveryTimedOut(
            f"a record for {batch.topic_partition} was not acknowledged within"
            f" delivery.timeout.ms={self._settings.delivery_timeout_ms}; {may_be}{last_try}"
        )

    def abort(self, error: Callable[[ProducerBatch], Exception]) -> None:
        """Fail all batches, whether sent or not."""
        for batch in list(self._accumulator.incomplete):
            # Failing one batch may complete others.
            if not batch.is_done:
                self._accumulator.remove(batch)
                self.fail(batch, error(batch))

    def fail(
        self,
        batch: ProducerBatch,
        error: Exception,
        errors_by_index: Mapping[int, Exception] | None = None,
    ) -> None:
        """Fail `batch` without further retries."""
        # Must be called first: callbacks of a Deferred run immediately and may commit the
        # transaction, and that commit must already fail (decision 0014).
        self.on_failure(batch, error)
        # The batch drops its records when it gets its outcome, so count them first.
        if self._audit is not None:
            self._audit.failed(batch)
        sequences = self._sequences_of(batch)
        if sequences is not None:
            sequences.give_up(batch)
        self._metrics.failed(batch.count)
        self._accumulator.free(batch)
        batch.fail(error, errors_by_index or {})
        self._accumulator.forget(batch)
        self._on_outcome(batch)
        self._recover(batch)

    def _succeed(self, batch: ProducerBatch, base_offset: int, append_time: int) -> None:
        if self._audit is not None:
            self._audit.written(batch, append_time)
        self._accumulator.free(batch)
        batch.succeed(base_offset, append_time)
        self._accumulator.forget(batch)
        self._on_outcome(batch)


def _overtaken(batch: ProducerBatch) -> KafkaError:
    return error_from_code(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"{batch.topic_partition}: record not written, to preserve ordering: the broker has lost"
        " the state of this producer and has already written a later record",
    )


def _text_of(answer: PartitionProduceResponse) -> str:
    return answer.error_message or error_from_code(answer.error_code).message
