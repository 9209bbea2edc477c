"""The runtime of a coordinator: one shard for each partition of its topic that this broker leads.

The runtime is independent of groups and transactions: a `ShardKind` defines the state and the
format of its records. HostedTopics calls `topic_started` and `topic_stopped`, which create and
close the shards. Operations are routed to shards by partition number; shard_runtime.py implements
a single shard.

Called on the reactor thread. Source: Kafka 4.0 CoordinatorRuntime.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Generic, TypeVar

from plog.errors import KafkaError, NotCoordinator
from plogd.coordinator.runtime.coordinator_result import Result
from plogd.coordinator.runtime.shard import S, ShardKind
from plogd.coordinator.runtime.shard_loader import LoadGate
from plogd.coordinator.runtime.shard_runtime import RuntimeContext, ShardRuntime, ShardState
from plogd.metadata.cache import TopicState
from plogd.ports import Later, failed, spawn
from plogd.replica.partition import Partition

T = TypeVar("T")


class CoordinatorRuntime(Generic[S]):
    """The shards of one kind of coordinator on this broker."""

    def __init__(self, kind: ShardKind[S], context: RuntimeContext) -> None:
        self._kind = kind
        self._context = context
        self._load_gate = LoadGate()
        self._shards: dict[int, ShardRuntime[S]] = {}

    # -- life cycle of shards -----------------------------------------------------------------

    def topic_started(self, topic: TopicState) -> None:
        """Load the shards of the partitions that this broker has started to lead."""
        for state in topic.partitions:
            try:
                partition = self._context.replica_manager.partition(topic.name, state.partition)
            except KafkaError:
                continue  # Its log directory is offline, which has been logged.
            present = self._shards.get(state.partition)
            if present is not None:
                if present.partition is partition:
                    continue  # Loading it again would fail its pending requests.
                present.close(NotCoordinator(f"{present} moved to another leader"))
            self._shards[state.partition] = ShardRuntime(
                partition, self._kind, self._context, self._load_gate
            )

    def elected(self, partition: Partition) -> None:
        """Load the shard of a partition that this broker leads in a new leader epoch.

        The records that it had in an earlier epoch may have been replaced, so an existing shard is
        dropped (rule C5).
        """
        number = partition.topic_partition.partition
        self.resigned(partition)
        self._shards[number] = ShardRuntime(partition, self._kind, self._context, self._load_gate)

    def resigned(self, partition: Partition) -> None:
        """Unload the shard of a partition that this broker does not lead any more, if any."""
        present = self._shards.pop(partition.topic_partition.partition, None)
        if present is not None:
            present.close(NotCoordinator(f"{present} moved to another leader"))

    def topic_stopped(self) -> None:
        """Unload every shard, because the topic was deleted."""
        self._close_all(NotCoordinator(f"topic {self._kind.topic} was deleted"))

    def shutdown(self) -> Later[None]:
        """Unload every shard and fail pending requests, because the broker is stopping.

        Completes when shards have stopped reading their logs.
        """
        # Copy the shards: `_close_all` empties the dict, but their loads may still be reading.
        shards = [*self._shards.values()]
        self._close_all(NotCoordinator("the broker is stopping"))

        async def loads_ended() -> None:
            for shard in shards:
                await shard.loads_ended()

        return spawn(loads_ended())

    def _close_all(self, error: KafkaError) -> None:
        # Replace the dict before the loop: a request from a callback must not find a closed shard.
        shards, self._shards = self._shards, {}
        for shard in shards.values():
            shard.close(error)

    # -- operations ---------------------------------------------------------------------------

    @property
    def topic(self) -> str:
        """The coordinator's topic."""
        return self._kind.topic

    @property
    def shards(self) -> Mapping[int, ShardRuntime[S]]:
        """All shards by partition number, in any state."""
        return self._shards

    @property
    def active(self) -> Collection[S]:
        """The state of each loaded shard, for gauges."""
        return [one.shard for one in self._shards.values() if _is_usable(one)]

    def write(
        self, number: int, operation: Callable[[S], Result[T]], *, atomic: bool = True
    ) -> Later[T]:
        """Run `ShardRuntime.write` on the shard of partition `number`."""
        shard = self._shards.get(number)
        if shard is None:  # The client then looks up the coordinator again.
            return failed(self._no_shard(number))
        return shard.write(operation, atomic=atomic)

    def read(self, number: int, operation: Callable[[S], T]) -> Later[T]:
        """Run `ShardRuntime.read` on the shard of partition `number`."""
        shard = self._shards.get(number)
        if shard is None:
            return failed(self._no_shard(number))
        return shard.read(operation)

    def _no_shard(self, number: int) -> NotCoordinator:
        return NotCoordinator(f"this broker does not lead {self._kind.topic}-{number}")


def _is_usable(shard: ShardRuntime[S]) -> bool:
    return shard.state is ShardState.ACTIVE and shard.partition.problem() is None
