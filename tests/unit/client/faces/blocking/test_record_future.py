"""`RecordFuture` in code that expects a `concurrent.futures.Future`."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from concurrent.futures import _base as futures_base
from threading import Lock
from typing import Any

import pytest

from plog.client.faces.blocking.record_future import RecordFuture, _has_state
from plog.client.producer.producer_batch import ProducerBatch
from plog.errors import CorruptMessage
from plog.types import TopicPartition

PATIENCE_S = 30.0


def batch_of(count: int) -> ProducerBatch:
    batch = ProducerBatch(
        TopicPartition("t", 0), Lock(), order=(0, 0), created_s=0.0, limit_bytes=1000
    )
    batch.records = [(0, 0, None, b"v", ()) for _ in range(count)]
    return batch


def futures_of(batch: ProducerBatch) -> list[RecordFuture]:
    return [RecordFuture(batch, index) for index in range(batch.count)]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return an event that is set once `concurrent.futures` has installed its waiters."""
    event = threading.Event()
    install = futures_base._create_and_install_waiters

    def install_and_notify(*arguments: Any) -> Any:
        waiter = install(*arguments)
        event.set()
        return waiter

    monkeypatch.setattr(futures_base, "_create_and_install_waiters", install_and_notify)
    return event


def after(event: threading.Event, act: Callable[[], None]) -> threading.Thread:
    """Start a thread that calls `act` after the event, as the engine's thread would."""

    def run() -> None:
        assert event.wait(PATIENCE_S)
        act()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_wait_returns_when_all_are_written(installed: threading.Event) -> None:
    batch = batch_of(3)
    futures = futures_of(batch)
    thread = after(installed, lambda: batch.succeed(10, -1))
    done, not_done = concurrent.futures.wait(futures, PATIENCE_S)
    thread.join()
    assert (done, not_done) == (set(futures), set())
    assert [future.result().offset for future in futures] == [10, 11, 12]


def test_wait_accepts_futures_that_are_done() -> None:
    batch = batch_of(2)
    futures = futures_of(batch)
    batch.succeed(0, -1)
    assert concurrent.futures.wait(futures).done == set(futures)


def test_wait_returns_finished_futures_after_timeout() -> None:
    written, open_batch = batch_of(1), batch_of(1)
    first, second = RecordFuture(written, 0), RecordFuture(open_batch, 0)
    written.succeed(0, -1)
    assert concurrent.futures.wait([first, second], 0) == ({first}, {second})


def test_wait_returns_at_the_first_exception(installed: threading.Event) -> None:
    failing, other = batch_of(1), batch_of(1)
    futures = [RecordFuture(failing, 0), RecordFuture(other, 0)]
    thread = after(installed, lambda: failing.fail(CorruptMessage("x")))
    done, _ = concurrent.futures.wait(futures, PATIENCE_S, concurrent.futures.FIRST_EXCEPTION)
    thread.join()
    assert done == {futures[0]}
    assert isinstance(futures[0].exception(), CorruptMessage)


def test_as_completed_yields_each_future(installed: threading.Event) -> None:
    first, second = batch_of(2), batch_of(1)
    futures = [*futures_of(first), *futures_of(second)]
    second.succeed(5, -1)
    thread = after(installed, lambda: first.succeed(0, -1))
    offsets = [x.result().offset for x in concurrent.futures.as_completed(futures, PATIENCE_S)]
    thread.join()
    assert offsets[0] == 5
    assert sorted(offsets) == [0, 1, 5]


@pytest.mark.parametrize("is_early", [True, False])
def test_asyncio_wraps_the_future(is_early: bool) -> None:
    batch = batch_of(1)

    async def wait() -> int:
        wrapped = asyncio.wrap_future(RecordFuture(batch, 0))
        if not is_early:
            thread = threading.Thread(target=batch.succeed, args=(7, -1))
            thread.start()
            thread.join()
        return (await wrapped).offset

    if is_early:
        batch.succeed(7, -1)
    assert asyncio.run(wait()) == 7


def test_asyncio_receives_the_error() -> None:
    batch = batch_of(1)
    batch.fail(CorruptMessage("x"))

    async def wait() -> None:
        await asyncio.wrap_future(RecordFuture(batch, 0))

    with pytest.raises(CorruptMessage):
        asyncio.run(wait())


def test_state_is_created_only_for_awaited_futures() -> None:
    batch = batch_of(1)
    future = RecordFuture(batch, 0)
    batch.succeed(0, -1)
    assert future.done()
    assert future.result(1).offset == future.result(timeout=1).offset == 0
    assert future.result(timeout_s=1).offset == 0
    assert not hasattr(future, "__dict__"), "a dict would double the size of each future"
    assert not _has_state(future)


def test_future_cannot_be_cancelled_or_set() -> None:
    future = RecordFuture(batch_of(1), 0)
    assert isinstance(future, concurrent.futures.Future)
    assert not future.cancel()
    assert not future.cancelled()
    assert future.running()
    assert not hasattr(future, "set_result")
    with pytest.raises(TimeoutError, match="not acknowledged within 0 s"):
        future.exception(timeout_s=0)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        future.nothing  # noqa: B018


def test_dir_lists_only_public_attributes() -> None:
    names = {name for name in dir(RecordFuture(batch_of(1), 0)) if not name.startswith("_")}
    assert names == {
        "add_done_callback",
        "cancel",
        "cancelled",
        "done",
        "exception",
        "result",
        "running",
    }
