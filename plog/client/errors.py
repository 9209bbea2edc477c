"""The errors that the client library itself raises; errors from a broker are in plog/errors.py.

Each message says what failed, why, and what to do. All errors are `PlogError`s. Errors with an
error code in Kafka's protocol are also `KafkaError`s, so applications can read `error.code` and
`error.retriable` regardless of whether the client or a broker raised the error.
"""

from __future__ import annotations

from collections.abc import Iterable

from plog.errors import (
    CorruptMessage,
    ErrorCode,
    KafkaError,
    MessageTooLarge,
    OffsetOutOfRange,
    PlogError,
    RequestTimedOut,
    error_from_code,
)
from plog.settings import ConfigError as ConfigError  # Re-exported.
from plog.types import TopicPartition
from plog.wire.primitives import WireError


class ConnectionFailed(KafkaError):
    """The broker cannot be reached, or the connection to it was lost.

    The broker may have processed a request that was in flight.
    """

    code = ErrorCode.NETWORK_EXCEPTION


class BrokerNotAvailable(KafkaError):
    """No broker with this ID is known, or no broker is available."""

    code = ErrorCode.BROKER_NOT_AVAILABLE


class BrokenAnswer(ConnectionFailed, WireError):
    """A response cannot be parsed: the peer is not a Kafka broker, or the network corrupts data.

    The client closes the connection. As with any lost connection, the broker may have processed
    the request.
    """


class AuthenticationFailed(KafkaError):
    """Authentication failed: the broker rejected the credentials or could not prove its identity.

    Clients do not retry; correct the settings.
    """

    code = ErrorCode.SASL_AUTHENTICATION_FAILED


class TlsFailed(AuthenticationFailed):
    """The TLS handshake failed: a certificate, key or host name is not valid."""


class ZooKeeperRejected(KafkaError):
    """ZooKeeper has rejected a request of a consumer with coordination=zookeeper.

    The usual reason is an ACL on the znodes. Clients do not retry.
    """

    code = ErrorCode.UNKNOWN_SERVER_ERROR


class InvalidZnode(KafkaError):
    """The data of a znode is not what Kafka's consumers or brokers write: repair or delete it."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


class BufferExhausted(PlogError):
    """buffer.memory stayed full for max.block.ms: brokers accept records too slowly.

    Send more slowly, raise buffer.memory or max.block.ms, or find out why the brokers are slow.
    """


class RecordTooLarge(MessageTooLarge):
    """A record exceeds max.request.size or buffer.memory: raise that setting, or split the record.

    The topic's max.message.bytes also limits the size.
    """


class _RecordError(PlogError):
    """An error for a single record; `partition` is None if the record's partition is not known."""

    def __init__(
        self, message: str, partition: TopicPartition | None = None, offset: int = -1
    ) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset


class SerializationFailed(_RecordError):
    """A serializer or deserializer raised an error, or a serializer did not return bytes.

    A consumer's position stays at the record, at `offset` in `partition`: fix the deserializer, or
    seek to `offset + 1` to skip the record.
    """


class DeliveryTimedOut(RequestTimedOut):
    """A record was not acknowledged within delivery.timeout.ms; it may have been written."""

    @property
    def retriable(self) -> bool:
        """Return False: the producer has retried, and another send may write the record twice."""
        return False


class CorruptRecords(_RecordError, CorruptMessage):
    """Fetched records are corrupt: fetch them again, or seek past them.

    The position stays before the corrupt records. As far as the client can tell, the last corrupt
    record is at `offset` in `partition`; a seek to `offset + 1` skips all of them.
    """


class NoOffsetForPartition(PlogError):
    """The group has no committed offset and auto.offset.reset=none: seek or commit an offset."""

    def __init__(self, message: str, partitions: Iterable[TopicPartition] = ()) -> None:
        super().__init__(message)
        self.partitions = frozenset(partitions)


class LogTruncated(OffsetOutOfRange):
    """A leader election lost records that this consumer has already read: seek to continue."""


class CommitFailed(PlogError):
    """Offsets were not committed because the group has reassigned the partitions to another member.

    Poll more often, raise max.poll.interval.ms, or lower max.poll.records.
    """


class MaxPollIntervalExceeded(PlogError):
    """The consumer did not poll for max.poll.interval.ms and therefore left its group.

    The next poll joins the group again. Process fewer records between polls, or raise
    max.poll.interval.ms.
    """


class MissingExtra(PlogError):
    """The call needs a package that is not installed; the message names plog's extra for it."""


class TransactionAborted(PlogError):
    """A record was not sent because its transaction was aborted or had failed."""


class IllegalState(PlogError):
    """The client's state does not allow the call, for example a seek in an unassigned partition."""


class ClosedError(PlogError):
    """The client is closed: create a new one."""


class WokenUp(PlogError):
    """`wakeup` interrupted the call before it had a result."""


class WrongThread(PlogError):
    """Two threads used a consumer at the same time: create one consumer per thread."""


class ForkedError(PlogError):
    """The client was created before this process was forked: create a new one in the child."""


def error_about(code: int, about: str) -> KafkaError:
    """Return the error for a broker's error code; its message states `about` and the meaning.

    >>> error_about(3, "topic orders")
    UnknownTopicOrPartition('topic orders: This broker does not host the topic or partition.')
    """
    error = error_from_code(code)
    return type(error)(f"{about}: {error.message}")
