"""The metadata of a Kafka cluster in KRaft or ZooKeeper mode: topics, settings, producer ids.

kraft_log_reader.py builds the state from `__cluster_metadata`, and zookeeper_state.py builds it
from znodes; import_plan.py reads it. It contains plain values and does not access files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from plog.types import Uuid

CLUSTER_DEFAULT = ""
"""The entity whose settings apply to every broker."""


@dataclass(slots=True, kw_only=True)
class KafkaPartition:
    """The replicas of a partition and its last leader epoch."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader_epoch: int
    eligible: tuple[int, ...] = ()
    """Replicas that can be elected even though they are not in sync (KIP-966)."""

    def is_complete_on(self, node_id: int) -> bool:
        """Return whether this broker has all acknowledged records, or is the only replica."""
        # Without other replicas, there is no copy that could be more complete.
        return node_id in (*self.isr, *self.eligible) or self.replicas == (node_id,)


@dataclass(slots=True, kw_only=True)
class KafkaTopic:
    """A topic; `topic_id` is None if the topic was created before Kafka 2.8."""

    name: str
    topic_id: Uuid | None
    partitions: dict[int, KafkaPartition] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class ClusterState:
    """The facts about a cluster that an import needs, and counts of the entities that it omits."""

    topics: dict[str, KafkaTopic] = field(default_factory=dict)
    topic_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    broker_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    """Settings by broker id, as text; CLUSTER_DEFAULT stands for all brokers."""
    next_producer_id: int | None = None
    """An id above all assigned producer ids; None if no id was assigned."""
    has_producer_ids: bool = True
    """False if the assigned producer ids are stored in a place that was not read."""
    not_imported: Counter[str] = field(default_factory=Counter)
    """Number of entities that plog cannot adopt, by their description."""
    has_topic_configs: bool = True
    """False if the topic settings are stored in a place that was not read."""
    may_hold_old_formats: bool = False
    """Whether any broker of this cluster may have written messages with magic 0 or 1."""


def count_not_imported(state: ClusterState, what: str, things: Iterable[object]) -> None:
    """Add the number of `things` to the count of entities that are not imported."""
    count = sum(1 for _ in things)
    # A count of 0 would also be printed in the summary.
    if count:
        state.not_imported[what] += count
