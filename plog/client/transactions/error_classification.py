"""Classification of errors for transactions: retry, abort and begin again, or close the producer.

Source: Kafka 4.3 TransactionManager; KIP-360, KIP-588, KIP-654, KIP-1050.
"""

from __future__ import annotations

from enum import Enum

from plog.client.errors import DeliveryTimedOut
from plog.error_codes import RETRIABLE
from plog.errors import ErrorCode, KafkaError, ProducerFenced, TransactionAbortable
from plog.wire.schema import WireError


class Verdict(Enum):
    """The consequence of an error for a transaction."""

    RETRY = "the same request may succeed later"
    FIND_COORDINATOR = "the coordinator has moved, or is not available now"
    ABORT = "the transaction cannot be committed"
    FORGOTTEN = "the coordinator has forgotten the producer ID: there is nothing to abort"
    FATAL = "the producer must be closed"


# After these, the next FindCoordinator may return another broker.
_COORDINATOR_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})

_ABORT = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        # The offsets come from a consumer that is no longer a member of the group (KIP-447).
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.INVALID_GROUP_ID,
    }
)

_FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
"""Coordinators older than KIP-588 return the second error."""

_FATAL_FOR_A_BATCH = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


def verdict_of(error: Exception) -> Verdict:
    """Classify an error returned by a coordinator, or raised by a request to one."""
    # A malformed response has closed the connection. Its broker may not be the coordinator, so the
    # coordinator is looked up again.
    if isinstance(error, WireError):
        return Verdict.FIND_COORDINATOR
    if not isinstance(error, KafkaError):
        return Verdict.FATAL
    code = error.code
    if code in _COORDINATOR_MOVED:
        return Verdict.FIND_COORDINATOR
    if code in _ABORT:
        return Verdict.ABORT
    if code == ErrorCode.INVALID_PRODUCER_ID_MAPPING:
        # The coordinator has expired the producer ID after transactional.id.expiration.ms.
        return Verdict.FORGOTTEN
    return Verdict.RETRY if code in RETRIABLE else Verdict.FATAL


def verdict_of_batch(error: Exception) -> Verdict:
    """Classify an error with which records of a transaction failed."""
    # A record that expired is an ordinary loss, whatever the last broker error was.
    if isinstance(error, KafkaError) and not isinstance(error, DeliveryTimedOut):
        if error.code in _FATAL_FOR_A_BATCH:
            return Verdict.FATAL
        if error.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            return Verdict.FORGOTTEN
    return Verdict.ABORT


def explained(error: Exception, transactional_id: str, timeout_ms: int) -> Exception:
    """Return a fatal `error` with an explanation for the application."""
    if isinstance(error, KafkaError) and error.code in _FENCED:
        return ProducerFenced(
            f"transactional.id={transactional_id}: a newer producer uses this ID, or a transaction"
            f" was open for more than transaction.timeout.ms={timeout_ms} and the broker has"
            " aborted it; close this producer"
        )
    return error


def abortable(error: Exception, transactional_id: str) -> TransactionAbortable:
    """Return the error to raise in the application whose transaction failed with `error`."""
    # Broker texts end with a period, but the sentence continues here.
    why = (error.message if isinstance(error, KafkaError) else str(error)).rstrip(".")
    abortable = TransactionAbortable(
        f"transactional.id={transactional_id}: cannot commit the transaction:"
        f" {why or type(error).__name__}; call abort_transaction(), then begin it again"
    )
    abortable.__cause__ = error
    return abortable
