"""Streams of records with Twisted's flow control, over fake producers and consumers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from plog.client.consumer.pending_records import PendingRecords
from plog.client.faces.twisted import streams as twisted_streams
from plog.client.faces.twisted.streams import (
    ConsumerFactory,
    ConsumerProtocol,
    ProducerFactory,
    ProducerProtocol,
    StreamService,
)
from plog.client.network.twisted_network import DeferredNetwork
from plog.client.values import ConsumerRecord
from plog.records.batch import TimestampType


def record(number: int) -> ConsumerRecord:
    kind = TimestampType.CREATE_TIME
    return ConsumerRecord("t", 0, number, 0, kind, None, b"%d" % number, (), -1)


class FakeConsumer:
    """A consumer whose `consume` returns the records that the test puts."""

    made: FakeConsumer

    def __init__(self, *topics: str, **settings: Any) -> None:
        FakeConsumer.made = self
        self._network = DeferredNetwork(Clock())
        self._unread = PendingRecords()
        self.asked: Deferred[list[ConsumerRecord]] | None = None
        self.is_closed = False

    def consume(self) -> Deferred[list[ConsumerRecord]]:
        self.asked = Deferred()
        return self.asked

    def put(self, *numbers: int) -> None:
        assert self.asked is not None
        asked, self.asked = self.asked, None
        asked.callback([record(number) for number in numbers])

    def wakeup(self) -> None:
        from plog.client.errors import WokenUp

        if self.asked is not None:
            asked, self.asked = self.asked, None
            asked.errback(WokenUp("wakeup"))

    def close(self) -> Deferred[None]:
        self.is_closed = True
        return succeed(None)


class RecordingProtocol(ConsumerProtocol):
    """A protocol that stores the offsets it receives and the reasons for the end."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.ended: list[Any] = []
        self.then: Callable[[], Any] = lambda: None

    def recordReceived(self, record: ConsumerRecord) -> Any:
        self.numbers.append(record.offset)
        return self.then()

    def connectionLost(self, reason: Any = None) -> None:
        self.ended.append(reason)


@pytest.fixture
def consuming(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[RecordingProtocol, FakeConsumer, ConsumerFactory]]:
    monkeypatch.setattr(twisted_streams, "Consumer", FakeConsumer)
    factory = ConsumerFactory("t")
    factory.protocol = RecordingProtocol  # type: ignore[assignment]
    yield factory.start(), FakeConsumer.made, factory
    factory.stop()


Consuming = tuple[RecordingProtocol, FakeConsumer, ConsumerFactory]


def test_consumer_protocol_receives_records_one_by_one(consuming: Consuming) -> None:
    stream, consumer, _ = consuming
    consumer.put(1, 2)
    consumer.put(3)
    assert stream.numbers == [1, 2, 3]


def test_paused_stream_delivers_no_records(consuming: Consuming) -> None:
    stream, consumer, _ = consuming
    stream.then = stream.transport.pauseProducing
    consumer.put(1, 2)
    assert stream.numbers == [1]
    stream.then = lambda: None
    stream.transport.resumeProducing()
    assert stream.numbers == [1, 2]


def test_paused_stream_delivers_no_records_after_stop(consuming: Consuming) -> None:
    stream, consumer, factory = consuming
    stream.transport.pauseProducing()
    consumer.put(1, 2)
    factory.stop()
    assert stream.numbers == []
    assert len(stream.ended) == 1
    assert len(consumer._unread) == 2  # The next owner of the partitions reads them.
    assert consumer.is_closed


def test_stream_waits_for_the_deferred_of_record_received(consuming: Consuming) -> None:
    stream, consumer, _ = consuming
    work: Deferred[None] = Deferred()
    stream.then = lambda: work
    consumer.put(1, 2)
    assert stream.numbers == [1]
    stream.then = lambda: None
    work.callback(None)
    assert stream.numbers == [1, 2]


def test_undelivered_records_do_not_count_as_read_after_stop(consuming: Consuming) -> None:
    stream, consumer, factory = consuming
    stream.then = lambda: factory.stop() and None
    consumer.put(1, 2, 3)
    assert stream.numbers == [1]
    assert len(consumer._unread) == 2
    assert consumer.is_closed
    assert len(stream.ended) == 1


def test_stop_ends_a_waiting_consume(consuming: Consuming) -> None:
    stream, consumer, factory = consuming
    factory.stop()
    assert consumer.is_closed
    assert len(stream.ended) == 1
    factory.stop()


