"""AddPartitionsToTxn (key 24): add partitions to a transaction (KIP-98).

Changes by version:

  2  PRODUCER_FENCED may be returned (KIP-588)
  3  flexible
  4  for brokers: several transactions, and verification without adding (KIP-890)
  5  TRANSACTION_ABORTABLE may be returned (KIP-890)

Versions 0 and 1 are identical. Clients use at most version 3; brokers use later versions to verify
transactions with the coordinator.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32, int64


class AddPartitionsToTxnTopic(Struct):
    """Partitions of one topic."""

    name: str = field()
    partitions: list[int32] = field()


class AddPartitionsToTxnTransaction(Struct):
    """A transaction, and the partitions to add to it or to verify."""

    transactional_id: str = field("4+")
    producer_id: int64 = field("4+")
    producer_epoch: int16 = field("4+")
    verify_only: bool = field("4+")
    topics: list[AddPartitionsToTxnTopic] = field("4+")


class AddPartitionsToTxnRequest(
    ApiMessage, api_key=ApiKey.ADD_PARTITIONS_TO_TXN, versions="0-5", flexible="3+"
):
    """Partitions to add, for a single transaction up to version 3."""

    transactions: list[AddPartitionsToTxnTransaction] = field("4+")
    # The names are those of Kafka's declaration.
    v3_and_below_transactional_id: str = field("0-3")
    v3_and_below_producer_id: int64 = field("0-3")
    v3_and_below_producer_epoch: int16 = field("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field("0-3")


class AddPartitionsToTxnPartitionResult(Struct):
    """The result for one partition."""

    partition_index: int32 = field()
    partition_error_code: int16 = field()


class AddPartitionsToTxnTopicResult(Struct):
    """The results for the partitions of one topic."""

    name: str = field()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field()


class AddPartitionsToTxnResult(Struct):
    """The results for the partitions of one transaction."""

    transactional_id: str = field("4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = field("4+")


class AddPartitionsToTxnResponse(
    ApiMessage, api_key=ApiKey.ADD_PARTITIONS_TO_TXN, versions="0-5", flexible="3+"
):
    """The result for each partition."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field("4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field("4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field("0-3")
