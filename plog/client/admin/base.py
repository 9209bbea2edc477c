"""What the admin client's families have in common: the cluster they ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plog.client.admin.values import BrokerDescription
from plog.client.errors import BrokerNotAvailable

if TYPE_CHECKING:
    from plog.client.cluster import Cluster
    from plog.wire.schema import ApiMessage


class AdminBase:
    """A family of questions to a cluster. Used from the thread of the cluster's network only."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def _request_timeout_ms(self) -> int:
        """How long a broker may take for what it is asked to do."""
        return self._cluster.settings.request_timeout_ms

    async def _version_at_controller(self, request: type[ApiMessage]) -> int:
        """The version in which the controller will be asked this."""
        metadata = self._cluster.metadata
        if metadata.controller_id not in metadata.brokers:
            metadata = await self._cluster.refresh(())
        node_id = metadata.controller_id
        if node_id not in metadata.brokers:
            node_id = await self._some_broker()
        return (await self._cluster.connection(node_id)).version_of(request)

    async def _some_broker(self) -> int:
        """A broker that is there, or the active controller of a client that asks those."""
        brokers = (await self._cluster.refresh(())).brokers
        if not brokers:
            raise BrokerNotAvailable("the cluster tells of no broker: try again")
        controller = self._cluster.metadata.controller_id
        if self._cluster.settings.uses_controllers and controller in brokers:
            return controller
        return min(brokers)

    async def _broker(self, node_id: int) -> BrokerDescription:
        """A broker that has just answered. Its address is not known if it has left since."""
        known = self._cluster.metadata.brokers.get(node_id)
        if known is None:
            known = (await self._cluster.refresh(())).brokers.get(node_id)
        if known is None:
            return BrokerDescription(id=node_id, host="", port=-1)
        return BrokerDescription(id=node_id, host=known.host, port=known.port, rack=known.rack)
