"""Transactions under lost responses, moving coordinators and refusals."""

from __future__ import annotations

import pytest

from plog.client.errors import ClosedError, IllegalState, TransactionAborted
from plog.errors import (
    ErrorCode,
    InvalidTransactionTimeout,
    KafkaError,
    ProducerFenced,
    RequestTimedOut,
    TopicAuthorizationFailed,
    TransactionAbortable,
    TransactionalIdAuthorizationFailed,
)
from plog.types import TopicPartition
from plog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from plog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from plog.wire.messages.end_txn import EndTxnRequest
from plog.wire.messages.find_coordinator import FindCoordinatorRequest
from plog.wire.messages.init_producer_id import InitProducerIdRequest
from plog.wire.messages.produce import ProduceRequest
from plog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from plog.wire.schema import ApiMessage
from tests.helpers.client.transaction_world import Fault
from tests.unit.client.transactions.site import NAME, TOPIC, Site

BOTH = pytest.mark.parametrize("level", [1, 2])
FIRST = TopicPartition(TOPIC, 0)

PASSING: list[Fault] = [
    "drop",
    "lose",
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
]


@pytest.mark.parametrize("fault", PASSING)
@pytest.mark.parametrize(
    ("level", "kind"),
    [
        (1, AddPartitionsToTxnRequest),
        (1, AddOffsetsToTxnRequest),
        (1, TxnOffsetCommitRequest),
        (1, EndTxnRequest),
        (1, ProduceRequest),
        (2, TxnOffsetCommitRequest),
        (2, EndTxnRequest),
        (2, ProduceRequest),
    ],
)
@pytest.mark.parametrize("committed", [True, False])
def test_transient_errors_are_retried(
    level: int, kind: type[ApiMessage], fault: Fault, committed: bool
) -> None:
    site = Site(level=level)
    site.world.faults += [(kind, fault), (kind, fault)]
    for value in (b"a", b"b"):
        site.send(value)
        site.run(site.core.send_offsets_to_transaction({FIRST: 5}, "billing"))
        site.flush()
        site.commit() if committed else site.abort()
        site.begin()
    assert not site.world.faults
    assert site.committed() == ([b"a", b"b"] if committed else [])
    assert site.world.offsets == ({("billing", FIRST): 5} if committed else {})


@BOTH
@pytest.mark.parametrize("fault", PASSING)
def test_producer_id_is_requested_until_assigned(level: int, fault: Fault) -> None:
    site = Site(level=level, is_begun=False)
    site.world.faults += [(InitProducerIdRequest, fault), (FindCoordinatorRequest, 15)]
    site.run(site.core.init_transactions())
    assert not site.world.faults
    site.begin()
    site.send(b"a")
    site.commit()
    assert site.committed() == [b"a"]


def test_moved_coordinator_is_looked_up() -> None:
    site = Site()
    site.world.faults += [(EndTxnRequest, ErrorCode.NOT_COORDINATOR)]
    before = site.world.count(FindCoordinatorRequest)
    site.send(b"a")
    site.commit()
    assert site.world.count(FindCoordinatorRequest) == before + 1


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.INVALID_TRANSACTION_TIMEOUT, InvalidTransactionTimeout),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, TransactionalIdAuthorizationFailed),
    ],
)
def test_refused_producer_id_may_be_requested_again(
    code: ErrorCode, error: type[KafkaError]
) -> None:
    site = Site(is_begun=False)
    site.world.faults.append((InitProducerIdRequest, code))
    with pytest.raises(error, match=NAME):
        site.run(site.core.init_transactions())
    with pytest.raises(IllegalState, match="has not been called"):
        site.begin()
    site.run(site.core.init_transactions())
    site.begin()


def test_timed_out_init_is_awaited_by_next_call() -> None:
    site = Site(is_begun=False)
    site.world.faults += [(InitProducerIdRequest, "drop")] * 20
    with pytest.raises(RequestTimedOut, match=r"init_transactions\(\)"):
        site.run(site.core.init_transactions(0.2))
    with pytest.raises(IllegalState, match=r"init_transactions\(\)"):
        site.begin()
    site.run(site.core.init_transactions(60))
    site.begin()


# -- errors that fail the transaction ----------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.MESSAGE_TOO_LARGE,
    ],
)
def test_refused_batch_fails_only_its_transaction(level: int, code: ErrorCode) -> None:
    site = Site(level=level, partitions=2)
    site.send(b"before")
    site.flush()
    site.world.faults.append((ProduceRequest, code))
    [refused] = site.send(b"refused")
    site.flush()
    with pytest.raises(KafkaError) as raised:
        refused.metadata()
    assert raised.value.code == code
    with pytest.raises(TransactionAbortable):
        site.send(b"more")
    with pytest.raises(TransactionAbortable, match="call abort_transaction") as failed:
        site.commit()
    assert failed.value.__cause__ is raised.value
    site.abort()
    site.begin()
    site.send(b"again")
    site.send(b"other", partition=1)
    site.commit()
    assert site.committed() == [b"again"]
    assert site.committed(1) == [b"other"]


