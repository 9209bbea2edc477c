"""Protocols, factories and a service for streams of records, with Twisted's flow control.

    class Printer(ConsumerProtocol):
        def recordReceived(self, record):
            print(record.value)

    factory = ConsumerFactory("page-views", bootstrap_servers="localhost:9092", group_id="printers")
    factory.protocol = Printer
    application.addService(StreamService(factory))

The `transport` of a `ConsumerProtocol` is an `IPushProducer`: a pause stops delivery and, shortly
afterwards, the fetch requests. The `transport` of a `ProducerProtocol` is an `IConsumer`, so a
file, a socket or a consumer can write to it: it pauses its registered producer while
``buffer.memory`` is full.
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
    """The address passed to `buildProtocol`: the topics that a stream reads from or writes to."""

    def __init__(self, topics: tuple[str, ...]) -> None:
        self.topics = topics


class StreamFactory(Factory):
    """The base class of both factories. A factory runs one protocol, from `start` to `stop`."""

    noisy = False

    def __init__(self) -> None:
        self.stream: Any = None
        """The protocol, between `start` and the end of `stop`."""

    def start(self) -> Any:
        """Start the stream and return the protocol, after calling its `connectionMade`."""
        raise NotImplementedError

    def stop(self) -> Deferred[None]:
        """Stop the stream after the operation in progress; stopping again has no effect."""
        raise NotImplementedError

    def _connect(self, transport: Any, topics: tuple[str, ...]) -> Any:
        self.doStart()  # type: ignore[no-untyped-call]
        self.stream = self.buildProtocol(StreamAddress(topics))
        self.stream.transport = transport
        self.stream.connectionMade()
        return self.stream

    def _disconnect(self, reason: Failure) -> None:
        # Detach the protocol first: its `connectionLost` may stop the factory again.
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.connectionLost(reason)
            self.doStop()  # type: ignore[no-untyped-call]


class ConsumerProtocol:
    """A receiver of records. Override `recordReceived`, or `recordsReceived` for whole lists.

    Use `consumer` for commits, seeks and positions.
    """

    factory: ConsumerFactory
    transport: ConsumerTransport

    @property
    def consumer(self) -> Consumer:
        """The consumer that reads the records."""
        return self.transport.consumer

    def connectionMade(self) -> None:
        """Handle the start of the stream."""

    def recordsReceived(self, records: list[ConsumerRecord]) -> Any:
        """Handle records, which are in offset order within each partition.

        The method may return a Deferred: the next records are delivered after it has fired. If the
        Deferred fails or the method raises, the stream ends with that error. Unless this method is
        overridden, `recordReceived` is called for each record.
        """

    def recordReceived(self, record: ConsumerRecord) -> Any:
        """Handle one record. May return a Deferred, as `recordsReceived` may."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Handle the end of the stream; `reason` is the error, unless the stream was stopped."""


@implementer(IPushProducer)
class ConsumerTransport:
    """The transport of a `ConsumerProtocol`: it delivers records until it is paused or stopped."""

    def __init__(self, consumer: Consumer, factory: ConsumerFactory) -> None:
        self.consumer = consumer
        self._factory = factory
        self._resumed = consumer._network.signal()
        self._resumed.set()
        self._is_stopping = False

    def pauseProducing(self) -> None:
        """Pause delivery after the call in progress."""
        self._resumed.clear()

    def resumeProducing(self) -> None:
        """Resume delivery after `pauseProducing`."""
        self._resumed.set()

    def stopProducing(self) -> None:
        """Stop the stream."""
        self._factory.stop()

    def start(self) -> None:
        """Start delivering records."""
        self.consumer._network.spawn(self._deliver_all(), "delivering records")

    def stop(self) -> Deferred[None]:
        """Stop delivery after the call in progress, and close the consumer."""
        self._is_stopping = True
        # A paused stream waits for this signal. Without it, the stream would never end.
        self.resumeProducing()
        # A stream that waits for records ends with WokenUp.
        self.consumer.wakeup()
        return self.consumer.close()

    async def _deliver(self, stream: Any, records: list[ConsumerRecord]) -> None:
        """Pass records to the protocol, as a list only if it overrides `recordsReceived`."""
        if self._must_stop():
            # Records that were not delivered must not count as consumed: a commit would skip them.
            self.consumer._unread.put(records)
            return
        if type(stream).recordsReceived is not ConsumerProtocol.recordsReceived:
            await maybeDeferred(stream.recordsReceived, records)
            return
        # A record counts as consumed when it is delivered, not when it is fetched.
        unread = self.consumer._unread
        unread.put(records)
        for record in unread.records():
            outcome = stream.recordReceived(record)
            if outcome is not None:
                await outcome
            # The protocol may pause within `recordReceived`.
            if not self._resumed.is_set:
                await self._resumed.wait()
            # The remaining records stay unread, so that they are not committed.
            if self._must_stop():
                return

    def _must_stop(self) -> bool:
        """Return whether `stop` was called."""
        # mypy would narrow the attribute after the first check, although `stop` may set it during
        # an await. It does not narrow a method's result.
        return self._is_stopping

    async def _deliver_all(self) -> None:
        stream, reason = self._factory.stream, connectionDone
        try:
            while not self._is_stopping:
                await self._resumed.wait()
                records = await self.consumer.consume()
                # The protocol may have paused delivery during the wait.
                await self._resumed.wait()
                await self._deliver(stream, records)
        except (ClosedError, WokenUp):
            # `stop` wakes and closes the consumer, so these errors mean a regular end.
            pass
        except Exception as error:
            log.error("record stream failed: %s", error, exc_info=error)
            reason = Failure()
        finally:
            self._factory.ended(reason)


