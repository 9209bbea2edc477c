"""The end of a producer: concurrent closes, callbacks, forks and leaks."""

from __future__ import annotations

import gc
import traceback
import weakref
from typing import Any

import pytest

from plog.client.errors import ClosedError, ForkedError
from plog.client.faces.blocking import process_exit
from plog.client.producer.producer_batch import ProducerBatch
from plog.errors import MessageTooLarge
from tests.unit.client.producer.producer_site import TOPIC, ProducerSite, ready


class Closings:
    """An interceptor that counts how often it is closed."""

    def __init__(self) -> None:
        self.count = 0

    def on_send(self, record: Any) -> Any:
        return record

    def on_acknowledgement(self, metadata: Any, error: Any) -> None:
        pass

    def close(self) -> None:
        self.count += 1


def test_second_close_waits_for_the_first() -> None:
    """And does not close the connections of requests in flight."""
    closings = Closings()
    site = ready(core={"interceptors": [closings]}, linger_ms=60_000)
    [handle] = site.sent(b"v")
    first = site.sim.spawn(site.core.close(), "closing")

    async def close_all() -> None:
        await site.core.close()
        assert handle.done()
        await site.cluster.close()

    site.run(close_all())
    assert handle.metadata().offset == 0
    assert first.done
    site.run(site.core.close())
    assert closings.count == 1


def test_second_close_may_have_shorter_timeout() -> None:
    site = ready()
    site.sent(b"first")
    site.flush()
    site.sim.deaf = True
    [handle] = site.sent(b"v")
    first = site.sim.spawn(site.core.close(), "closing")
    site.run(site.core.close(2))
    assert isinstance(handle.error(), ClosedError)
    site.sim.advance(0)
    assert first.done


def test_callback_may_close_send_and_flush() -> None:
    site = ready(batch_size=1)
    refused: list[type[Exception]] = []

    def close(*_: object) -> None:
        site.sim.spawn(site.core.flush(), "flushing")
        site.sim.spawn(site.core.close(), "closing")
        try:
            site.core.send(TOPIC, b"too late")
        except ClosedError as error:
            refused.append(type(error))

    handles = [site.core.send(TOPIC, b"%d" % n, on_delivery=close) for n in range(3)]
    site.run(site.core.close())
    assert [handle.metadata().offset for handle in handles if handle] == [0, 1, 2]
    assert refused == [ClosedError] * 3


# -- forks ----------------------------------------------------------------------------------------

FORKED = ForkedError("before a fork")


def test_pending_records_fail_in_forked_child() -> None:
    site = ready(batch_size=1)
    [done] = site.sent(b"1")
    site.flush()
    waiting = site.sent(b"2", b"3")
    site.core.forked(FORKED)
    assert done.metadata().offset == 0
    assert [handle.error() for handle in waiting] == [FORKED] * 2


def test_fork_during_completion_leaves_no_record_pending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At every moment a record is either pending or done."""
    succeed = ProducerBatch.succeed
    seen: list[Exception | None] = []

    def fork(batch: ProducerBatch, *arguments: Any) -> None:
        site.core.forked(FORKED)
        seen.append(handle.error())
        batch.error, batch.is_done = None, False  # In the parent nothing has happened.
        succeed(batch, *arguments)
        site.core.forked(FORKED)
        seen.append(handle.error())

    site = ready()
    [handle] = site.sent(b"v")
    monkeypatch.setattr(ProducerBatch, "succeed", fork)
    site.flush()
    assert seen == [FORKED, None]


# -- the end of the process -----------------------------------------------------------------------


def test_every_producer_is_closed_at_exit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    times: list[float] = []

    class Stuck:
        def close(self, timeout_s: float) -> None:
            times.append(timeout_s)
            if len(times) == 1:
                raise RuntimeError("stuck")

    monkeypatch.setattr(process_exit, "open_producers", lambda: [Stuck(), Stuck()])
    monkeypatch.setattr(process_exit, "known_consumers", list)
    process_exit._at_exit()
    assert len(times) == 2
    assert times[0] <= 30
    assert times[1] <= times[0]  # All of them together.
    assert "failed to close a producer at exit" in caplog.text


# -- memory ---------------------------------------------------------------------------------------


def refused(site: ProducerSite, count: int) -> list[Any]:
    """Send records that all fail with the same error."""
    site.run(site.core.room(TOPIC, 10))
    handles = site.sent(*[b"%d" % number for number in range(count)])
    site.run(site.core.close(0))
    return handles


def test_shared_error_does_not_collect_tracebacks() -> None:
    depths = []
    for handle in refused(ProducerSite(linger_ms=60_000), 50):
        with pytest.raises(ClosedError) as raised:
            handle.metadata()
        depths.append(len(traceback.extract_tb(raised.value.__traceback__)))
    assert set(depths) == {depths[0]}


def live_batches() -> set[int]:
    return {id(x) for x in gc.get_objects() if type(x) is ProducerBatch}


@pytest.mark.parametrize("fails", [False, True])
def test_unreferenced_records_are_freed_without_garbage_collection(fails: bool) -> None:
    """No record, batch, callback or future is part of a reference cycle."""
    site = ready(topic={"max_message_bytes": "300"}, batch_size=16_384)

    class Callback:
        def __call__(self, *_: object) -> None:
            pass

    size = 400 if fails else 40
    refs: list[weakref.ref[Any]] = []
    gc.collect()
    gc.disable()
    before = live_batches()  # Possibly batches of other tests.
    try:
        for number in range(50):
            callback = Callback()
            refs.append(weakref.ref(callback))
            handle = site.core.send(TOPIC, b"%d" % number + b"x" * size, on_delivery=callback)
            assert handle is not None
            handle.add_callback(lambda handle: None)
            batch = handle._batch
            del callback, handle
        site.flush()
        del batch
        site.sim.advance(1_000)
        assert not [ref for ref in refs if ref() is not None]
        assert not live_batches() - before
    finally:
        gc.enable()


def test_kept_future_does_not_keep_its_record() -> None:
    site = ready(topic={"max_message_bytes": "300"}, batch_size=16_384)
    handles = site.sent(*[b"%d" % number + b"x" * 40 for number in range(50)], b"y" * 400)
    site.flush()
    assert isinstance(handles[-1].error(), MessageTooLarge)
    for handle in handles:
        batch, _ = handle._batch.locate(handle._index)
        assert batch.records == []
        assert batch.encoded is None


def test_ten_thousand_records_leak_no_memory() -> None:
    site = ready(batch_size=16_384, linger_ms=0)

    def send(count: int) -> None:
        for _ in range(count):
            if site.core.send(TOPIC, b"v" * 100) is None:
                site.flush()
        site.flush()
        site.sim.requests.clear()
        site.sim.advance(2_000)

    send(1_000)
    gc.collect()
    before = len(gc.get_objects())
    send(10_000)
    gc.collect()
    assert len(gc.get_objects()) - before < 300
