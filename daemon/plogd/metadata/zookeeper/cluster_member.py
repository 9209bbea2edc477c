"""The metadata of a broker that shares its cluster with other brokers.

In contrast to a broker that is alone in its cluster, it becomes the controller only when no other
broker is, and learns its partitions from the controller. When its session has expired, it registers
again, in a new broker epoch, and the controller sends all of its partitions again.

Source: Kafka 3.9 KafkaServer.startup, KafkaController.RegisterBrokerAndReelect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from plog.types import Uuid
from plogd.metadata.store import BrokerRegistration, Key
from plogd.metadata.zookeeper.store import ZooKeeperStore
from plogd.metadata.zookeeper.zookeeper_metadata import ZooKeeperMetadata
from plogd.ports import Later


class ClusterMember(ZooKeeperMetadata):
    """A `ClusterMetadata` for one of several brokers."""

    offline_topics: Final[Mapping[str, Uuid]] = {}
    on_registered: Callable[[int], None] = staticmethod(lambda broker_epoch: None)
    """Called with the new broker epoch whenever this broker has registered again."""
    on_unregistered: Callable[[], None] = staticmethod(lambda: None)
    """Called whenever the registration has ended."""

    def _make_store(self) -> ZooKeeperStore:
        return ZooKeeperStore(self._client, broker_id=self._config.node_id, ports=self._ports)

    def read_cluster(self) -> Later[dict[Key, Any]]:
        """Read all topics, the states of their partitions, and the registered brokers once."""
        return self._store.read_cluster()

    async def controller_known(self) -> int:
        """Wait until there is a controller; return its id."""
        known: Later[None] = Later()

        def check(*_: object) -> None:
            if self._store.controller_id >= 0 and not known.done:
                known.succeed(None)

        self._store.watch(("controller",), check)
        check()
        await known
        return self._store.controller_id

    def brokers(self) -> tuple[Collection[BrokerRegistration], int]:
        """Return nothing: the controller sends the brokers and its own id."""
        return [], -1

    def registered_again(self, broker_epoch: int) -> None:
        """Note a registration after the first one."""
        super().registered_again(broker_epoch)
        self.on_registered(broker_epoch)

    def _unregistered(self) -> None:
        self.on_unregistered()
        super()._unregistered()
