"""A transactional producer in a simulated cluster with transactions."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from plog.client.network.cluster import Cluster
from plog.client.producer.producer_batch import SendHandle
from plog.client.settings import ProducerSettings
from plog.client.transactions.transactional_producer import TransactionalCore
from tests.helpers.client.transaction_world import TransactionWorld
from tests.helpers.sim.sim_broker import create_topic

T = TypeVar("T")

TOPIC = "orders"
NAME = "shop"


class Site:
    """`options` are the producer's settings; the producer knows TOPIC."""

    def __init__(
        self,
        world: TransactionWorld | None = None,
        *,
        level: int = 2,
        partitions: int = 1,
        is_begun: bool = True,
        **options: object,
    ) -> None:
        self.world = world or TransactionWorld(level=level)
        if world is None:
            create_topic(self.world.network.broker, TOPIC, partitions)
        settings = ProducerSettings.from_options(
            bootstrap_servers=",".join(self.world.network.bootstrap_servers),
            transactional_id=NAME,
            **options,
        )
        self.cluster = Cluster(self.world.network, settings)
        self.core: TransactionalCore[SendHandle] = TransactionalCore(
            self.cluster, self.world.network, settings
        )
        self.run(self.core.room(TOPIC, 10))
        if is_begun:
            self.run(self.core.init_transactions())
            self.run(self.core.begin_transaction())

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.world.network.run(coroutine)

    def send(self, *values: bytes, partition: int = 0) -> list[SendHandle]:
        handles = []
        for value in values:
            handle = self.core.send(TOPIC, value, partition=partition)
            assert handle is not None, "the record was not accepted immediately"
            handles.append(handle)
        return handles

    def begin(self) -> None:
        self.run(self.core.begin_transaction())

    def flush(self) -> None:
        self.run(self.core.flush())

    def commit(self, timeout_s: float | None = None) -> None:
        self.run(self.core.commit_transaction(timeout_s))

    def abort(self, timeout_s: float | None = None) -> None:
        self.run(self.core.abort_transaction(timeout_s))

    def committed(self, partition: int = 0) -> list[bytes]:
        return self.world.committed(TOPIC, partition)
