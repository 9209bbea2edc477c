"""`Cluster`: three brokers on a real ZooKeeper, which the tests of a file use in turn.

Each test has topics of its own, and may kill, pause, stop and wipe the brokers: `restore` starts
them again. `SharedCluster` replaces a cluster that cannot be restored.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

from confluent_kafka.admin import ClusterMetadata, PartitionMetadata
from kazoo.client import KazooClient

from plogd.testing.broker_process import BrokerFailed, BrokerProcess
from tests.cluster.clients import admin, create, create_on
from tests.helpers.eventually import TIMEOUT_S, eventually

IDS = (1, 2, 3)

MakeBroker = Callable[..., BrokerProcess]


def start_together(brokers: Iterable[BrokerProcess]) -> None:
    """Start brokers at the same time, and wait until all are ready. Raises BrokerFailed."""
    with ThreadPoolExecutor(len(IDS)) as threads:
        for started in [threads.submit(broker.start) for broker in brokers]:
            started.result()


class Cluster:
    """The brokers by id; clients connect to those that run."""

    def __init__(self, make_broker: MakeBroker, znodes: KazooClient) -> None:
        self.znodes = znodes
        self.brokers = {
            one: make_broker(
                f"b{one}",
                node_id=str(one),
                offsets_topic_replication_factor="3",
                default_replication_factor="3",
                **self.settings(one),
            )
            for one in IDS
        }
        self._numbers = itertools.count(1)
        self.start(*IDS)
        eventually(lambda: set(self.described().brokers) == set(IDS), "all brokers")

    def settings(self, one: int) -> dict[str, str]:
        """Return additional settings of a broker, with underscores for dots."""
        return {}

    def start(self, *ids: int) -> None:
        """Start brokers, and wait until they are ready."""
        start_together(self.brokers[one] for one in ids)

    def restore(self) -> None:
        """Start the brokers that do not run, and wait until all replicas are in sync.

        Raises BrokerFailed if a broker has logged a critical event.
        """
        self.start(*(one for one in IDS if one not in self.running))
        eventually(self._is_in_sync, "all replicas in the ISR")
        for broker in self.brokers.values():
            broker.check()

    def _is_in_sync(self) -> bool:
        found = self.described()
        return set(found.brokers) == set(IDS) and all(
            partition.leader >= 0 and set(partition.isrs) == set(partition.replicas)
            for topic in found.topics.values()
            for partition in topic.partitions.values()
        )

    @property
    def running(self) -> dict[int, BrokerProcess]:
        """The brokers whose processes run."""
        return {one: broker for one, broker in self.brokers.items() if broker.is_running}

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the running brokers."""
        return ",".join(broker.bootstrap_servers for broker in self.running.values())

    @contextlib.contextmanager
    def paused(self, one: int) -> Iterator[None]:
        """Stop the process of a broker with SIGSTOP within the block."""
        pid = self.brokers[one].pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def described(self) -> ClusterMetadata:
        """Return the metadata that clients see."""
        return admin(self).list_topics(timeout=TIMEOUT_S)

    def new_topic(self, partitions: int = 1, **config: str) -> str:
        """Create a topic with three replicas, and return its name."""
        name = self._new_name()
        create(self, name, partitions, len(IDS), **config)
        return name

    def new_topic_on(self, *replicas: int) -> str:
        """Create a topic with one partition on these brokers, and return its name."""
        name = self._new_name()
        create_on(self, name, *replicas)
        return name

    def _new_name(self) -> str:
        return f"topic-{next(self._numbers)}"

    def state(self, topic: str) -> dict[str, Any]:
        """Return the state of partition 0 in ZooKeeper, which needs no broker."""
        path = f"/brokers/topics/{topic}/partitions/0/state"
        found: dict[str, Any] = json.loads(self.znodes.get(path)[0])
        return found

    def leader(self, topic: str) -> int:
        """Return the leader of partition 0, or -1 if it has no leader."""
        leader: int = self._partition(topic).leader
        return leader

    def isr(self, topic: str) -> set[int]:
        """Return the ISR of partition 0."""
        return set(self._partition(topic).isrs)

    def _partition(self, topic: str) -> PartitionMetadata:
        # Brokers learn of a new topic at different times.
        return eventually(
            lambda: (found := self.described().topics.get(topic)) and found.partitions.get(0),
            f"partition of {topic}",
        )


class SharedCluster:
    """A cluster for several tests, which is replaced if `restore` fails.

    `started` starts a cluster on entry, and ends it on exit.
    """

    def __init__(self, started: Callable[[], AbstractContextManager[Cluster]]) -> None:
        self._started = started
        self._stack = contextlib.ExitStack()
        self._cluster: Cluster | None = None

    def get(self) -> Cluster:
        """Return the cluster, with all replicas in sync."""
        if self._cluster is None:
            # `restore` has reported the failure.
            with contextlib.suppress(BrokerFailed):
                self.close()
            self._cluster = self._stack.enter_context(self._started())
        return self._cluster

    def restore(self) -> None:
        """Restore the cluster after a test. Raises AssertionError or BrokerFailed."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.restore()
            self._cluster = cluster

    def close(self) -> None:
        """End the brokers."""
        self._cluster = None
        self._stack.close()
