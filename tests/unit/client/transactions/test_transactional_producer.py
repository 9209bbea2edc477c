"""Transactions of both versions, in a world that does as it should."""

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
def test_what_is_committed_is_seen_and_what_is_aborted_is_not(level: int) -> None:
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
def test_a_commit_has_every_record_acknowledged_before(level: int) -> None:
    site = Site(level=level, linger_ms=60_000)
    handles = site.send(b"a", b"b")
    site.commit()
    assert [handle.metadata().topic for handle in handles] == [TOPIC, TOPIC]


@BOTH
def test_an_abort_fails_what_was_not_sent(level: int) -> None:
    site = Site(level=level, linger_ms=60_000)
    [handle] = site.send(b"a")
    site.abort()
    with pytest.raises(TransactionAborted, match="aborted before the record was sent"):
        handle.metadata()
    assert not site.world.count(ProduceRequest)
    assert not site.world.count(EndTxnRequest), "the coordinator has never heard of it"


def test_a_partition_is_added_once_before_its_first_batch_in_version_1() -> None:
    """That it comes before is the world's to say."""
    site = Site(level=1, partitions=2)
    site.send(b"a", partition=0)
    site.send(b"b", partition=1)
    site.flush()
    site.send(b"c", partition=0)
    site.commit()
    assert site.world.count(AddPartitionsToTxnRequest) == 1
    assert site.world.count(InitProducerIdRequest) == 1, "the epoch stays"


def test_version_2_adds_nothing_and_has_an_epoch_for_each_transaction() -> None:
    site = Site(level=2)
    for value in (b"a", b"b"):
        site.send(value)
        site.commit()
        site.begin()
    assert site.world.count(AddPartitionsToTxnRequest) == 0
    assert site.world.producers[NAME].epoch == 2
    assert site.world.count(InitProducerIdRequest) == 1


def test_a_cluster_that_is_raised_to_version_2_begins_with_a_new_epoch() -> None:
    site = Site(level=1)
    site.send(b"a")
    site.commit()
    site.world.level = 2
    site.world.network.drop_all()
    site.run(site.cluster.refresh(()))  # Connects anew, as who has lost its connection does.
    site.begin()
    site.send(b"b")
    site.commit()
    site.begin()
    assert site.world.count(InitProducerIdRequest) == 2
    site.send(b"c")
    site.commit()
    assert site.committed() == [b"a", b"b", b"c"]


@BOTH
def test_offsets_count_when_the_transaction_commits(level: int) -> None:
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
def test_a_member_that_has_lost_its_place_has_to_abort(level: int) -> None:
    site = Site(level=level)
    site.world.generation["billing"] = 4
    site.send(b"a")
    with pytest.raises(TransactionAbortable, match=r"abort_transaction.*generation 3"):
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
def test_no_offsets_are_nothing_to_do(level: int) -> None:
    site = Site(level=level)
    site.run(site.core.send_offsets_to_transaction({}, "billing"))
    site.commit()
    assert not site.world.count(EndTxnRequest)


@BOTH
def test_a_second_producer_fences_the_first_and_aborts_its_transaction(level: int) -> None:
    site = Site(level=level)
    site.send(b"zombie")
    site.flush()
    other = Site(site.world)
    with pytest.raises(ProducerFenced, match=r"a newer producer.*Close this producer"):
        site.commit()
    for call in (site.abort, site.begin, site.commit, lambda: site.send(b"more")):
        with pytest.raises(ProducerFenced):
            call()
    other.send(b"a")
    other.commit()
    assert site.committed() == [b"a"]
    site.run(site.core.close())


def test_what_the_order_of_calls_does_not_allow_is_told() -> None:
    site = Site(is_begun=False)
    core = site.core
    with pytest.raises(IllegalState, match=r"begin_transaction\(\).*init_transactions\(\)"):
        site.begin()
    site.run(core.init_transactions())
    with pytest.raises(IllegalState, match=r"init_transactions\(\) is not possible"):
        site.run(core.init_transactions())
    for call in (site.commit, site.abort, lambda: site.send(b"x")):
        with pytest.raises(IllegalState, match="no transaction was begun"):
            call()
    with pytest.raises(IllegalState, match="no transaction was begun"):
        site.run(core.send_offsets_to_transaction({FIRST: 1}, "billing"))
    site.begin()
    with pytest.raises(IllegalState, match="a transaction is under way"):
        site.begin()


def test_a_producer_without_an_id_has_no_transactions() -> None:
    site = ProducerSite()
    with pytest.raises(IllegalState, match="give it a transactional_id"):
        site.run(site.core.init_transactions())


def test_a_broker_without_transactions_says_so_at_once() -> None:
    site = ProducerSite(transactional_id="shop")
    from plog.client.transactions.transactional_producer import producer_core

    core = producer_core(site.cluster, site.sim, site.settings)
    with pytest.raises(
        UnsupportedVersion, match=r"has no transactions.*leave transactional.id out"
    ):
        site.run(core.init_transactions())


@BOTH
def test_a_record_that_send_refuses_spoils_the_transaction(level: int) -> None:
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
def test_a_commit_waits_for_what_waits_for_its_topic(level: int) -> None:
    site = Site(level=level)
    sends: list[object] = []

    async def send() -> None:
        sends.append(await site.core.send_soon("later", b"x"))

    site.world.network.spawn(send(), "sending")
    site.world.network.create_soon("later")
    site.commit()
    assert len(sends) == 1
    assert site.world.committed("later") == [b"x"]


def test_an_abort_does_not_wait_for_what_waits_for_its_topic() -> None:
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


def test_a_commit_that_takes_too_long_goes_on_and_is_waited_for_by_the_next() -> None:
    site = Site()
    site.send(b"a")
    site.flush()
    site.world.busy = 10
    with pytest.raises(RequestTimedOut, match="call it again"):
        site.commit(0.001)
    for call in (site.abort, site.begin):
        with pytest.raises(IllegalState, match=r"how commit_transaction\(\) has ended"):
            call()
    site.world.network.advance(60_000)
    site.commit(0)
    site.begin()
    assert site.committed() == [b"a"]


@BOTH
def test_the_end_of_a_producer_aborts_its_transaction(level: int) -> None:
    site = Site(level=level, linger_ms=60_000)
    [handle] = site.send(b"a")
    site.run(site.core.close())
    with pytest.raises(TransactionAborted):
        handle.metadata()
    with pytest.raises((ClosedError, IllegalState)):
        site.send(b"b")
    assert site.world.producers[NAME].state != "ongoing"


def test_the_end_of_a_producer_waits_for_its_commit() -> None:
    site = Site()
    site.send(b"a")
    site.flush()
    site.world.busy = 5
    with pytest.raises(RequestTimedOut):
        site.commit(0.001)
    site.run(site.core.close())
    assert site.committed() == [b"a"]
