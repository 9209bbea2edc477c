"""The operator of a cluster: elects leaders where docs/cluster.md says that an operator must.

A partition whose last in-sync replica has lost its disk has no leader. The operator starts all
brokers, and then requests an unclean election.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plog.enums import ElectionType
from plog.types import TopicPartition
from plog.wire.api_keys import ApiKey
from plog.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from plogd.metadata.cache import NO_LEADER
from tests.sim.client import Client
from tests.sim.network import ConnectionLost

if TYPE_CHECKING:
    from tests.sim.cluster.cluster_world import ClusterWorld

_LOOK_MS = 500.0
_FIRST_UNCLEAN = 1
_TIMEOUT_MS = 10_000


class Operator(Client):
    """Runs after the faults have ended, until no other client is waiting."""

    def __init__(self, cluster: ClusterWorld) -> None:
        super().__init__(cluster, "operator")  # type: ignore[arg-type]
        self.cluster = cluster

    async def run(self) -> None:
        while True:
            await self.cluster.sleep(_LOOK_MS)
            lost = self._without_leader()
            try:
                for partition in lost:
                    await self._elect(partition)
            except ConnectionLost:
                continue
            if not lost and self.cluster.is_answered:
                return

    def _without_leader(self) -> list[TopicPartition]:
        """Return the partitions whose in-sync replicas run, and have all lost their disks."""
        cluster = self.cluster
        if not all(machine.is_serving for machine in cluster.machines.values()):
            return []
        found = []
        for name, topic in cluster.stored.topics().items():
            for number in topic.assignments:
                key = TopicPartition(name, number)
                state = cluster.stored.state(key)
                if state is not None and state.leader == NO_LEADER:
                    losses = [self._has_lost_end(one, key) for one in state.isr]
                    if losses and all(losses):
                        found.append(key)
        return found

    def _has_lost_end(self, broker_id: int, key: TopicPartition) -> bool:
        process = self.cluster.machines[broker_id].process
        loss = None if process is None else process.broker.log_manager.losses.get(key)
        return loss is not None and loss.lacks_end

    async def _elect(self, key: TopicPartition) -> None:
        await self.topics()  # Returns the controller, too.
        self.go_to_controller()
        connection = await self.connected()
        self.cluster.trace(f"operator: an unclean election of {key}")
        self.cluster.count("unclean elections")
        request = ElectLeadersRequest(
            election_type=ElectionType.UNCLEAN,
            topic_partitions=[TopicPartitions(topic=key.topic, partitions=[key.partition])],
            timeout_ms=_TIMEOUT_MS,
        )
        version = self.version(ApiKey.ELECT_LEADERS, _FIRST_UNCLEAN)
        await self.ask(request, version, ElectLeadersResponse, connection)
