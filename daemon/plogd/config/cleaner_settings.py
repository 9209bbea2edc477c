"""Settings of the log cleaner, which compacts logs.

`BrokerConfig` (broker_config.py) inherits them. Names, types, bounds and defaults are Kafka's
unless the text says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

from plog.settings import DAY_MS, LONG_MAX, MIB, SECOND_MS, SettingType, setting

_MAX_RATE = 1.7976931348623157e308


@dataclass(frozen=True, kw_only=True)
class CleanerSettings:
    """The part of `BrokerConfig` for compaction."""

    log_cleaner_enable: bool = setting(
        "log.cleaner.enable",
        True,
        "Whether logs with `cleanup.policy=compact` are compacted. If not, the logs of committed"
        " offsets grow forever.",
        group="Log: compaction",
    )
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms",
        15 * SECOND_MS,
        "Time between two checks whether a log must be compacted.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
        update="cluster-wide",
    )
    log_cleaner_threads: int = setting(
        "log.cleaner.threads",
        1,
        "Accepted, but has no effect: one process compacts one log at a time.",
        at_least=0,
        update="cluster-wide",
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size",
        128 * MIB,
        "Maximum memory for the keys of a compaction, 24 bytes each. It takes no more than the new"
        " records need. Keys without room wait for the next compaction.",
        type=SettingType.LONG,
        at_least=1024,
        unit="bytes",
        update="cluster-wide",
    )
    log_cleaner_io_buffer_size: int = setting(
        "log.cleaner.io.buffer.size",
        512 * 1024,
        "Accepted, but has no effect: a compaction reads and writes 1 MiB at a time.",
        at_least=0,
        unit="bytes",
        update="cluster-wide",
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        "log.cleaner.io.buffer.load.factor",
        0.9,
        "The part of the memory for keys that is used. A larger part holds more keys, but makes"
        " each lookup slower.",
        at_least=0,
        at_most=1,
        update="cluster-wide",
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second",
        _MAX_RATE,
        "Maximum rate at which a compaction reads and writes, in bytes per second.",
        at_least=1,
        update="cluster-wide",
    )
    log_cleaner_delete_retention_ms: int = setting(
        "log.cleaner.delete.retention.ms",
        DAY_MS,
        "Time for which compaction keeps the tombstone of a deleted key. A consumer that reads a"
        " log from its beginning must reach the end within this time to see all deletions.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
        update="cluster-wide",
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        "log.cleaner.min.cleanable.ratio",
        0.5,
        "The share of a log that has not been compacted at which its compaction begins. A smaller"
        " share keeps logs smaller, but compacts them more often.",
        at_least=0,
        at_most=1,
        update="cluster-wide",
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        "log.cleaner.min.compaction.lag.ms",
        0,
        "Minimum age of a record before it may be removed by compaction.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
        update="cluster-wide",
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        "log.cleaner.max.compaction.lag.ms",
        LONG_MAX,
        "Maximum age of a record before its log is compacted, whatever the share of new records."
        " It also limits the age at which the active segment rolls, which compaction leaves out;"
        " only a new record makes it roll.",
        type=SettingType.LONG,
        at_least=1,
        unit="ms",
        update="cluster-wide",
    )
