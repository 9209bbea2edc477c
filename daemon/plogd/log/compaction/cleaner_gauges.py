"""Gauges of the log cleaner, evaluated at each scrape.

The metrics have the names that the usual JMX exporter rules derive from Kafka's MBeans.
"""

from __future__ import annotations

from plogd.log.compaction.log_cleaner import LogCleaner
from plogd.metrics import Registry


def register_cleaner_gauges(metrics: Registry, cleaner: LogCleaner) -> None:
    """Register the gauges; called once per broker."""
    manager, of_cleaner = "kafka_log_logcleanermanager_", "kafka_log_logcleaner_"
    last = cleaner.last_run
    metrics.gauge(
        f"{manager}uncleanable_partitions_count",
        "Partitions whose last compaction failed.",
        lambda: len(cleaner.uncleanable),
    )
    metrics.gauge(
        f"{manager}uncleanable_bytes",
        "Size in bytes of the partitions whose last compaction failed.",
        lambda: sum(log.size_bytes for log in cleaner.uncleanable),
    )
    metrics.gauge(
        f"{manager}max_dirty_percent",
        "The largest share of new records in a compacted log, at the last check.",
        lambda: 100 * cleaner.max_dirty_ratio,
    )
    metrics.gauge(
        f"{manager}time_since_last_run_ms",
        "Time since the last check whether a log must be compacted.",
        cleaner.ms_since_last_check,
    )
    metrics.gauge(
        f"{of_cleaner}max_buffer_utilization_percent",
        "The part of log.cleaner.dedupe.buffer.size that the last compaction used.",
        lambda: 100 * last.map_utilization,
    )
    metrics.gauge(
        f"{of_cleaner}cleaner_recopy_percent",
        "Bytes that the last compaction wrote, in percent of the bytes that it read.",
        lambda: 100 * last.recopied,
    )
    metrics.gauge(
        f"{of_cleaner}max_clean_time_secs",
        "Duration of the last compaction.",
        lambda: last.seconds,
    )
