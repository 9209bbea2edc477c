"""The blocking face's `Producer`.

`send` puts a record into the accumulator in the caller's thread and returns a future. Everything
else is a coroutine of the engine that the caller waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plog.client.callback_checks import check_functions, check_interceptors, check_partitioner
from plog.client.errors import ForkedError
from plog.client.faces.blocking.base import Client
from plog.client.faces.blocking.record_future import RecordFuture
from plog.client.faces.method_adapters import blocking, here
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
    """Sends records to topics; any number of threads may use one.

        with Producer(bootstrap_servers="localhost:9092") as producer:
            future = producer.send("page-views", b"/index.html", key=b"alice")
            print(future.result().offset)

    Settings have Kafka's names, with underscores as keywords, or with dots in `config`.

    Raises ConfigError for settings that are wrong.
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
            wake=lambda: private.soon(self._core.woken),
            make_handle=RecordFuture,
        )
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
        """Send a record; waits only for a topic that is not known yet, and for memory.

        `value` and `key` are bytes, or what the serializers take, `headers` a dict or pairs of name
        and bytes, `timestamp` is in ms since 1970, now by default. `on_delivery` is called with
        metadata and None, or None and an error, in the client's thread.

        Raises:
            SerializationFailed: a serializer failed, or key or value are no bytes.
            RecordTooLarge: it is larger than max.request.size or buffer.memory.
            UnknownTopicOrPartition, RequestTimedOut: the topic did not come in max.block.ms.
            BufferExhausted: memory stayed full for as long.
        """
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
        """Send a record, and wait for where it is. Raises as `send`, and why it failed."""
        sent = self.send(
            topic, value, key, partition=partition, timestamp=timestamp, headers=headers
        )
        return sent.result()

    flush = blocking(ProducerCore.flush)
    partitions_for = blocking(ProducerCore.partitions_for)
    metrics = here(ProducerCore.metrics)

    def close(self, timeout_s: float | None = None) -> None:
        """Send what is there, and end. What is not acknowledged after `timeout_s` fails."""
        if self._is_closed or self._is_forked:
            return
        PrivateReactor.check_caller()
        try:
            self._private.run(self._core.close, timeout_s)
        finally:
            self._is_closed = True
            _open_producers.discard(self)
            self._private.run(self._cluster.close)

    def _forked(self) -> None:
        super()._forked()
        _open_producers.discard(self)
        self._send = _raise_forked
        self._core.forked(
            ForkedError(
                "the record was sent before a fork: only the parent process learns its outcome"
            )
        )


def _raise_forked(*_: Any) -> Any:
    raise ForkedError("the producer was made before a fork: make a new one in the child")


_open_producers: set[Producer] = set()
"""Also those that the application has dropped: their records are still to be sent."""


def open_producers() -> list[Producer]:
    """All that were neither closed nor left behind by a fork."""
    return list(_open_producers)
