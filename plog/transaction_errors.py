"""The errors of transactions, which plog.errors re-exports."""

from __future__ import annotations

from plog.error_base import KafkaError
from plog.error_codes import ErrorCode


class InvalidTxnState(KafkaError):
    """The operation is not allowed in the transaction's state."""

    code = ErrorCode.INVALID_TXN_STATE


class InvalidProducerIdMapping(KafkaError):
    """The producer id does not belong to this transactional id."""

    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class InvalidTransactionTimeout(KafkaError):
    """The transaction timeout exceeds transaction.max.timeout.ms, or is not positive."""

    code = ErrorCode.INVALID_TRANSACTION_TIMEOUT


class ConcurrentTransactions(KafkaError):
    """The coordinator is still completing the producer's previous transaction."""

    code = ErrorCode.CONCURRENT_TRANSACTIONS


class TransactionalIdAuthorizationFailed(KafkaError):
    """The principal may not use this transactional id."""

    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class ProducerFenced(KafkaError):
    """A newer producer with the same transactional id has fenced this one: close it."""

    code = ErrorCode.PRODUCER_FENCED


class TransactionAbortable(KafkaError):
    """The transaction cannot be committed: abort it, then begin a new one."""

    code = ErrorCode.TRANSACTION_ABORTABLE
