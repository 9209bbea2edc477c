"""The errors a client raises of its own; those a broker answers with are in plog/errors.py.

Each says in its text what happened, to what, and what to do about it. All of them are `PlogError`s;
those for which Kafka's protocol has a code are `KafkaError`s, too, so that code which asks for
`error.code` or `error.retriable` need not know where an error was made.
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
from plog.settings import ConfigError as ConfigError  # Part of this module, for who imports them.
from plog.types import TopicPartition
from plog.wire.primitives import WireError


class ConnectionFailed(KafkaError):
    """The broker cannot be reached, or the connection to it broke.

    A request that was under way may have been carried out.
    """

    code = ErrorCode.NETWORK_EXCEPTION


class BrokerNotAvailable(KafkaError):
    """There is no broker of this number, or none at all."""

    code = ErrorCode.BROKER_NOT_AVAILABLE


class BrokenAnswer(ConnectionFailed, WireError):
    """What a broker sent makes no sense: it is none, or something between here and there is broken.

    The connection was closed; as with any that broke, the request may have been carried out.
    """


class AuthenticationFailed(KafkaError):
    """The broker refuses who we say we are, or is not who it should be: correct the settings.

    Trying again changes nothing, so clients do not.
    """

    code = ErrorCode.SASL_AUTHENTICATION_FAILED


class TlsFailed(AuthenticationFailed):
    """TLS could not begin: a certificate, a key or a host name is not as it has to be."""


class BufferExhausted(PlogError):
    """The producer's memory stayed full for max.block.ms: records come faster than they leave.

    Send more slowly, raise buffer.memory or max.block.ms, or see why the brokers are slow.
    """


class RecordTooLarge(MessageTooLarge):
    """A record is larger than max.request.size or buffer.memory: raise that, or split the record.

    The topic's max.message.bytes bounds it as well.
    """


class _AtRecord(PlogError):
    """What is wrong with a record; `partition` is None where it is not known which one it is."""

    def __init__(
        self, message: str, partition: TopicPartition | None = None, offset: int = -1
    ) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset


class SerializationFailed(_AtRecord):
    """A serializer or deserializer raised an error, or gave something that is not bytes.

    A consumer's position is still before the record, at `offset` of `partition`: seek to
    `offset + 1` to pass it, or mend the deserializer.
    """


class DeliveryTimedOut(RequestTimedOut):
    """A record was not acknowledged within delivery.timeout.ms; it may be in the log or not."""

    @property
    def retriable(self) -> bool:
        """No: the producer has retried, and to send the record again may write it twice."""
        return False


class CorruptRecords(_AtRecord, CorruptMessage):
    """Fetched records are damaged: fetch again, or seek past them.

    The position is still before them. The last one is at `offset` of `partition`, as far as can be
    told: a seek to `offset + 1` passes them.
    """


class NoOffsetForPartition(PlogError):
    """There is no committed offset, and auto.offset.reset=none: seek, or commit one first."""

    def __init__(self, message: str, partitions: Iterable[TopicPartition] = ()) -> None:
        super().__init__(message)
        self.partitions = frozenset(partitions)


class LogTruncated(OffsetOutOfRange):
    """Records this consumer has read are gone: a new leader had not got them. Seek to go on."""


class CommitFailed(PlogError):
    """Offsets were not committed, because the group has given the partitions to another member.

    Poll more often, raise max.poll.interval.ms, or lower max.poll.records.
    """


class MaxPollIntervalExceeded(PlogError):
    """This consumer has not polled for max.poll.interval.ms and so left its group.

    The next poll joins again. Work on fewer records at a time, or raise max.poll.interval.ms.
    """


class MissingExtra(PlogError):
    """What was called needs a package that is not installed; the text says which extra has it."""


class TransactionAborted(PlogError):
    """A record was not sent, because its transaction was aborted or has failed before."""


class IllegalState(PlogError):
    """The call does not fit what the client is doing, such as a seek in an unassigned partition."""


class ClosedError(PlogError):
    """The client has been closed: make a new one."""


class WokenUp(PlogError):
    """`wakeup` was called: the call that was waiting ended without a result."""


class WrongThread(PlogError):
    """A consumer is in use in another thread: use it in one at a time, or one for each."""


class ForkedError(PlogError):
    """The client was made before this process was forked off: make a new one in the child."""


def error_about(code: int, about: str) -> KafkaError:
    """The error a broker's code stands for, saying what it is about and what it means.

    >>> error_about(3, "topic orders")
    UnknownTopicOrPartition('topic orders: This broker hosts no such topic or partition.')
    """
    error = error_from_code(code)
    return type(error)(f"{about}: {error.message}")
