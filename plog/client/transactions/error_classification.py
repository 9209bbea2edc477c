"""What an error means for a transaction: try again, abort and begin anew, or no more at all.

Source: Kafka 4.3 TransactionManager; KIP-360, KIP-588, KIP-654, KIP-1050.
"""

from __future__ import annotations

from enum import Enum

from plog.client.errors import DeliveryTimedOut
from plog.error_codes import RETRIABLE
from plog.errors import ErrorCode, KafkaError, ProducerFenced, TransactionAbortable
from plog.wire.schema import WireError


class Verdict(Enum):
    """See the module's text."""

    RETRY = "the same request may succeed later"
    LOOK = "it has another coordinator, or none at the moment"
    ABORT = "the transaction cannot be committed"
    FORGOTTEN = "the coordinator has forgotten the producer id: nothing is left to be aborted"
    FATAL = "this producer can do nothing more"


_LOOK = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})

_ABORT = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        # Offsets of a consumer that has lost its place in the group.
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
"""A coordinator from before KIP-588 says the second."""

_FATAL_FOR_A_BATCH = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


def verdict_of(error: Exception) -> Verdict:
    """What an error that a coordinator answered, or that came up when it was asked, leads to."""
    if isinstance(error, WireError):
        return Verdict.LOOK
    if not isinstance(error, KafkaError):
        return Verdict.FATAL
    code = error.code
    if code in _LOOK:
        return Verdict.LOOK
    if code in _ABORT:
        return Verdict.ABORT
    if code == ErrorCode.INVALID_PRODUCER_ID_MAPPING:
        return Verdict.FORGOTTEN
    return Verdict.RETRY if code in RETRIABLE else Verdict.FATAL


def verdict_of_batch(error: Exception) -> Verdict:
    """What it leads to that records of a transaction were not written."""
    if isinstance(error, KafkaError) and not isinstance(error, DeliveryTimedOut):
        if error.code in _FATAL_FOR_A_BATCH:
            return Verdict.FATAL
        if error.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            return Verdict.FORGOTTEN
    return Verdict.ABORT


def explained(error: Exception, transactional_id: str, timeout_ms: int) -> Exception:
    """A fatal `error` as the application is told it."""
    if isinstance(error, KafkaError) and error.code in _FENCED:
        return ProducerFenced(
            f"transactional.id={transactional_id}: a newer producer uses this id, or a transaction"
            f" was open for more than transaction.timeout.ms={timeout_ms} and the broker has ended"
            " it; what was not committed is aborted. Close this producer"
        )
    return error


def abortable(error: Exception, transactional_id: str) -> TransactionAbortable:
    """What the application is told when `error` has spoiled its transaction."""
    why = error.message if isinstance(error, KafkaError) else str(error)
    abortable = TransactionAbortable(
        f"transactional.id={transactional_id}: the transaction cannot be committed: call"
        f" abort_transaction(), then begin it anew. The reason: {why or type(error).__name__}"
    )
    abortable.__cause__ = error
    return abortable