@BOTH
def test_batches_after_failed_one_are_not_sent(level: int) -> None:
    site = Site(level=level, partitions=2, linger_ms=60_000)
    site.world.faults.append((ProduceRequest, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    site.send(b"x" * 200_000, b"fills it", partition=0)
    [waits] = site.send(b"waits", partition=1)
    site.world.network.run_until(waits.done)
    with pytest.raises(TransactionAborted, match="its transaction has failed"):
        waits.metadata()
    site.abort()


@BOTH
def test_unacknowledged_record_fails_its_transaction(level: int) -> None:
    site = Site(level=level, delivery_timeout_ms=2000, request_timeout_ms=1500, linger_ms=0)
    site.world.faults += [(ProduceRequest, "lose")] * 50
    site.send(b"perhaps")
    with pytest.raises(TransactionAbortable, match=r"delivery.timeout.ms"):
        site.commit()
    site.world.faults.clear()
    site.abort()
    site.begin()
    site.send(b"a")
    site.commit()
    assert site.committed() == [b"a"]


def test_error_names_unauthorized_topic() -> None:
    site = Site(level=1)
    site.world.faults.append((AddPartitionsToTxnRequest, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    [handle] = site.send(b"a")
    with pytest.raises(TransactionAbortable, match="orders-0") as failed:
        site.commit()
    assert isinstance(failed.value.__cause__, TopicAuthorizationFailed)
    with pytest.raises(TransactionAborted):
        handle.metadata()
    site.abort()
    site.begin()
    site.send(b"b")
    site.commit()
    assert site.committed() == [b"b"]


@BOTH
def test_abort_replaces_forgotten_producer_id(level: int) -> None:
    """The transactional.id was not used for transactional.id.expiration.ms."""
    site = Site(level=level)
    site.send(b"a")
    site.flush()
    site.commit()
    site.begin()
    del site.world.producers[NAME]
    with pytest.raises(TransactionAbortable):
        site.run(site.core.send_offsets_to_transaction({FIRST: 5}, "billing"))
    site.abort()
    site.begin()
    site.send(b"b")
    site.commit()
    assert site.committed()[-1:] == [b"b"]


@BOTH
@pytest.mark.parametrize("kind", [EndTxnRequest, TxnOffsetCommitRequest])
def test_fatal_error_ends_the_producer(level: int, kind: type[ApiMessage]) -> None:
    site = Site(level=level)
    site.world.faults.append((kind, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    [handle] = site.send(b"a")

    def work() -> None:
        site.run(site.core.send_offsets_to_transaction({FIRST: 5}, "billing"))
        site.commit()

    with pytest.raises(TransactionalIdAuthorizationFailed):
        work()
    for call in (site.commit, site.abort, site.begin):
        with pytest.raises(TransactionalIdAuthorizationFailed):
            call()
    site.world.network.run_until(handle.done)
    site.run(site.core.close())


def test_timed_out_transaction_can_be_retried_in_version_2() -> None:
    site = Site(level=2)
    site.send(b"late")
    site.flush()
    site.world.time_out(NAME)
    with pytest.raises(TransactionAbortable, match=r"transaction.timeout.ms=60000"):
        site.commit()
    site.abort()
    site.begin()
    site.send(b"a")
    site.commit()
    assert site.committed() == [b"a"]


def test_timed_out_transaction_fences_its_producer_in_version_1() -> None:
    site = Site(level=1)
    site.send(b"late")
    site.flush()
    site.world.time_out(NAME)
    with pytest.raises(ProducerFenced, match=r"transaction.timeout.ms=60000"):
        site.commit()


# -- aborts while requests are in flight -------------------------------------------------------


@BOTH
def test_abort_waits_for_requests_in_flight(level: int) -> None:
    site = Site(level=level, request_timeout_ms=3000)
    site.send(b"before")
    site.flush()
    site.world.faults.append((ProduceRequest, "hang"))
    handles = site.send(b"in flight")
    site.world.network.advance(100)
    assert not handles[0].done()
    site.abort()
    assert handles[0].done()
    site.begin()
    site.send(b"a")
    site.commit()
    assert site.committed() == [b"a"]


def test_abort_does_not_wait_for_partition_to_be_added() -> None:
    """It may have been added, so the producer sends EndTxn and requests another epoch."""
    site = Site(level=1)
    site.world.faults.append((AddPartitionsToTxnRequest, "hang"))
    site.send(b"a")
    site.world.network.advance(100)
    site.abort()
    assert site.world.count(EndTxnRequest) == 1
    assert site.world.count(InitProducerIdRequest) == 2
    site.begin()
    site.send(b"b")
    site.commit()
    assert site.committed() == [b"b"]


def test_abort_succeeds_when_coordinator_does_not_know_the_transaction() -> None:
    site = Site(level=1)
    site.world.faults += [(AddPartitionsToTxnRequest, "drop")] * 100
    site.send(b"a")
    site.world.network.advance(100)
    site.world.faults.clear()
    site.world.faults += [(EndTxnRequest, ErrorCode.INVALID_TXN_STATE)]
    site.abort()
    site.begin()
    site.send(b"b")
    site.commit()
    assert site.committed() == [b"b"]


@BOTH
def test_timed_out_offsets_fail_the_transaction(level: int) -> None:
    site = Site(level=level)
    site.world.faults += [(TxnOffsetCommitRequest, "lose")] * 100
    with pytest.raises(TransactionAbortable, match=r"did not complete within 0.5 s"):
        site.run(site.core.send_offsets_to_transaction({FIRST: 5}, "billing", 0.5))
    site.world.faults.clear()
    site.abort()
    assert site.world.offsets == {}


@BOTH
def test_close_does_not_wait_forever(level: int) -> None:
    site = Site(level=level)
    site.send(b"a")
    site.flush()
    site.world.faults += [(EndTxnRequest, "drop")] * 1000
    with pytest.raises(RequestTimedOut):
        site.commit(1)
    site.run(site.core.close(1))
    with pytest.raises(ClosedError):
        site.commit(1)


@BOTH
def test_commit_from_failure_callback_is_refused(level: int) -> None:
    """A Deferred's callbacks run at the moment in which the record fails."""
    site = Site(level=level)
    site.world.faults.append((ProduceRequest, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    [handle] = site.send(b"a")
    errors: list[Exception] = []

    async def commit() -> None:
        try:
            await site.core.commit_transaction()
        except TransactionAbortable as error:
            errors.append(error)

    handle.add_callback(lambda _: site.world.network.spawn(commit(), "committing"))
    site.flush()
    site.world.network.run_until(lambda: bool(errors))


@BOTH
def test_offsets_of_concurrent_calls_are_all_committed(level: int) -> None:
    site = Site(level=level)
    second = TopicPartition(TOPIC, 1)

    async def both() -> None:
        await site.world.network.gather(
            [
                site.core.send_offsets_to_transaction({FIRST: 5}, "billing"),
                site.core.send_offsets_to_transaction({second: 6}, "billing"),
            ]
        )

    site.run(both())
    site.commit()
    assert site.world.offsets == {("billing", FIRST): 5, ("billing", second): 6}


@BOTH
def test_cancelled_offsets_call_fails_the_transaction(level: int) -> None:
    site = Site(level=level)
    site.world.faults += [(TxnOffsetCommitRequest, "hang")]
    call = site.core.send_offsets_to_transaction({FIRST: 5}, "billing")
    task = site.world.network.spawn(call, "a cancelled call")
    site.world.network.advance(100)
    task.cancel()
    with pytest.raises(TransactionAbortable):
        site.commit()
    site.abort()
    site.begin()
    site.commit()
    assert site.world.offsets == {}


@BOTH
def test_commit_continues_when_caller_is_cancelled(level: int) -> None:
    site = Site(level=level)
    site.send(b"a")
    site.flush()
    site.world.busy = 5
    task = site.world.network.spawn(site.core.commit_transaction(), "a cancelled call")
    site.world.network.advance(5)
    task.cancel()
    with pytest.raises(IllegalState, match=r"outcome of commit_transaction\(\) is unknown"):
        site.begin()
    site.commit()
    site.begin()
    assert site.committed() == [b"a"]


def test_abort_succeeds_when_coordinator_does_not_know_the_transaction_in_version_2() -> None:
    site = Site(level=2)
    site.send(b"a")
    site.flush()
    site.world.faults.append((EndTxnRequest, ErrorCode.INVALID_TXN_STATE))
    site.world.time_out(NAME)
    site.world.producers[NAME].epoch -= 1
    site.abort()
    assert site.world.count(InitProducerIdRequest) == 2
    site.begin()
    site.send(b"b")
    site.commit()
    assert site.committed() == [b"b"]
