"""A producer on a simulated network, connected to a complete broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

from plog.client.network.cluster import Cluster
from plog.client.producer.core import ProducerCore
from plog.client.producer.producer_batch import SendHandle
from plog.client.settings import ProducerSettings
from plog.records.codec import Record
from plog.records.reader import iter_records
from plog.wire.messages.produce import ProduceRequest
from plog.wire.schema import ApiMessage
from tests.helpers.client.client_on_sim_network import SimNetwork
from tests.helpers.client.sim_channel import SimChannel
from tests.helpers.sim.sim_broker import create_topic

T = TypeVar("T")

TOPIC = "page-views"


Interference: TypeAlias = Callable[[ApiMessage, Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""Receives a request and a function that asks the broker; returns the response."""


class MeddlingNetwork(SimNetwork):
    """A network in which a test can replace or change the broker's responses."""

    interfere: Interference | None = None

    async def connect(
        self, host: str, port: int, security: object, *, timeout_s: float
    ) -> SimChannel:
        channel = await super().connect(host, port, security, timeout_s=timeout_s)
        ask = channel.ask

        def meddled(request: Any, response: Any, version: int, **options: Any) -> Any:
            def really() -> Awaitable[Any]:
                return ask(request, response, version, **options)

            return really() if self.interfere is None else self.interfere(request, really)

        channel.ask = meddled  # type: ignore[method-assign]
        return channel


class ProducerSite:
    """A producer with the settings `options`, and a topic with `partitions`."""

    def __init__(
        self,
        *,
        seed: int = 0,
        partitions: int = 1,
        topic: dict[str, str] | None = None,
        broker: dict[str, Any] | None = None,
        core: dict[str, Any] | None = None,
        network: type[MeddlingNetwork] = MeddlingNetwork,
        **options: object,
    ) -> None:
        self.sim = network(seed, **(broker or {}))
        create_topic(self.sim.broker, TOPIC, partitions, **(topic or {}))
        self.settings = ProducerSettings.from_options(
            bootstrap_servers=",".join(self.sim.bootstrap_servers), **options
        )
        self.cluster = Cluster(self.sim, self.settings)
        self.core: ProducerCore[SendHandle] = ProducerCore(
            self.cluster, self.sim, self.settings, **(core or {})
        )

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.sim.run(coroutine)

    def know(self, topic: str = TOPIC) -> None:
        """Make the producer look up a topic."""
        self.run(self.core.room(topic, 10))

    def sent(self, *values: bytes, **record: Any) -> list[SendHandle]:
        """Send these to TOPIC, which is known, without waiting."""
        handles = []
        for value in values:
            handle = self.core.send(TOPIC, value, **record)
            assert handle is not None, "the record was not accepted immediately"
            handles.append(handle)
        return handles

    def flush(self) -> None:
        self.run(self.core.flush())

    def records(self, partition: int = 0, topic: str = TOPIC) -> list[Record]:
        """Return all records of the log."""
        found: list[Record] = []
        while True:
            offset = found[-1].offset + 1 if found else 0
            answer = self.sim.broker.fetch(topic, offset, partition=partition)
            assert answer.error_code == 0
            more = list(iter_records(answer.records or b"", from_offset=offset))
            if not more:
                return found
            found += more

    def values(self, partition: int = 0, topic: str = TOPIC) -> list[bytes | None]:
        return [record.value for record in self.records(partition, topic)]

    def produce_requests(self) -> list[ProduceRequest]:
        return [x for x in self.sim.requests if isinstance(x, ProduceRequest)]


def ready(**options: Any) -> ProducerSite:
    """Return the site of a producer that knows the topic."""
    site = ProducerSite(**options)
    site.know()
    return site
