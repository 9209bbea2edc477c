"""Gauges for consumer groups, evaluated at each scrape.

The names are those that the usual JMX exporter rules derive from Kafka's MBeans. Source: Kafka 4.3
GroupCoordinatorMetrics, GroupCoordinatorRuntimeMetrics.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from plogd.coordinator.group.group_coordinator import GroupCoordinator
from plogd.coordinator.group.group_memory import GroupMemory
from plogd.coordinator.runtime.shard_runtime import ShardState
from plogd.metrics import Registry

_GROUP_STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Empty", "Dead")


def register_group_gauges(
    metrics: Registry, coordinator: GroupCoordinator[Any], memory: GroupMemory
) -> None:
    """Register the gauges; called once per broker."""
    runtime = coordinator.runtime
    states = _GroupStates(coordinator)
    prefix = "kafka_coordinator_group_groupmetadatamanager_"
    metrics.gauge(
        f"{prefix}numoffsets",
        "Number of committed offsets.",
        lambda: sum(len(shard.offsets) for shard in runtime.active),
    )
    # Registered, and thus evaluated, before the gauges for the states, which use its result.
    metrics.gauge(
        f"{prefix}numgroups",
        "Number of consumer groups.",
        states.count,
    )
    for state in _GROUP_STATES:
        metrics.gauge(
            f"{prefix}numgroups{state.lower()}",
            f"Number of consumer groups in state {state}.",
            # The default argument binds the state of this iteration; a closure would use the last
            # one.
            lambda state=state: states.by_state[state],  # type: ignore[misc]
        )
    metrics.gauge(
        "plog_groups_bytes",
        "Estimated memory used by all groups, limited by plog.groups.max.bytes.",
        lambda: memory.used_bytes,
    )
    metrics.ask(
        "kafka_server_group_coordinator_metrics_num_partitions",
        "Number of __consumer_offsets partitions, by coordinator state.",
        ("state",),
        lambda: [
            ((state.value,), sum(one.state is state for one in runtime.shards.values()))
            for state in (ShardState.LOADING, ShardState.ACTIVE, ShardState.FAILED)
        ],
    )


class _GroupStates:
    """Groups by state, counted only once per scrape, because there can be many thousands."""

    def __init__(self, coordinator: GroupCoordinator[Any]) -> None:
        self._coordinator = coordinator
        self.by_state: Counter[str] = Counter()

    def count(self) -> int:
        """Count all groups by state; return their number. Called before `by_state` is used."""
        self.by_state = Counter(
            shard.groups.group(group_id).state.value
            for shard in self._coordinator.runtime.active
            for group_id in shard.groups.group_ids()
        )
        return self.by_state.total()
