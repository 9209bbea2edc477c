"""Protocols and factories for streams of records, with Twisted's flow control, and services.

    class Printer(ConsumerProtocol):
        def recordReceived(self, record):
            print(record.value)

    factory = ConsumerFactory("page-views", bootstrap_servers="localhost:9092", group_id="printers")
    factory.protocol = Printer
    application.addService(StreamService(factory))

A consumer's `transport` is an `IPushProducer`: what pauses it stops the calls, and soon the
fetching. A producer's is an `IConsumer`: it pauses whoever is registered with it while
``buffer.memory`` is full, so that a file, a socket or a consumer can be joined to it.
"""

from __future__ import annotations

import logging
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IAddress, IConsumer, IProducer, IPushProducer
from twisted.internet.protocol import Factory, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from plog.client.errors import ClosedError, WokenUp
from plog.client.faces.twisted.consumer import Consumer
from plog.client.faces.twisted.producer import Producer
from plog.client.values import ConsumerRecord, RecordMetadata

log = logging.getLogger("plog.client")


@implementer(IAddress)
class StreamAddress:
    """What `buildProtocol` is given: the topics a stream comes from or goes to."""

    def __init__(self, topics: tuple[str, ...]) -> None:
        self.topics = topics


class StreamFactory(Factory):
    """What both kinds have in common: one protocol, from `start` to `stop`."""

    noisy = False

    def __init__(self) -> None:
        self.stream: Any = None
        """The protocol, between `start` and the end of `stop`."""

    def start(self) -> Any:
        """Begin, and return the protocol, whose `connectionMade` has been called by then."""
        raise NotImplementedError

    def stop(self) -> Deferred[None]:
        """End once what is under way has finished; harmless when it has ended."""
        raise NotImplementedError

    def _connect(self, transport: Any, topics: tuple[str, ...]) -> Any:
        self.doStart()  # type: ignore[no-untyped-call]
        self.stream = self.buildProtocol(StreamAddress(topics))
        self.stream.transport = transport
        self.stream.connectionMade()
        return self.stream

    def _disconnect(self, reason: Failure) -> None:
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.connectionLost(reason)
            self.doStop()  # type: ignore[no-untyped-call]


class ConsumerProtocol:
    """What is done with records. Override `recordReceived`, or `recordsReceived` for many at once.

    `consumer` is for all else: commits, seeks, positions.
    """

    factory: ConsumerFactory
    transport: ConsumerTransport

    @property
    def consumer(self) -> Consumer:
        """The consumer the records come from."""
        return self.transport.consumer

    def connectionMade(self) -> None:
        """Records will come."""

    def recordsReceived(self, records: list[ConsumerRecord]) -> Any:
        """Some records, in their order in each partition.

        May return a Deferred: no more come until it has fired. If it fails, or this raises, the
        stream ends with that. Where this is not overridden, `recordReceived` is called for each.
        """

    def recordReceived(self, record: ConsumerRecord) -> Any:
        """One record. May return a Deferred, as `recordsReceived`."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """No more records come: the stream was stopped, or `reason` is what went wrong."""


@implementer(IPushProducer)
class ConsumerTransport:
    """Hands records to a protocol until it is stopped; may be paused at any time."""

    def __init__(self, consumer: Consumer, factory: ConsumerFactory) -> None:
        self.consumer = consumer
        self._factory = factory
        self._resumed = consumer._network.signal()
        self._resumed.set()
        self._is_stopping = False

    def pauseProducing(self) -> None:
        """Hand out no more after the call that is under way."""
        self._resumed.clear()

    def resumeProducing(self) -> None:
        """Undo `pauseProducing`."""
        self._resumed.set()

    def stopProducing(self) -> None:
        """End the stream."""
        self._factory.stop()

    def start(self) -> None:
        """Begin."""
        self.consumer._network.spawn(self._hand_out(), "handing out records")

    def stop(self) -> Deferred[None]:
        """End when the call under way has returned, and close the consumer."""
        self._is_stopping = True
        self.resumeProducing()
        self.consumer.wakeup()
        return self.consumer.close()

    async def _give(self, stream: Any, records: list[ConsumerRecord]) -> None:
        """Records to the protocol: at once if it wants that, else one by one.

        Those it has not had when the stream is stopped do not count as consumed.
        """
        if self._stops():
            self.consumer._unread.put(records)
            return
        if type(stream).recordsReceived is not ConsumerProtocol.recordsReceived:
            await maybeDeferred(stream.recordsReceived, records)
            return
        unread = self.consumer._unread
        unread.put(records)
        for record in unread.records():
            outcome = stream.recordReceived(record)
            if outcome is not None:
                await outcome
            if not self._resumed.is_set:
                await self._resumed.wait()
            if self._stops():
                return

    def _stops(self) -> bool:
        """Whether it is to end; that may have come meanwhile."""
        return self._is_stopping

    async def _hand_out(self) -> None:
        stream, reason = self._factory.stream, connectionDone
        try:
            while not self._is_stopping:
                await self._resumed.wait()
                records = await self.consumer.consume()
                await self._resumed.wait()  # It may have been paused meanwhile.
                await self._give(stream, records)
        except (ClosedError, WokenUp):
            pass
        except Exception as error:
            log.error("a stream of records has ended: %s", error, exc_info=error)
            reason = Failure()
        finally:
            self._factory.ended(reason)


class ConsumerFactory(StreamFactory):
    """Makes a `protocol` that is given the records of topics; the arguments are `Consumer`'s."""

    protocol = ConsumerProtocol  # type: ignore[assignment]  # It is no IProtocol of bytes.

    def __init__(self, *topics: str, **settings: Any) -> None:
        super().__init__()
        self._topics = topics
        self._settings = settings
        self._transport: ConsumerTransport | None = None

    def start(self) -> Any:
        """Begin to consume, and return the protocol that gets the records."""
        consumer = Consumer(*self._topics, **self._settings)
        self._transport = ConsumerTransport(consumer, self)
        stream = self._connect(self._transport, self._topics)
        self._transport.start()
        return stream

    def stop(self) -> Deferred[None]:
        """Stop once the call under way has returned, and close the consumer."""
        transport, self._transport = self._transport, None
        return succeed(None) if transport is None else transport.stop()

    def ended(self, reason: Failure) -> None:
        """No more records come."""
        self._disconnect(reason)
        if self._transport is not None:
            self.stop().addErrback(lambda failure: log.error("closing: %s", failure.value))


