"""A controller over each metadata store, with brokers that record what they host.

`hosted` maps a topic to the number of its partitions that `HostedPartitions` serves. A test kills a
controller before a write with `kill_at_write`, and lets another one take over.
"""

from __future__ import annotations

from typing import Any

from plog.errors import KafkaError
from plogd.controller.controller import Controller
from plogd.controller.topic_creation import Defaults, NewTopic
from plogd.fair_queue import FairQueue
from plogd.metadata.cache import TopicState
from plogd.ports import Later, failed, ready
from plogd.testing.mock_zookeeper import Fault, MockZooKeeperClient, Request
from tests.helpers.metadata_sites import EmbeddedSite, Site, ZooKeeperSite
from tests.helpers.real_zookeeper import RealZooKeeperSite
from tests.helpers.sim.sim_ports import SimRandom, T


class HostedPartitions:
    """The controller's port `Brokers`, as one broker that only counts its partitions."""

    def __init__(self) -> None:
        self.hosted: dict[str, int] = {}
        self.calls: list[str] = []
        self.error: KafkaError | None = None
        """The outcome of the calls that create logs."""
        self.held: list[Later[None]] | None = None
        """Calls without an outcome; None if all calls complete immediately."""

    def start_topic(self, topic: TopicState) -> Later[None]:
        self.calls.append(f"start {topic.name}")
        if self.error is None:
            self.hosted[topic.name] = len(topic.partitions)
        return self._outcome(self.error)

    def stop_topic(self, topic: TopicState) -> Later[None]:
        self.calls.append(f"stop {topic.name}")
        self.hosted.pop(topic.name, None)
        return self._outcome(None)

    def create_logs(self, topic: TopicState) -> Later[None]:
        self.calls.append(f"create logs of {topic.name}")
        return self._outcome(self.error)

    def remove_unserved_logs(self, topic: TopicState) -> Later[None]:
        self.calls.append(f"remove logs of {topic.name}")
        return self._outcome(None)

    def _outcome(self, error: KafkaError | None) -> Later[None]:
        if error is not None:
            return failed(error)
        if self.held is None:
            return ready(None)
        self.held.append(Later())
        return self.held[-1]


class ControllerSite:
    """A controller with its store and its broker; `topics` are those that `load` has returned."""

    def __init__(self, site: Site | RealZooKeeperSite, *, is_elected: bool = True) -> None:
        self.site = site
        self.brokers = HostedPartitions()
        self.elected: list[list[TopicState]] = []
        """The topics of each later term."""
        self.may_delete = True
        ports = site.ports
        self.controller = Controller(
            store=site.store,
            brokers=self.brokers,
            defaults=lambda: Defaults(
                num_partitions=2,
                replication_factor=1,
                brokers=(1, 2),
                delete_topic_enable=self.may_delete,
            ),
            # Different brokers create different ids.
            random=SimRandom(0 if isinstance(site, EmbeddedSite) else site.broker_id),
            fair_queue=FairQueue(ports.timers),
            report=ports.report,
        )
        self.controller.on_elected = self.elected.append
        self.loading = self.controller.load()
        self.topics: list[TopicState] = self.settle(self.loading) if is_elected else []

    def settle(self, later: Later[T]) -> T:
        """Return the outcome of `later`, advancing time as far as it takes."""
        return self.site.settle(later)

    def create(self, name: str = "t", partitions: int = 2, **fields: Any) -> Later[TopicState]:
        """Begin to create a topic."""
        new = NewTopic(name=name, num_partitions=partitions, **fields)
        return self.controller.create_topic(new)

    def created(self, name: str = "t", partitions: int = 2, **fields: Any) -> TopicState:
        """Create a topic."""
        return self.settle(self.create(name, partitions, **fields))

    def count_states(self, name: str = "t") -> int:
        """Return the number of partitions of a topic that have a state in the store."""
        return len(self.site.store.load(("partition", name)))


def embedded() -> ControllerSite:
    """Return a controller on the embedded store."""
    return ControllerSite(EmbeddedSite())


def on_zookeeper() -> ControllerSite:
    """Return the first controller of a cluster."""
    return ControllerSite(ZooKeeperSite(1))


def candidate(first: ControllerSite) -> ControllerSite:
    """Return another broker of the cluster, which waits until the first one stops."""
    assert isinstance(first.site, ZooKeeperSite)
    return ControllerSite(ZooKeeperSite(2, first.site), is_elected=False)


def zookeeper_of(site: ControllerSite) -> ZooKeeperSite:
    """Return the store of a controller in a cluster, with its ensemble."""
    assert isinstance(site.site, ZooKeeperSite)
    return site.site


class Transactions:
    """Counts the transactions of a controller, and kills it before one of them."""

    def __init__(self, site: ControllerSite, kill_at: int | None = None) -> None:
        self._client = zookeeper_of(site).client
        self._kill_at = kill_at
        self.sent: list[Request] = []
        zookeeper_of(site).zookeeper.on_request = self._on_request

    def _on_request(self, client: MockZooKeeperClient, request: Request) -> Fault:
        if client is self._client and request.kind == "multi":
            self.sent.append(request)
            if len(self.sent) == self._kill_at:
                client.kill()
        return Fault.NONE
