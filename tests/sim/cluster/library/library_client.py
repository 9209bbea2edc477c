"""The base of the applications that use plog's client library in a simulated cluster.

An application is a coroutine over the awaitables of its `LibraryNetwork`, as the engine's own
coroutines are. It ends when the work is finished. Errors that the engine logs because of a bug end
the run, as exceptions do.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred

from plog.client.network.cluster import Cluster
from plog.client.settings import ClientSettings
from plog.types import Uuid
from plogd.ports import Later
from tests.sim.checker import Anomaly, PartitionKey
from tests.sim.cluster.library.library_network import LibraryNetwork, OnResponse
from tests.sim.network import Connection

if TYPE_CHECKING:
    from plog.types import TopicPartition
    from plog.wire.schema import ApiMessage
    from tests.sim.cluster.cluster_world import ClusterWorld

LIBRARY_TOPICS = ("kept", "packed", "stamped")
"""Topics that exist for the whole run and keep all records."""


class LibraryClient:
    """One application; `run` is the actor that the cluster starts."""

    def __init__(self, cluster: ClusterWorld, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.chance = random.Random(cluster.chance.random())
        self.network = LibraryNetwork(cluster, self.chance, self)

    async def run(self) -> None:
        """Run the application to its end."""
        ended: Later[None] = Later()
        Deferred.fromCoroutine(self.work()).addCallbacks(
            ended.succeed, lambda failure: ended.fail(failure.value)
        )
        await ended

    async def work(self) -> None:
        """Use the library until the work is finished."""
        raise NotImplementedError

    def sending(
        self, request: ApiMessage, version: int, connection: Connection
    ) -> OnResponse | None:
        """Note a request that is about to be sent; see `Watcher`."""
        return None

    async def pause(self) -> None:
        """Wait between two actions."""
        chance = self.chance
        pause_ms = self.cluster.pace * chance.random() ** 2 * chance.choice((2, 50, 300))
        await self.network.sleep(pause_ms / 1000)

    def options(self, **more: Any) -> dict[str, Any]:
        """Return settings that every client needs: short times, since runs are short."""
        chance = self.chance
        return {
            "bootstrap_servers": self.network.bootstrap_servers,
            "client_id": self.name,
            "request_timeout_ms": chance.choice((1_000, 3_000, 10_000)),
            "retry_backoff_ms": chance.choice((20, 100)),
            "retry_backoff_max_ms": chance.choice((200, 1_000)),
            "reconnect_backoff_ms": chance.choice((20, 50)),
            "reconnect_backoff_max_ms": chance.choice((50, 1_000)),
            "metadata_max_age_ms": chance.choice((500, 5_000, 300_000)),
            **more,
        }

    def cluster_client(self, settings: ClientSettings) -> Cluster:
        """Return the library's view of the cluster."""
        return Cluster(self.network, settings)

    def topic_id(self, topic: str) -> Uuid:
        """Return the id of a topic that is never deleted."""
        [known] = [one for one in self.cluster.topics.by_id.values() if one.name == topic]
        return known.topic_id

    def key_of(self, partition: TopicPartition) -> PartitionKey:
        """Return the key of a partition in the history."""
        return PartitionKey(self.topic_id(partition.topic), partition.partition)

    async def until_topics_are_known(self) -> bool:
        """Wait until any client has seen all topics; return False if the work ends before."""
        while self.cluster.working:
            names = {one.name for one in self.cluster.topics.by_id.values()}
            if names.issuperset(LIBRARY_TOPICS):
                return True
            await self.network.sleep(0.05)
        return False


class _Bugs(logging.Handler):
    """Ends the run when the library logs an exception that it did not expect."""

    def __init__(self, cluster: ClusterWorld) -> None:
        super().__init__(logging.ERROR)
        self._cluster = cluster

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None:
            error = record.exc_info[1]
            anomaly = Anomaly("crash", f"the library logged: {record.getMessage()}: {error!r}")
            anomaly.__cause__ = error
            self._cluster.fail(anomaly)


@contextmanager
def bugs_end_the_run(cluster: ClusterWorld) -> Iterator[None]:
    """Within the block, let exceptions that the library logs end the run."""
    log, handler = logging.getLogger("plog.client"), _Bugs(cluster)
    propagates, log.propagate = log.propagate, False
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = propagates