class ConsumerFactory(StreamFactory):
    """A factory whose `protocol` receives records from topics; takes `Consumer`'s arguments."""

    protocol = ConsumerProtocol  # type: ignore[assignment]  # Not an IProtocol: no bytes.

    def __init__(self, *topics: str, **settings: Any) -> None:
        super().__init__()
        self._topics = topics
        self._settings = settings
        self._transport: ConsumerTransport | None = None

    def start(self) -> Any:
        """Start consuming, and return the protocol that receives the records."""
        consumer = Consumer(*self._topics, **self._settings)
        self._transport = ConsumerTransport(consumer, self)
        stream = self._connect(self._transport, self._topics)
        self._transport.start()
        return stream

    def stop(self) -> Deferred[None]:
        """Stop delivery after the call in progress, and close the consumer."""
        # Detach the transport first, so that stopping again has no effect.
        transport, self._transport = self._transport, None
        return succeed(None) if transport is None else transport.stop()

    def ended(self, reason: Failure) -> None:
        """Notify the protocol that the stream has ended, and close the consumer."""
        self._disconnect(reason)
        # The stream has ended with an error: the application need not call `stop`, so close the
        # consumer here.
        if self._transport is not None:
            self.stop().addErrback(
                lambda failure: log.error("failed to close the consumer: %s", failure.value)
            )


class ProducerProtocol:
    """A sender of records through `transport`. Override the methods you need."""

    factory: ProducerFactory
    transport: ProducerTransport

    def connectionMade(self) -> None:
        """Handle the start of the stream: records can be sent from now on."""

    def deliveryFailed(self, error: Exception) -> None:
        """Handle the failure of a record that was passed to ``transport.write``."""
        log.error("record was not delivered: %s", error)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Handle the end of the stream: no more records can be sent."""


@implementer(IConsumer)
class ProducerTransport:
    """The transport of a `ProducerProtocol`. It pauses its producer while memory is full."""

    def __init__(self, producer: Producer, factory: ProducerFactory) -> None:
        self.producer = producer
        self._factory = factory
        self._registered: Any = None
        self._is_streaming = True
        self._waiting = 0

    def send(
        self, topic: str, value: Any = None, key: Any = None, **options: Any
    ) -> Deferred[RecordMetadata]:
        """Send a record as `Producer.send` does, with flow control for the registered producer."""
        record = (topic, value, key)
        outcome = self.producer.send(*record, **options)
        # The record waits for memory: pause the sender, or its records would pile up in memory.
        if not outcome.called and self.producer.is_full:
            self._pause(outcome)
        return outcome

    def write(self, data: Any) -> None:
        """Send a value to the factory's topic; a failure calls the protocol's `deliveryFailed`."""
        stream = self._factory.stream
        self.send(self._factory.topic, data).addErrback(
            lambda failure: stream.deliveryFailed(failure.value)
        )
        # A pull producer writes once for each call to `resumeProducing`.
        if not self._is_streaming and not self._waiting:
            self.producer._network.spawn(self._pull(), "resuming a pull producer")

    async def _pull(self) -> None:
        """Resume a pull producer."""
        # Resuming the producer within its own call to `write` could recurse endlessly.
        await self.producer._network.sleep(0)
        if self._registered is not None and not self._waiting:
            self._registered.resumeProducing()

    def _pause(self, outcome: Deferred[Any]) -> None:
        """Pause the registered producer until `outcome`, which waits for memory, has fired."""
        self._waiting += 1
        # Only a push producer can be paused; a pull producer waits until it is resumed.
        if self._waiting == 1 and self._registered is not None and self._is_streaming:
            self._registered.pauseProducing()

        def resume(result: Any) -> Any:
            self._waiting -= 1
            # Resume only after all waiting records have received memory.
            if not self._waiting and self._registered is not None:
                self._registered.resumeProducing()
            return result

        outcome.addBoth(resume)

    def registerProducer(self, producer: IProducer, streaming: bool) -> None:
        """Register a push producer, paused while memory is full, or a pull producer."""
        if self._registered is not None:
            raise RuntimeError("a producer is already registered; unregister it first")
        self._registered, self._is_streaming = producer, streaming
        # A pull producer writes only when it is resumed.
        if not streaming:
            self._registered.resumeProducing()

    def unregisterProducer(self) -> None:
        """Stop controlling the registered producer."""
        self._registered = None


class ProducerFactory(StreamFactory):
    """A factory whose `protocol` sends records; takes `Producer`'s settings.

    ``transport.write`` sends to `topic`.
    """

    protocol = ProducerProtocol  # type: ignore[assignment]  # Not an IProtocol: no bytes.

    def __init__(self, topic: str = "", **settings: Any) -> None:
        super().__init__()
        self.topic = topic
        self._settings = settings
        self._transport: ProducerTransport | None = None

    def start(self) -> Any:
        """Start the stream and return the protocol that sends records."""
        self._transport = ProducerTransport(Producer(**self._settings), self)
        return self._connect(self._transport, (self.topic,) if self.topic else ())

    def stop(self) -> Deferred[None]:
        """Send the buffered records and close the producer."""
        # Detach the transport first, so that stopping again has no effect.
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
    """A Twisted service that runs a `ConsumerFactory` or `ProducerFactory`."""

    def __init__(self, factory: StreamFactory) -> None:
        self.factory = factory

    def startService(self) -> None:
        """Start the stream."""
        super().startService()  # type: ignore[no-untyped-call]
        self.factory.start()

    def stopService(self) -> Deferred[None]:
        """Stop the stream after the operation in progress."""
        super().stopService()  # type: ignore[no-untyped-call]
        return self.factory.stop()