class ProducerProtocol:
    """What sends records, through `transport`. Override what is needed."""

    factory: ProducerFactory
    transport: ProducerTransport

    def connectionMade(self) -> None:
        """Records may be sent."""

    def deliveryFailed(self, error: Exception) -> None:
        """A record that was given to ``transport.write`` has not been written."""
        log.error("a record was not written: %s", error)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Everything was sent; nothing more can be."""


@implementer(IConsumer)
class ProducerTransport:
    """Where records are written; pauses who is registered while memory is full."""

    def __init__(self, producer: Producer, factory: ProducerFactory) -> None:
        self.producer = producer
        self._factory = factory
        self._registered: Any = None
        self._is_streaming = True
        self._waiting = 0

    def send(
        self, topic: str, value: Any = None, key: Any = None, **options: Any
    ) -> Deferred[RecordMetadata]:
        """`Producer.send`, with flow control for who is registered."""
        record = (topic, value, key)
        outcome = self.producer.send(*record, **options)
        if not outcome.called and self.producer.is_full:
            self._pause(outcome)
        return outcome

    def write(self, data: Any) -> None:
        """Send a value to the factory's topic; the protocol hears of it if that fails."""
        stream = self._factory.stream
        self.send(self._factory.topic, data).addErrback(
            lambda failure: stream.deliveryFailed(failure.value)
        )
        if not self._is_streaming and not self._waiting:
            self.producer._network.spawn(self._ask_for_more(), "asking for more to send")

    async def _ask_for_more(self) -> None:
        """Let a pull producer write again, but not from within what it has just written."""
        await self.producer._network.sleep(0)
        if self._registered is not None and not self._waiting:
            self._registered.resumeProducing()

    def _pause(self, outcome: Deferred[Any]) -> None:
        """Somebody waits for memory until `outcome` is there."""
        self._waiting += 1
        if self._waiting == 1 and self._registered is not None and self._is_streaming:
            self._registered.pauseProducing()

        def resume(result: Any) -> Any:
            self._waiting -= 1
            if not self._waiting and self._registered is not None:
                self._registered.resumeProducing()
            return result

        outcome.addBoth(resume)

    def registerProducer(self, producer: IProducer, streaming: bool) -> None:
        """Have `producer` paused while memory is full, or asked for more when it is not (pull)."""
        if self._registered is not None:
            raise RuntimeError("there is a producer registered already: unregister it first")
        self._registered, self._is_streaming = producer, streaming
        if not streaming:
            self._registered.resumeProducing()

    def unregisterProducer(self) -> None:
        """Leave it alone from now on."""
        self._registered = None


class ProducerFactory(StreamFactory):
    """Makes a `protocol` that sends records; the settings are `Producer`'s.

    `topic` is where ``transport.write`` sends to.
    """

    protocol = ProducerProtocol  # type: ignore[assignment]  # It is no IProtocol of bytes.

    def __init__(self, topic: str = "", **settings: Any) -> None:
        super().__init__()
        self.topic = topic
        self._settings = settings
        self._transport: ProducerTransport | None = None

    def start(self) -> Any:
        """Begin, and return the protocol that sends records."""
        self._transport = ProducerTransport(Producer(**self._settings), self)
        return self._connect(self._transport, (self.topic,) if self.topic else ())

    def stop(self) -> Deferred[None]:
        """Send what was written, and close the producer."""
        transport, self._transport = self._transport, None
        if transport is None:
            return succeed(None)
        closed = transport.producer.close()
        closed.addBoth(self._closed)
        return closed

    def _closed(self, result: Any) -> Any:
        self._disconnect(result if isinstance(result, Failure) else connectionDone)
        return result


class StreamService(Service):
    """A factory of either kind as a service of a twistd application."""

    def __init__(self, factory: StreamFactory) -> None:
        self.factory = factory

    def startService(self) -> None:
        """Start the stream with its parent service."""
        super().startService()  # type: ignore[no-untyped-call]
        self.factory.start()

    def stopService(self) -> Deferred[None]:
        """Stop the stream; what was sent is finished first."""
        super().stopService()  # type: ignore[no-untyped-call]
        return self.factory.stop()
