"""The meaning of errors for a transaction."""

from __future__ import annotations

import pytest

from plog.client.errors import ClosedError, ConnectionFailed, DeliveryTimedOut
from plog.client.transactions.error_classification import (
    Verdict,
    abortable,
    explained,
    verdict_of,
    verdict_of_batch,
)
from plog.errors import ErrorCode, InvalidTopicException, ProducerFenced, error_from_code
from plog.wire.schema import WireError


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.CONCURRENT_TRANSACTIONS, Verdict.RETRY),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Verdict.RETRY),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, Verdict.RETRY),
        (ErrorCode.NOT_COORDINATOR, Verdict.FIND_COORDINATOR),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, Verdict.FIND_COORDINATOR),
        (ErrorCode.TRANSACTION_ABORTABLE, Verdict.ABORT),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, Verdict.ABORT),
        (ErrorCode.UNKNOWN_MEMBER_ID, Verdict.ABORT),
        (ErrorCode.FENCED_INSTANCE_ID, Verdict.ABORT),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, Verdict.FORGOTTEN),
        (ErrorCode.PRODUCER_FENCED, Verdict.FATAL),
        (ErrorCode.INVALID_PRODUCER_EPOCH, Verdict.FATAL),
        (ErrorCode.INVALID_TXN_STATE, Verdict.FATAL),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Verdict.FATAL),
    ],
)
def test_verdict_of_coordinator_error(code: ErrorCode, verdict: Verdict) -> None:
    assert verdict_of(error_from_code(code)) is verdict


def test_connection_errors_are_not_fatal() -> None:
    assert verdict_of(ConnectionFailed("cut")) is Verdict.RETRY
    assert verdict_of(WireError("garbage")) is Verdict.FIND_COORDINATOR
    assert verdict_of(ClosedError("closed")) is Verdict.FATAL


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (DeliveryTimedOut("late"), Verdict.ABORT),
        (ValueError("not for a batch"), Verdict.ABORT),
        (error_from_code(ErrorCode.INVALID_PRODUCER_EPOCH), Verdict.ABORT),
        (error_from_code(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), Verdict.ABORT),
        (error_from_code(ErrorCode.INVALID_PRODUCER_ID_MAPPING), Verdict.FORGOTTEN),
        (error_from_code(ErrorCode.PRODUCER_FENCED), Verdict.FATAL),
        (error_from_code(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), Verdict.FATAL),
    ],
)
def test_verdict_of_failed_batch(error: Exception, verdict: Verdict) -> None:
    assert verdict_of_batch(error) is verdict


def test_explained_errors_have_a_remedy() -> None:
    fenced = explained(error_from_code(ErrorCode.INVALID_PRODUCER_EPOCH), "shop", 1000)
    assert isinstance(fenced, ProducerFenced)
    assert "; close this producer" in str(fenced)
    other = InvalidTopicException("unchanged")
    assert explained(other, "shop", 1000) is other
    error = abortable(KeyError(), "shop")
    assert "KeyError; call abort_transaction(), then begin a new transaction" in str(error)
