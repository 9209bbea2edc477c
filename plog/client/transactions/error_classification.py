"""Classify transaction errors: retry, abort and begin again, or close the producer.

Source: Kafka 4.3 TransactionManager; KIP-360, KIP-588, KIP-654, KIP-1050.
"""

from __future__ import annotations

from enum import Enum

from plog.client.errors import DeliveryTimedOut
from plog.error_codes import RETRIABLE
from plog.errors import ErrorCode, KafkaError, ProducerFenced, TransactionAbortable
from plog.wire.schema import WireError


class Verdict(Enum):
    """What a transaction must do after an error."""

    RETRY = "the same request may succeed later"
    FIND_COORDINATOR = "the coordinator has moved, or is currently not available"
    ABORT = "the transaction cannot be committed"
    FORGOTTEN = "the coordinator has forgotten the producer ID: there is nothing to abort"
    FATAL = "the producer must be closed"


# After these errors, FindCoordinator may return another broker.
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
"""The errors for a fenced producer; coordinators before KIP-588 return the second one."""

_FATAL_FOR_A_BATCH = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


def verdict_of(error: Exception) -> Verdict:
    """Classify an error that a coordinator returned, or that a request to it raised."""
    # A malformed response closes the connection. The broker may not be the coordinator, so look up
    # the coordinator again.
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
        # After transactional.id.expiration.ms, the coordinator has removed the producer ID.
        return Verdict.FORGOTTEN
    return Verdict.RETRY if code in RETRIABLE else Verdict.FATAL


def verdict_of_batch(error: Exception) -> Verdict:
    """Classify the error of a failed batch in a transaction."""
    # An expired record only requires an abort, regardless of the last error from a broker.
    if isinstance(error, KafkaError) and not isinstance(error, DeliveryTimedOut):
        if error.code in _FATAL_FOR_A_BATCH:
            return Verdict.FATAL
        if error.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            return Verdict.FORGOTTEN
    return Verdict.ABORT


def explained(error: Exception, transactional_id: str, timeout_ms: int) -> Exception:
    """Return the error to raise for a fatal `error`, with an explanation if it needs one."""
    if isinstance(error, KafkaError) and error.code in _FENCED:
        return ProducerFenced(
            f"transactional.id={transactional_id}: a newer producer uses this ID, or a transaction"
            f" was open for more than transaction.timeout.ms={timeout_ms} and the broker has"
            " aborted it; close this producer"
        )
    return error


def abortable(error: Exception, transactional_id: str) -> TransactionAbortable:
    """Return the error to raise in the application after its transaction failed with `error`."""
    # Messages from brokers end with a period, but this sentence continues.
    why = (error.message if isinstance(error, KafkaError) else str(error)).rstrip(".")
    abortable = TransactionAbortable(
        f"transactional.id={transactional_id}: cannot commit the transaction:"
        f" {why or type(error).__name__}; call abort_transaction(), then begin a new transaction"
    )
    abortable.__cause__ = error
    return abortable
