"""The most significant error of a response about many partitions."""

from __future__ import annotations

import pytest

from plog.client.transactions.messages import error_of_partitions
from plog.errors import ErrorCode
from plog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)

NONE, TRIED_NOT = ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED
BUSY, REFUSED = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("codes", "counts"),
    [
        ([NONE, NONE], None),
        ([NONE, BUSY], BUSY),
        ([TRIED_NOT, REFUSED], REFUSED),
        ([TRIED_NOT, BUSY, REFUSED], REFUSED),
        ([TRIED_NOT, BUSY], BUSY),
        ([TRIED_NOT], TRIED_NOT),
    ],
)
def test_error_that_a_retry_cannot_fix_ranks_first(codes: list[int], counts: int | None) -> None:
    answer = AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name="orders",
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=code
                    )
                    for index, code in enumerate(codes)
                ],
            )
        ]
    )
    error = error_of_partitions(answer, "adding")
    assert (None if error is None else error.code) == counts
    assert error is None or str(error).startswith(f"adding orders-{codes.index(error.code)}: ")
