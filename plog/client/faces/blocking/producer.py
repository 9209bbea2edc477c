"""The blocking face's `Producer`.

`send` adds a record to the accumulator in the caller's thread and returns a future. The other
methods run coroutines in the engine's thread and wait for their results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plog.client.callback_checks import check_functions, check_interceptors, check_partitioner
from plog.client.errors import ForkedError
from plog.client.faces.blocking.base import Client
from plog.client.faces.blocking.record_future import RecordFuture
from plog.client.faces.method_adapters import blocking, direct
from plog.client.network.private_reactor import PrivateReactor
from plog.client.producer.core import ProducerCore
from plog.client.producer.interceptors import ProducerInterceptor
from plog.client.producer.partitioner import Partitioner
from plog.client.producer.producer_batch import OnDelivery
from plog.client.producer.record_checks import Headers, Serializer
from plog.client.settings import ProducerSettings
from plog.client.settings.settings_loader import Servers
from plog.client.transactions.faces import BlockingTransactions
from plog.client.transactions.transactional_producer import producer_core
from plog.client.values import RecordMetadata


class Producer(Client, BlockingTransactions):
    """A client that sends records to topics. Thread-safe.

        with Producer(bootstrap_servers="localhost:9092") as producer:
            future = producer.send("page-views", b"/index.html", key=b"alice")
            print(future.result().offset)

    Settings have Kafka's names, with underscores as keyword arguments and with dots in `config`.

    Raises ConfigError for invalid settings.
    """

    def __init__(
        self,
        *,
        bootstrap_servers: Servers = None,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        partitioner: Partitioner | Callable[..., int] | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        config: Mapping[str, object] | None = None,
        **settings: object,
    ) -> None:
        check_functions(key_serializer=key_serializer, value_serializer=value_serializer)
        check_partitioner(partitioner)
        check_interceptors(interceptors)
        made = ProducerSettings.from_options(
            config, bootstrap_servers=bootstrap_servers, **settings
        )
        super().__init__(made, auto_create_topics=True)
        private = self._private
        self._core: ProducerCore[RecordFuture] = producer_core(
            self._cluster,
            self._network,
            made,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
            interceptors=interceptors,
            # A lambda is needed because `_core` does not exist yet.
            wake=lambda: private.soon(self._core.woken),
            make_handle=RecordFuture,
        )
        # The attribute saves a lookup for each record. After a fork, it raises ForkedError.
        self._send: Callable[..., RecordFuture | None] = self._core.send
        _open_producers.add(self)

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
        on_delivery: OnDelivery | None = None,
    ) -> RecordFuture:
        """Send a record; the call waits only for a new topic's metadata and for buffer memory.

        Args:
            value, key: bytes, or objects that the serializers accept.
            timestamp: ms since 1970 (default: now).
            headers: a dict, or pairs of a name and bytes.
            on_delivery: called in the client's thread with metadata and None, or None and an error.

        Raises:
            SerializationFailed: a serializer failed, or the key or value is not bytes.
            RecordTooLarge: the record exceeds max.request.size or buffer.memory.
            UnknownTopicOrPartition, RequestTimedOut: no metadata for the topic within max.block.ms.
            BufferExhausted: memory was still full after max.block.ms.
        """
        # Usually, the record can be added in the caller's thread, without waiting for the engine.
        future = self._send(topic, value, key, partition, timestamp, headers, on_delivery)
        if future is not None:
            return future
        return self._run(
            self._core.send_soon, topic, value, key, partition, timestamp, headers, on_delivery
        )

    def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> RecordMetadata:
        """Send a record and return its metadata. Raises errors from `send` and from delivery."""
        sent = self.send(
            topic, value, key, partition=partition, timestamp=timestamp, headers=headers
        )
        return sent.result()

    flush = blocking(ProducerCore.flush)
    partitions_for = blocking(ProducerCore.partitions_for)
    metrics = direct(ProducerCore.metrics)

    def close(self, timeout_s: float | None = None) -> None:
        """Send the buffered records and close.

        Records that are not acknowledged within `timeout_s` fail.
        """
        if self._is_closed or self._is_forked:
            return
        # A callback runs in the engine's thread: a close there would wait for itself.
        PrivateReactor.check_caller()
        try:
            self._private.run(self._core.close, timeout_s)
        finally:
            # Close the connections even after an error.
            self._is_closed = True
            _open_producers.discard(self)
            self._private.run(self._cluster.close)

    def _forked(self) -> None:
        super()._forked()
        # The parent closes its own copy at exit; the child has nothing to send.
        _open_producers.discard(self)
        self._send = _raise_forked
        # Otherwise, the child's copies of the parent's futures would never be done.
        self._core.forked(
            ForkedError(
                "the outcome of the record is unknown: it was sent before a fork,"
                " and only the parent process receives the response"
            )
        )


def _raise_forked(*_: Any) -> Any:
    raise ForkedError(
        "the producer was created before a fork; create a new one in the child process"
    )


_open_producers: set[Producer] = set()
"""The producers that were not closed.

The references are strong because a producer that the application has dropped may still hold
records.
"""


def open_producers() -> list[Producer]:
    """Return the producers in this process that were not closed."""
    return list(_open_producers)
