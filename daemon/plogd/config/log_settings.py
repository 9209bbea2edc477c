"""Settings of the logs: segments, durability, retention, records, producers.

A part of `BrokerConfig` (broker_config.py). Most are what a topic gets that does not set its own
value; topic_config.py says which topic setting falls back to which of these. Kafka's names, types,
bounds and defaults; where one of these is ours, the text says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from plog.settings import (
    DAY_MS,
    GIB,
    HOUR_MS,
    KIB,
    LONG_MAX,
    MIB,
    MINUTE_MS,
    SECOND_MS,
    SettingType,
    setting,
)

CLEANUP_POLICIES = ("delete", "compact")
COMPRESSION_TYPES = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """Segments and indexes, durability, retention, records."""

    log_segment_bytes: int = setting(
        "log.segment.bytes",
        GIB,
        "A log's file is closed and a new one begun at this size.",
        at_least=MIB,
        unit="bytes",
        importance="high",
        update="cluster-wide",
        group="Log: segments and indexes",
    )
    log_roll_ms: int | None = setting(
        "log.roll.ms",
        None,
        "A new file is begun at this age even if the last one is not full. If it is not set,"
        " `log.roll.hours` counts.",
        type=SettingType.LONG,
        at_least=1,
        unit="ms",
        importance="high",
        update="cluster-wide",
    )
    log_roll_hours: int = setting(
        "log.roll.hours",
        168,
        "As `log.roll.ms`, which is stronger.",
        at_least=1,
        unit="hours",
        importance="high",
        update="reload",
    )
    log_roll_jitter_ms: int | None = setting(
        "log.roll.jitter.ms",
        None,
        "Up to this much is taken off the age, by chance, so that not all logs roll at once. If it"
        " is not set, `log.roll.jitter.hours` counts.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
        importance="high",
        update="cluster-wide",
    )
    log_roll_jitter_hours: int = setting(
        "log.roll.jitter.hours",
        0,
        "As `log.roll.jitter.ms`, which is stronger.",
        at_least=0,
        unit="hours",
        importance="high",
        update="reload",
    )
    log_index_interval_bytes: int = setting(
        "log.index.interval.bytes",
        4 * KIB,
        "Bytes of records between two entries of an index.",
        at_least=0,
        unit="bytes",
        update="cluster-wide",
    )
    log_index_size_max_bytes: int = setting(
        "log.index.size.max.bytes",
        10 * MIB,
        "Largest offset index; a full one begins a new segment.",
        at_least=4,
        unit="bytes",
        update="cluster-wide",
    )
    log_segment_delete_delay_ms: int = setting(
        "log.segment.delete.delay.ms",
        MINUTE_MS,
        "How long a deleted segment's files stay, renamed, before they are removed.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
        importance="high",
        update="cluster-wide",
    )

    log_flush_interval_messages: int = setting(
        "log.flush.interval.messages",
        1,
        "Records of a log that may wait before they are synced to the disk. At 1, our default, an"
        " answer means that the records are on the disk, and consumers see only those; all writes"
        " that come in during one sync share the next. Kafka's default is the largest number,"
        " which leaves it to the operating system.",
        type=SettingType.LONG,
        at_least=1,
        importance="high",
        update="cluster-wide",
        group="Log: durability",
    )
    log_flush_interval_ms: int | None = setting(
        "log.flush.interval.ms",
        None,
        "A log's records are synced at the latest after this time. If it is not set,"
        " `log.flush.scheduler.interval.ms` counts.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
        importance="high",
        update="cluster-wide",
    )
    log_flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms",
        LONG_MAX,
        "How often the logs are looked over for records whose flush time has come.",
        type=SettingType.LONG,
        at_least=1,
        unit="ms",
        importance="high",
    )
    plog_flush_before_visible: bool = setting(
        "plog.flush.before.visible",
        False,
        "Acknowledge and show records only once they are synced, also where"
        " `log.flush.interval.messages` is larger than 1.",
        importance="high",
    )
    plog_flush_syncfs: str = setting(
        "plog.flush.syncfs",
        "auto",
        "Whether many files may be synced by one `syncfs` of their file system, where the system"
        " reports errors of that call (ext4 or xfs, Linux 5.8 or newer).",
        one_of=("auto", "never"),
        importance="low",
    )
    plog_decompressed_batch_max_bytes: int = setting(
        "plog.decompressed.batch.max.bytes",
        64 * MIB,
        "Largest batch, uncompressed, on topics where the broker reads the records: compacted ones,"
        " and those with `compression.type` or `message.timestamp.before.max.ms`. The limit is also"
        " 16 times `max.message.bytes`. Larger batches are refused with MESSAGE_TOO_LARGE. At most"
        " one batch over 1 MiB is decompressed at any time, so this bounds memory, too.",
        type=SettingType.LONG,
        at_least=MIB,
        unit="bytes",
        update="reload",
    )
    plog_unsynced_max_bytes: int = setting(
        "plog.unsynced.max.bytes",
        64 * MIB,
        "Bytes of one disk that may wait for a sync; beyond it, produce requests wait.",
        type=SettingType.LONG,
        at_least=1,
        unit="bytes",
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms",
        MINUTE_MS,
        "How often the point from which a log would have to be recovered is noted.",
        at_least=1,
        unit="ms",
        importance="high",
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        "log.flush.start.offset.checkpoint.interval.ms",
        MINUTE_MS,
        "How often the first offset of each log is noted.",
        at_least=1,
        unit="ms",
        importance="high",
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        "replica.high.watermark.checkpoint.interval.ms",
        5 * SECOND_MS,
        "How often the high watermark of each partition is noted.",
        type=SettingType.LONG,
        at_least=1,
        unit="ms",
        importance="high",
    )

    log_cleanup_policy: tuple[str, ...] = setting(
        "log.cleanup.policy",
        ("delete",),
        "`delete` removes old segments by `log.retention.*`. `compact` keeps the last record of"
        " each key: it is taken and shown, but there is no compaction yet, so that a topic with"
        " `compact` alone keeps everything. Empty keeps everything, too.",
        one_of=CLEANUP_POLICIES,
        update="cluster-wide",
        group="Log: retention",
    )
    log_retention_ms: int | None = setting(
        "log.retention.ms",
        None,
        "Age at which a segment may be deleted; -1 never. If it is not set,"
        " `log.retention.minutes` counts.",
        type=SettingType.LONG,
        at_least=1,
        also=(-1,),
        unit="ms",
        importance="high",
        update="cluster-wide",
    )
    log_retention_minutes: int | None = setting(
        "log.retention.minutes",
        None,
        "As `log.retention.ms`, which is stronger. If neither is set, `log.retention.hours`"
        " counts.",
        type=SettingType.INT,
        at_least=1,
        also=(-1,),
        unit="minutes",
        importance="high",
        update="reload",
    )
    log_retention_hours: int = setting(
        "log.retention.hours",
        168,
        "As `log.retention.ms` and `log.retention.minutes`, which are stronger.",
        at_least=1,
        also=(-1,),
        unit="hours",
        importance="high",
        update="reload",
    )
    log_retention_bytes: int = setting(
        "log.retention.bytes",
        -1,
        "Size of a partition above which its oldest segments are deleted; negative means never.",
        type=SettingType.LONG,
        unit="bytes",
        importance="high",
        update="cluster-wide",
    )
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms",
        5 * MINUTE_MS,
        "How often the logs are looked over for segments to delete.",
        type=SettingType.LONG,
        at_least=1,
        unit="ms",
    )

    message_max_bytes: int = setting(
        "message.max.bytes",
        MIB + 12,
        "Largest record batch, as it is stored, its header included.",
        at_least=0,
        unit="bytes",
        importance="high",
        update="cluster-wide",
        group="Log: records",
    )
    compression_type: str = setting(
        "compression.type",
        "producer",
        "How stored batches are compressed. `producer` keeps each as it came; anything else makes"
        " the broker compress what came otherwise.",
        one_of=COMPRESSION_TYPES,
        importance="high",
        update="cluster-wide",
    )
    compression_gzip_level: int = setting(
        "compression.gzip.level",
        -1,
        "Level for `compression.type=gzip`; -1 is the library's own choice.",
        at_least=1,
        at_most=9,
        also=(-1,),
        update="cluster-wide",
    )
    compression_lz4_level: int = setting(
        "compression.lz4.level",
        9,
        "Level for `compression.type=lz4`.",
        at_least=1,
        at_most=17,
        update="cluster-wide",
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level",
        3,
        "Level for `compression.type=zstd`.",
        at_least=-(2**17),
        at_most=22,
        update="cluster-wide",
    )
    log_message_timestamp_type: str = setting(
        "log.message.timestamp.type",
        "CreateTime",
        "Whether a record keeps its producer's time or gets the broker's when it is appended.",
        one_of=TIMESTAMP_TYPES,
        update="cluster-wide",
    )
    log_message_timestamp_before_max_ms: int = setting(
        "log.message.timestamp.before.max.ms",
        LONG_MAX,
        "How far a record's time may lie before the broker's clock. Without effect for"
        " `LogAppendTime`.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
        update="cluster-wide",
    )
    log_message_timestamp_after_max_ms: int = setting(
        "log.message.timestamp.after.max.ms",
        HOUR_MS,
        "How far a record's time may lie after the broker's clock. Without effect for"
        " `LogAppendTime`.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
        update="cluster-wide",
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        DAY_MS,
        "How long after its last append a partition remembers an idempotent producer, to recognize"
        " its duplicates. Counted by the broker's clock and not by the timestamps of records.",
        at_least=1,
        unit="ms",
        importance="low",
        update="cluster-wide",
    )
    producer_id_expiration_check_interval_ms: int = setting(
        "producer.id.expiration.check.interval.ms",
        10 * MINUTE_MS,
        "How often producers are looked for that `producer.id.expiration.ms` lets go.",
        at_least=1,
        unit="ms",
        importance="low",
    )
