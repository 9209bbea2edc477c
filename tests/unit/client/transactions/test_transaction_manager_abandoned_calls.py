"""Abandoned calls have no effect on later transactions."""

from __future__ import annotations

from typing import Any

import pytest

from plog.client.errors import ClosedError
from plog.errors import RequestTimedOut, TransactionAbortable
from plog.types import TopicPartition
from plog.wire.messages.end_txn import EndTxnRequest
from plog.wire.messages.produce import ProduceRequest
from plog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.unit.client.transactions.site import NAME, TOPIC, Site

FIRST, SECOND = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
_UNKNOWN_TOPIC = 3


@pytest.mark.parametrize("level", [1, 2])
def test_late_offsets_are_not_added_to_the_next_transaction(level: int) -> None:
    site = Site(level=level, partitions=2)
    network, answered = site.world.network, site.world.answer
    is_first = [True]

    async def answer(request: Any, version: int, ask: Any, timeout_s: float) -> Any:
        if not isinstance(request, TxnOffsetCommitRequest) or not is_first:
            return await answered(request, version, ask, timeout_s)
        is_first.clear()
        done, answers = network.signal(), list[Any]()

        async def serve() -> None:  # The request was sent: cancelling the wait does not revoke it.
            await network.sleep(5)
            answers.append(await answered(request, version, ask, timeout_s))
            done.set()

        network.spawn(serve(), "a slow coordinator")
        await done.wait()
        return answers[0]

    site.world.answer = answer  # type: ignore[method-assign]
    with pytest.raises(TransactionAbortable):
        site.run(site.core.send_offsets_to_transaction({FIRST: 500}, "billing", 1.0))
    site.abort()
    site.begin()
    site.run(site.core.send_offsets_to_transaction({SECOND: 7}, "billing"))
    network.run_until(lambda: not is_first)
    network.advance(10_000)
    site.commit()
    assert site.world.offsets == {("billing", SECOND): 7}


def test_close_aborts_transaction_when_timed_out_commit_failed() -> None:
    site = Site(delivery_timeout_ms=5_000, request_timeout_ms=1_000, linger_ms=0)
    site.send(b"written")
    site.flush()
    site.world.faults += [(ProduceRequest, _UNKNOWN_TOPIC)] * 500
    site.send(b"not written")
    with pytest.raises(RequestTimedOut):
        site.commit(1.0)

    async def let_it_fail() -> None:
        await site.world.network.sleep(20)

    site.run(let_it_fail())
    site.run(site.core.close())
    assert site.world.count(EndTxnRequest) == 1
    assert site.world.producers[NAME].state == "aborted"


def test_cancelled_close_leaves_no_record_pending() -> None:
    site = Site(linger_ms=0)
    site.world.faults += [(ProduceRequest, "hang")] * 50
    [handle] = site.send(b"a")

    async def give_up() -> None:
        closing = site.world.network.spawn(site.core.close(), "closing")
        await site.world.network.sleep(0.5)
        closing.cancel()
        await site.world.network.sleep(0)

    site.run(give_up())
    with pytest.raises(ClosedError):
        handle.metadata()


def test_next_transaction_waits_for_timed_out_abort() -> None:
    site = Site(linger_ms=0)
    site.send(b"aborted")
    site.flush()
    network, answered = site.world.network, site.world.answer

    async def answer(request: Any, version: int, ask: Any, timeout_s: float) -> Any:
        if isinstance(request, EndTxnRequest) and not request.committed:
            await network.sleep(5)
        return await answered(request, version, ask, timeout_s)

    site.world.answer = answer  # type: ignore[method-assign]
    with pytest.raises(RequestTimedOut):
        site.abort(1.0)
    before_s = network.now_s()
    site.begin()
    assert network.now_s() - before_s > 3
    site.send(b"committed")
    site.commit()
    assert site.committed() == [b"committed"]
