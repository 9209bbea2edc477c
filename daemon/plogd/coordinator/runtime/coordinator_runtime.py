"""The runtime of a coordinator: a shard for each partition of its topic that this broker leads.

Knows nothing of groups or transactions: a `ShardKind` says what the state is and how its records
look. Shards come with their partitions and go with them (`topic_started`, `topic_stopped`, told by
the replica manager); operations are routed to them by partition number. What happens inside one is
in shard_runtime.py.

Called on the reactor's thread. Source: Kafka 4.0 CoordinatorRuntime.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Generic, TypeVar

from plog.errors import KafkaError, NotCoordinator
from plogd.coordinator.runtime.coordinator_result import Result
from plogd.coordinator.runtime.shard import S, ShardKind
from plogd.coordinator.runtime.shard_loader import LoadGate
from plogd.coordinator.runtime.shard_runtime import ShardRuntime, ShardState, Surroundings
from plogd.metadata.cache import TopicState
from plogd.ports import Later, failed, spawn

T = TypeVar("T")


class CoordinatorRuntime(Generic[S]):
    """See the module's text."""

    def __init__(self, kind: ShardKind[S], around: Surroundings) -> None:
        self._kind = kind
        self._around = around
        self._load_gate = LoadGate()
        self._shards: dict[int, ShardRuntime[S]] = {}

    # -- shards come and go -------------------------------------------------------------------

    def topic_started(self, topic: TopicState) -> None:
        """Load the shards of partitions that are new here, or led anew."""
        for state in topic.partitions:
            try:
                partition = self._around.replica_manager.partition(topic.name, state.partition)
            except KafkaError:
                continue  # Its log directory is offline, which has been told.
            present = self._shards.get(state.partition)
            if present is not None:
                if present.partition is partition:
                    continue
                present.close(NotCoordinator(f"{present} moves to a new leader"))
            self._shards[state.partition] = ShardRuntime(
                partition, self._kind, self._around, self._load_gate
            )

    def topic_stopped(self) -> None:
        """The topic is deleted: let go of every shard."""
        self._close_all(NotCoordinator(f"topic {self._kind.topic} was deleted"))

    def shutdown(self) -> Later[None]:
        """The broker stops: let go of every shard, and answer whoever waits.

        Done when no shard reads its log any more.
        """
        shards = [*self._shards.values()]
        self._close_all(NotCoordinator("the broker is stopping"))

        async def loads_ended() -> None:
            for shard in shards:
                await shard.loads_ended()

        return spawn(loads_ended())

    def _close_all(self, error: KafkaError) -> None:
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
        """All shards by partition number, whatever state they are in."""
        return self._shards

    @property
    def active(self) -> Collection[S]:
        """The state of every shard that is loaded, for counting what is in it."""
        return [one.shard for one in self._shards.values() if _is_usable(one)]

    def write(
        self, number: int, operation: Callable[[S], Result[T]], *, atomic: bool = True
    ) -> Later[T]:
        """As `ShardRuntime.write`, on the shard of this partition."""
        shard = self._shards.get(number)
        if shard is None:
            return failed(self._not_here(number))
        return shard.write(operation, atomic=atomic)

    def read(self, number: int, operation: Callable[[S], T]) -> Later[T]:
        """As `ShardRuntime.read`, on the shard of this partition."""
        shard = self._shards.get(number)
        if shard is None:
            return failed(self._not_here(number))
        return shard.read(operation)

    def _not_here(self, number: int) -> NotCoordinator:
        return NotCoordinator(f"this broker does not lead {self._kind.topic}-{number}")


def _is_usable(shard: ShardRuntime[S]) -> bool:
    return shard.state is ShardState.ACTIVE and shard.partition.problem() is None
