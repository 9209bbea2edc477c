"""Transactions of both versions, without faults."""

from __future__ import annotations

import pytest

from plog.client.errors import ClosedError, IllegalState, RecordTooLarge, TransactionAborted
from plog.client.group.group_metadata import GroupMetadata
from plog.client.values import OffsetAndMetadata
from plog.errors import (
    ProducerFenced,
    RequestTimedOut,
    TransactionAbortable,
    UnsupportedVersion,
)
from plog.types import TopicPartition
from plog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from plog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from plog.wire.messages.end_txn import EndTxnRequest
from plog.wire.messages.init_producer_id import InitProducerIdRequest
from plog.wire.messages.produce import ProduceRequest
from tests.unit.client.producer.producer_site import ProducerSite
from tests.unit.client.transactions.site import NAME, TOPIC, Site

BOTH = pytest.mark.parametrize("level", [1, 2])
FIRST = TopicPartition(TOPIC, 0)


@BOTH
def test_committed_records_are_visible_and_aborted_ones_are_not(level: int) -> None:
    site = Site(level=level, partitions=2)
    site.send(b"a", b"b")
    site.send(b"c", partition=1)
    site.commit()
    site.begin()
    site.send(b"not this")
    site.flush()
    site.abort()
    site.begin()
    site.send(b"d")
    site.commit()
    assert site.committed() == [b"a", b"b", b"d"]
    assert site.committed(1) == [b"c"]


@BOTH
def test_commit_waits_for_every_record(level: int) -> None:
    site = Site(level=level, linger_ms=60_000)
    handles = site.send(b"a", b"b")
    site.commit()
    assert [handle.metadata().topic for handle in handles] == [TOPIC, TOPIC]


@BOTH
def test_abort_fails_unsent_records(level: int) -> None:
    site = Site(level=level, linger_ms=60_000)
    [handle] = site.send(b"a")
    site.abort()
    with pytest.raises(TransactionAborted, match="aborted before the record was sent"):
        handle.metadata()
    assert not site.world.count(ProduceRequest)
    assert not site.world.count(EndTxnRequest), "the coordinator does not know the transaction"


def test_partition_is_added_once_before_first_batch_in_version_1() -> None:
    """The simulated cluster checks that it comes before the batch."""
    site = Site(level=1, partitions=2)
    site.send(b"a", partition=0)
    site.send(b"b", partition=1)
    site.flush()
    site.send(b"c", partition=0)
    site.commit()
    assert site.world.count(AddPartitionsToTxnRequest) == 1
    assert site.world.count(InitProducerIdRequest) == 1, "the epoch does not change"


def test_version_2_uses_an_epoch_per_transaction_and_adds_no_partitions() -> None:
    site = Site(level=2)
    for value in (b"a", b"b"):
        site.send(value)
        site.commit()
        site.begin()
    assert site.world.count(AddPartitionsToTxnRequest) == 0
    assert site.world.producers[NAME].epoch == 2
    assert site.world.count(InitProducerIdRequest) == 1


def test_upgrade_to_version_2_starts_a_new_epoch() -> None:
    site = Site(level=1)
    site.send(b"a")
    site.commit()
    site.world.level = 2
    site.world.network.drop_all()
    site.run(site.cluster.refresh(()))  # Reconnect, as after a lost connection.
    site.begin()
    site.send(b"b")
    site.commit()
    site.begin()
    assert site.world.count(InitProducerIdRequest) == 2
    site.send(b"c")
    site.commit()
    assert site.committed() == [b"a", b"b", b"c"]


@BOTH
def test_offsets_are_committed_with_the_transaction(level: int) -> None:
    site = Site(level=level)
    site.run(site.core.send_offsets_to_transaction({FIRST: 5}, "billing"))
    site.abort()
    assert site.world.offsets == {}
    site.begin()
    offset = OffsetAndMetadata(7, "so far", 1)
    site.run(site.core.send_offsets_to_transaction({FIRST: offset}, GroupMetadata("billing")))
    site.commit()
    assert site.world.offsets == {("billing", FIRST): 7}
    assert bool(site.world.count(AddOffsetsToTxnRequest)) == (level == 1)


@BOTH
def test_offsets_of_removed_member_fail_the_transaction(level: int) -> None:
    site = Site(level=level)
    site.world.generation["billing"] = 4
    site.send(b"a")
    with pytest.raises(TransactionAbortable, match=r"generation 3.*abort_transaction"):
        site.run(site.core.send_offsets_to_transaction({FIRST: 5}, GroupMetadata("billing", 3)))
    with pytest.raises(TransactionAbortable):
        site.commit()
    site.abort()
    site.begin()
    site.send(b"b")
    site.run(site.core.send_offsets_to_transaction({FIRST: 5}, GroupMetadata("billing", 4)))
    site.commit()
    assert site.committed() == [b"b"]
    assert site.world.offsets == {("billing", FIRST): 5}


