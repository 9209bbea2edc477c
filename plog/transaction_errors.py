"""The errors of transactions; part of plog.errors, where everybody imports them from."""

from __future__ import annotations

from plog.error_base import KafkaError
from plog.error_codes import ErrorCode


class InvalidTxnState(KafkaError):
    """The operation does not fit the transaction's state."""

    code = ErrorCode.INVALID_TXN_STATE


class InvalidProducerIdMapping(KafkaError):
    """The producer id is not the one of this transactional id."""

    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class InvalidTransactionTimeout(KafkaError):
    """The transaction timeout is above the broker's transaction.max.timeout.ms, or not above 0."""

    code = ErrorCode.INVALID_TRANSACTION_TIMEOUT


class ConcurrentTransactions(KafkaError):
    """The coordinator is still busy with the producer's last transaction."""

    code = ErrorCode.CONCURRENT_TRANSACTIONS


class TransactionalIdAuthorizationFailed(KafkaError):
    """The principal may not use this transactional id."""

    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class ProducerFenced(KafkaError):
    """A newer producer with the same transactional id has taken over: this one has to end."""

    code = ErrorCode.PRODUCER_FENCED


class TransactionAbortable(KafkaError):
    """The transaction cannot be committed: abort it; then it may be begun anew."""

    code = ErrorCode.TRANSACTION_ABORTABLE
