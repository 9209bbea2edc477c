"""The seed's choices before the run: the broker's settings, the topics and their clients.

Segments, indexes and retention are tiny, so that a few hundred steps roll, seal, delete and
checkpoint many times.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from plog.settings import INT_MAX, LONG_MAX
from plogd.config import BrokerConfig
from tests.sim.admins import TopicPlan

if TYPE_CHECKING:
    from plogd.broker import Broker
    from plogd.ports import Later

LOG_DIRS = ("/data/a", "/data/b")
REMADE_TOPICS = ("remade-1", "remade-2")
_NEVER_EXPIRE_MS = (1 << 31) - 1
"""Longer than any clock jump: a producer whose state has expired may write a duplicate."""


@dataclass(frozen=True, slots=True)
class PeriodicTask:
    """A task that the reactor runs periodically in a real broker."""

    name: str
    interval_ms: float
    function: Callable[[Broker], Later[Any] | None]


def make_config(chance: random.Random, seed: int) -> BrokerConfig:
    """Return the broker's settings for one seed."""
    # A generator of its own, so that the other choices of each seed stay the same.
    snapshots = random.Random(f"metadata snapshots {seed}")
    return BrokerConfig(
        log_dirs=LOG_DIRS[: chance.choice((1, 1, 2))],
        listeners=("PLAINTEXT://127.0.0.1:9092",),
        plog_http_port=0,
        log_segment_bytes=chance.choice((1_500, 2_000, 6_000, 1 << 20)),
        log_roll_ms=chance.choice((None, 300, 2_000)),
        log_index_interval_bytes=chance.choice((0, 100, 500, 4096)),
        log_index_size_max_bytes=chance.choice((48, 200, 4096)),
        log_segment_delete_delay_ms=chance.choice((0, 50, 1_000)),
        metadata_log_max_record_bytes_between_snapshots=snapshots.choice(
            (1, 500, 3_000, 20 << 20, 20 << 20)
        ),
        metadata_log_max_snapshot_interval_ms=snapshots.choice((0, 0, 200, 2_000)),
        plog_unsynced_max_bytes=chance.choice((500, 1 << 20)),
        plog_flush_syncfs=chance.choice(("auto", "never")),
        plog_log_preallocate_bytes=chance.choice((0, 300, 64 << 20)),
        # Records created before the clock was set back may arrive after the jump.
        log_message_timestamp_after_max_ms=LONG_MAX,
        producer_id_expiration_ms=_NEVER_EXPIRE_MS,
        queued_max_requests=chance.choice((1, 500)),
        max_incremental_fetch_session_cache_slots=chance.choice((0, 2, 1000)),
        offsets_topic_num_partitions=chance.choice((1, 2, 5)),
        offsets_retention_minutes=INT_MAX,
        offsets_load_buffer_size=chance.choice((1, 1_000, 1 << 20)),
        group_min_session_timeout_ms=1,
        group_initial_rebalance_delay_ms=chance.choice((0, 0, 100)),
    )


def make_topics(chance: random.Random) -> list[TopicPlan]:
    """Return the topics that exist for the whole run."""
    forever = {"retention.ms": "-1"}
    plans = [
        TopicPlan("kept", 2, forever),
        TopicPlan("stamped", 1, {**forever, "message.timestamp.type": "LogAppendTime"}),
        TopicPlan(
            "packed", 1, {**forever, "compression.type": chance.choice(("gzip", "zstd", "lz4"))}
        ),
        TopicPlan("timed", 2, {"retention.ms": str(chance.choice((200, 1_000, 20_000)))}),
        TopicPlan("sized", 1, {"retention.bytes": str(chance.choice((0, 3_000, 10_000)))}),
    ]
    if chance.random() < 0.4:
        plans.append(TopicPlan("relaxed", 1, {**forever, "flush.messages": "7", "flush.ms": "300"}))
    if chance.random() < 0.5:
        compact = {
            **forever,
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": chance.choice(("0", "0.3")),
            "min.compaction.lag.ms": chance.choice(("0", "0", "300")),
            "delete.retention.ms": chance.choice(("0", "500", "5000", "3600000")),
        }
        plans.append(TopicPlan("compacted", 2, compact))
    return plans


def roll_soon(plan: TopicPlan, chance: random.Random) -> TopicPlan:
    """Return the plan of a compacted topic whose segments are rolled soon; others unchanged."""
    # The active segment is not compacted.
    if not plan.is_compacted or chance.random() < 0.2:
        return plan
    segment_ms = chance.choice(("20", "100"))
    return replace(plan, settings={**plan.settings, "segment.ms": segment_ms})


def make_tasks(chance: random.Random, config: BrokerConfig) -> Sequence[PeriodicTask]:
    """Return the periodic tasks, each with a far shorter interval than the default."""

    def interval_ms() -> float:
        return chance.choice((20.0, 100.0, 400.0))

    return (
        PeriodicTask("log-retention", interval_ms(), _apply_retention),
        PeriodicTask(
            "recovery-points",
            interval_ms(),
            lambda broker: broker.log_manager.write_recovery_points(),
        ),
        PeriodicTask(
            "log-starts", interval_ms(), lambda broker: broker.log_manager.write_log_starts()
        ),
        PeriodicTask(
            "high-watermarks",
            interval_ms(),
            lambda broker: broker.log_manager.write_high_watermarks(),
        ),
        PeriodicTask("flush-overdue", interval_ms(), _flush_overdue),
        PeriodicTask("log-cleaner", interval_ms(), lambda broker: broker.log_manager.cleaner.run()),
        PeriodicTask(
            "group-clean-up", interval_ms(), lambda broker: broker.group_coordinator.clean_up()
        ),
    )


def _flush_overdue(broker: Broker) -> None:
    broker.log_manager.flush_overdue(broker.clock.monotonic_ms())


def _apply_retention(broker: Broker) -> None:
    broker.log_manager.apply_retention(broker.clock.now_ms())
