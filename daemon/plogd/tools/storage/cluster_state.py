"""What a Kafka cluster knew of itself, however it kept it: topics, settings, producer ids.

Filled by kraft_log_reader.py from `__cluster_metadata` or by zookeeper_state.py from znodes, read
by import_plan.py. Plain values, and nothing about files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from plog.types import Uuid

CLUSTER_DEFAULT = ""
"""The entity of settings that hold for every broker."""


@dataclass(slots=True, kw_only=True)
class KafkaPartition:
    """Who held a partition, and in which leader epoch it was last."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader_epoch: int
    eligible: tuple[int, ...] = ()
    """Who could be elected though it is not in sync (KIP-966)."""

    def is_complete_on(self, node_id: int) -> bool:
        """Whether this broker has every acknowledged record, or is the only one with any."""
        return node_id in (*self.isr, *self.eligible) or self.replicas == (node_id,)


@dataclass(slots=True, kw_only=True)
class KafkaTopic:
    """A topic; `topic_id` is None where Kafka gave it none (before 2.8)."""

    name: str
    topic_id: Uuid | None
    partitions: dict[int, KafkaPartition] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class ClusterState:
    """See the module's text."""

    topics: dict[str, KafkaTopic] = field(default_factory=dict)
    topic_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    broker_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    """By broker id as text; CLUSTER_DEFAULT for all brokers."""
    next_producer_id: int | None = None
    """Above every producer id given out; None if none was."""
    has_producer_ids: bool = True
    """False where that is kept somewhere we did not look."""
    not_imported: Counter[str] = field(default_factory=Counter)
    """What there is that plog has no place for: what it is, and how many."""
    has_topic_configs: bool = True
    """False where the settings of topics are kept somewhere we did not look."""
    may_hold_old_formats: bool = False
    """Whether any broker of this cluster may have written messages of magic 0 or 1."""


def count_not_imported(state: ClusterState, what: str, things: Iterable[object]) -> None:
    """Note that `things` are left out, if there are any."""
    count = sum(1 for _ in things)
    if count:
        state.not_imported[what] += count