@BOTH
def test_empty_offsets_send_no_request(level: int) -> None:
    site = Site(level=level)
    site.run(site.core.send_offsets_to_transaction({}, "billing"))
    site.commit()
    assert not site.world.count(EndTxnRequest)


@BOTH
def test_second_producer_fences_first_and_aborts_its_transaction(level: int) -> None:
    site = Site(level=level)
    site.send(b"zombie")
    site.flush()
    other = Site(site.world)
    with pytest.raises(ProducerFenced, match=r"a newer producer.*close this producer"):
        site.commit()
    for call in (site.abort, site.begin, site.commit, lambda: site.send(b"more")):
        with pytest.raises(ProducerFenced):
            call()
    other.send(b"a")
    other.commit()
    assert site.committed() == [b"a"]
    site.run(site.core.close())


def test_calls_in_wrong_order_raise_illegal_state() -> None:
    site = Site(is_begun=False)
    core = site.core
    with pytest.raises(IllegalState, match=r"begin_transaction\(\).*init_transactions\(\)"):
        site.begin()
    site.run(core.init_transactions())
    with pytest.raises(IllegalState, match=r"cannot call init_transactions\(\)"):
        site.run(core.init_transactions())
    for call in (site.commit, site.abort, lambda: site.send(b"x")):
        with pytest.raises(IllegalState, match="no transaction has begun"):
            call()
    with pytest.raises(IllegalState, match="no transaction has begun"):
        site.run(core.send_offsets_to_transaction({FIRST: 1}, "billing"))
    site.begin()
    with pytest.raises(IllegalState, match="a transaction is in progress"):
        site.begin()


def test_transactions_require_a_transactional_id() -> None:
    site = ProducerSite()
    with pytest.raises(IllegalState, match="create it with a transactional_id"):
        site.run(site.core.init_transactions())


def test_broker_without_transactions_fails_init_immediately() -> None:
    site = ProducerSite(transactional_id="shop")
    from plog.client.transactions.transactional_producer import producer_core

    core = producer_core(site.cluster, site.sim, site.settings)
    with pytest.raises(
        UnsupportedVersion, match=r"does not support transactions.*remove transactional.id"
    ):
        site.run(core.init_transactions())


@BOTH
def test_record_refused_by_send_fails_the_transaction(level: int) -> None:
    site = Site(level=level)
    site.send(b"a")
    with pytest.raises(RecordTooLarge):
        site.core.send(TOPIC, bytes(2 << 20))
    with pytest.raises(TransactionAbortable, match=r"max.request.size"):
        site.commit()
    site.abort()
    site.begin()
    site.send(b"b")
    site.commit()
    assert site.committed() == [b"b"]


@BOTH
def test_commit_waits_for_records_waiting_for_their_topic(level: int) -> None:
    site = Site(level=level)
    sends: list[object] = []

    async def send() -> None:
        sends.append(await site.core.send_soon("later", b"x"))

    site.world.network.spawn(send(), "sending")
    site.world.network.create_soon("later")
    site.commit()
    assert len(sends) == 1
    assert site.world.committed("later") == [b"x"]


def test_abort_does_not_wait_for_records_waiting_for_their_topic() -> None:
    site = Site()
    errors: list[Exception] = []

    async def send() -> None:
        try:
            await site.core.send_soon("later", b"x")
        except TransactionAborted as error:
            errors.append(error)

    site.world.network.spawn(send(), "sending")
    site.abort()
    site.begin()
    site.world.network.create_soon("later")
    site.world.network.run_until(lambda: bool(errors))
    site.commit()
    assert site.world.committed("later") == []


def test_timed_out_commit_continues_and_is_awaited_by_next_call() -> None:
    site = Site()
    site.send(b"a")
    site.flush()
    site.world.busy = 10
    with pytest.raises(RequestTimedOut, match="again to wait for its outcome"):
        site.commit(0.001)
    for call in (site.abort, site.begin):
        with pytest.raises(IllegalState, match=r"outcome of commit_transaction\(\) is unknown"):
            call()
    site.world.network.advance(60_000)
    site.commit(0)
    site.begin()
    assert site.committed() == [b"a"]


@BOTH
def test_close_aborts_open_transaction(level: int) -> None:
    site = Site(level=level, linger_ms=60_000)
    [handle] = site.send(b"a")
    site.run(site.core.close())
    with pytest.raises(TransactionAborted):
        handle.metadata()
    with pytest.raises((ClosedError, IllegalState)):
        site.send(b"b")
    assert site.world.producers[NAME].state != "ongoing"


def test_close_waits_for_commit() -> None:
    site = Site()
    site.send(b"a")
    site.flush()
    site.world.busy = 5
    with pytest.raises(RequestTimedOut):
        site.commit(0.001)
    site.run(site.core.close())
    assert site.committed() == [b"a"]
