"""The records of `__transaction_state`, written by Kafka's transaction coordinator.

The key and value are separate messages, each preceded by its version as an int16. The key's version
is the record type, of which there is only one. Source: Kafka 4.3 transaction-coordinator messages.

  TransactionLogValue   1 flexible, producer ids before and after, transaction version (KIP-890)
"""

from __future__ import annotations

from plog.wire.schema import Message, Struct, field, int8, int16, int32, int64


class TransactionLogKey(Message, versions="0"):
    """The key: a transactional id."""

    transactional_id: str = field()


class TransactionPartitions(Struct):
    """Partitions of one topic that the transaction writes to."""

    topic: str = field()
    partition_ids: list[int32] = field()


class TransactionLogValue(Message, versions="0-1", flexible="1+"):
    """The state of a transaction; timestamps are wall-clock ms."""

    producer_id: int64 = field()
    # When a producer id runs out of epochs, the coordinator assigns another id. With the previous
    # id, it recognizes a repeated EndTxn request (KIP-890).
    previous_producer_id: int64 = field("1+", tag=0, default=-1, ignorable=True)
    next_producer_id: int64 = field("1+", tag=1, default=-1, ignorable=True)
    producer_epoch: int16 = field()
    transaction_timeout_ms: int32 = field()
    transaction_status: int8 = field()
    # Kafka's TransactionLog writes null in the state Empty.
    transaction_partitions: list[TransactionPartitions] | None = field()
    transaction_last_update_timestamp_ms: int64 = field()
    transaction_start_timestamp_ms: int64 = field()
    client_transaction_version: int16 = field("1+", tag=2, ignorable=True)


TRANSACTION_MESSAGES: tuple[type[Message], ...] = (TransactionLogKey, TransactionLogValue)