def test_exception_in_record_received_ends_the_stream(
    consuming: Consuming, caplog: pytest.LogCaptureFixture
) -> None:
    stream, consumer, _ = consuming
    stream.then = lambda: 1 // 0
    consumer.put(1, 2)
    [reason] = stream.ended
    assert reason.check(ZeroDivisionError)
    assert consumer.is_closed
    assert "record stream failed" in caplog.text


def test_overridden_records_received_gets_whole_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    class Many(RecordingProtocol):
        def recordsReceived(self, records: list[ConsumerRecord]) -> None:
            self.numbers += [len(records)]

    monkeypatch.setattr(twisted_streams, "Consumer", FakeConsumer)
    factory = ConsumerFactory("t")
    factory.protocol = Many  # type: ignore[assignment]
    stream = factory.start()
    FakeConsumer.made.put(1, 2, 3)
    assert stream.numbers == [3]


class FakeProducer:
    """A producer for which the test decides when records are written and when memory is full."""

    made: FakeProducer

    def __init__(self, **settings: Any) -> None:
        FakeProducer.made = self
        self.clock = Clock()
        self._network = DeferredNetwork(self.clock)
        self.is_full = False
        self.sent: list[tuple[Any, Deferred[Any]]] = []
        self.is_closed = False

    def send(self, topic: str, value: Any, key: Any, **options: Any) -> Deferred[Any]:
        outcome: Deferred[Any] = Deferred()
        self.sent.append(((topic, value), outcome))
        return outcome

    def close(self) -> Deferred[None]:
        self.is_closed = True
        return succeed(None)


class Source:
    """An `IPushProducer` or `IPullProducer` that records the calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def pauseProducing(self) -> None:
        self.calls.append("pause")

    def resumeProducing(self) -> None:
        self.calls.append("resume")

    def stopProducing(self) -> None:
        self.calls.append("stop")


class Failing(ProducerProtocol):
    def __init__(self) -> None:
        self.errors: list[Exception] = []

    def deliveryFailed(self, error: Exception) -> None:
        self.errors.append(error)


@pytest.fixture
def producing(monkeypatch: pytest.MonkeyPatch) -> tuple[Failing, FakeProducer, ProducerFactory]:
    monkeypatch.setattr(twisted_streams, "Producer", FakeProducer)
    factory = ProducerFactory("t")
    factory.protocol = Failing  # type: ignore[assignment]
    return factory.start(), FakeProducer.made, factory


Producing = tuple[Failing, FakeProducer, ProducerFactory]


def test_transport_write_sends_to_the_topic(producing: Producing) -> None:
    stream, producer, _ = producing
    stream.transport.write(b"x")
    assert producer.sent[0][0] == ("t", b"x")


def test_registered_producer_is_paused_while_memory_is_full(producing: Producing) -> None:
    stream, producer, _ = producing
    source: Any = Source()
    stream.transport.registerProducer(source, True)
    stream.transport.write(b"1")
    assert source.calls == []
    producer.is_full = True
    stream.transport.write(b"2")
    stream.transport.write(b"3")
    assert source.calls == ["pause"]
    for _, outcome in producer.sent[1:]:
        outcome.callback(None)
    assert source.calls == ["pause", "resume"]


def test_pull_producer_is_resumed_after_each_write(producing: Producing) -> None:
    stream, producer, _ = producing
    source: Any = Source()
    stream.transport.registerProducer(source, False)
    assert source.calls == ["resume"]
    stream.transport.write(b"1")
    assert source.calls == ["resume"]
    producer.clock.advance(0)
    assert source.calls == ["resume", "resume"]
    stream.transport.unregisterProducer()
    stream.transport.write(b"2")
    producer.clock.advance(0)
    assert source.calls == ["resume", "resume"]


def test_second_producer_cannot_be_registered(producing: Producing) -> None:
    stream, _, _ = producing
    first: Any = Source()
    stream.transport.registerProducer(first, True)
    with pytest.raises(RuntimeError, match="unregister it first"):
        stream.transport.registerProducer(first, True)


def test_failed_write_calls_delivery_failed(producing: Producing) -> None:
    stream, producer, _ = producing
    stream.transport.write(b"1")
    producer.sent[0][1].errback(ValueError("no"))
    assert [str(error) for error in stream.errors] == ["no"]


def test_service_starts_and_stops_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twisted_streams, "Producer", FakeProducer)
    service = StreamService(ProducerFactory("t"))
    service.startService()
    assert not FakeProducer.made.is_closed
    service.stopService()
    assert FakeProducer.made.is_closed
