"""What the partitions of a broker share: its id, the time, and what it knows about its cluster.

Source: Kafka 3.9 Partition.apply.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, Self

from plog.errors import NotController
from plog.types import TopicPartition, Uuid
from plogd.metadata.cache import PartitionState
from plogd.ports import Later, failed
from plogd.replica.remote_replicas import RemoteReplicas

_MAX_LAG_MS: Final = 30_000.0
"""The default of ``replica.lag.time.max.ms``."""


class ChangedPartition(Protocol):
    """A partition that reports progress or proposes an ISR."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition's topic and number."""
        ...

    @property
    def topic_id(self) -> Uuid:
        """The id of the partition's topic."""
        ...

    @property
    def broker_id(self) -> int:
        """The id of this broker."""
        ...

    @property
    def leader(self) -> int:
        """The broker id of the leader, or -1."""
        ...

    @property
    def leader_epoch(self) -> int:
        """The current leader epoch."""
        ...

    @property
    def replicas(self) -> tuple[int, ...]:
        """The broker ids of all replicas."""
        ...

    @property
    def adding_replicas(self) -> tuple[int, ...]:
        """The replicas that a reassignment adds."""
        ...

    @property
    def removing_replicas(self) -> tuple[int, ...]:
        """The replicas that a reassignment removes."""
        ...

    @property
    def remote(self) -> RemoteReplicas | None:
        """The followers; None unless this broker is the leader and there are other replicas."""
        ...

    @property
    def partition_epoch(self) -> int:
        """The version of the partition's state."""
        ...


class IsrChanges(Protocol):
    """The requests of leaders to change an in-sync replica set (AlterPartition, KIP-497)."""

    def propose(self, partition: ChangedPartition, isr: tuple[int, ...]) -> Later[PartitionState]:
        """Ask the controller to set the ISR; complete with the state that it has written.

        The request carries the partition's leader epoch and partition epoch. Fails with
        IneligibleReplica if the controller rejects a member, and with another KafkaError if the
        leader's state is out of date; a request without an answer is sent again.
        """
        ...


class _NoIsrChanges:
    """The `IsrChanges` of a single broker, whose partitions have one replica each."""

    def propose(self, partition: ChangedPartition, isr: tuple[int, ...]) -> Later[PartitionState]:
        """Fail with NotController: there is no controller that could change an ISR."""
        return failed(NotController(f"cannot change the ISR of {partition.topic_partition}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionContext:
    """The objects that all partitions of a broker share."""

    broker_id: int
    on_progress: Callable[[ChangedPartition], None]
    """Called when delayed requests for the partition may be able to complete."""
    monotonic_ms: Callable[[], float]
    is_eligible: Callable[[int, int], bool]
    """Returns whether a broker is live, in this broker epoch, and not shutting down, so that it may
    join an ISR."""
    is_leased: Callable[[], bool]
    """Returns whether no other broker can have taken this one's place (rule C3)."""
    max_lag_ms: Callable[[], float]
    """Returns ``replica.lag.time.max.ms``."""
    isr_changes: IsrChanges
    prompt_high_watermark: Callable[[], bool] = lambda: False
    """Returns whether followers receive a new high watermark without waiting for records, because
    consumers read from them (KIP-392)."""

    @classmethod
    def of_single_broker(
        cls,
        broker_id: int,
        *,
        on_progress: Callable[[ChangedPartition], None],
        monotonic_ms: Callable[[], float],
    ) -> Self:
        """Return the context of a broker whose partitions have one replica each."""
        return cls(
            broker_id=broker_id,
            on_progress=on_progress,
            monotonic_ms=monotonic_ms,
            is_eligible=lambda broker_id, broker_epoch: False,
            is_leased=lambda: True,
            max_lag_ms=lambda: _MAX_LAG_MS,
            isr_changes=_NoIsrChanges(),
        )

    def remote_replicas(
        self, topic_partition: TopicPartition, state: PartitionState, *, epoch_start_offset: int
    ) -> RemoteReplicas:
        """Return the followers of a partition that this broker has begun to lead in `state`."""
        return RemoteReplicas(
            topic_partition,
            leader=self.broker_id,
            replicas=state.replicas,
            isr=state.isr,
            epoch_start_offset=epoch_start_offset,
            is_eligible=self.is_eligible,
            is_leased=self.is_leased,
            max_lag_ms=self.max_lag_ms,
            prompt_high_watermark=self.prompt_high_watermark,
            now_ms=self.monotonic_ms(),
        )
