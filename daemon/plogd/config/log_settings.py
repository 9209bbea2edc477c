"""Log settings: segments, durability, retention, records and idempotent producers.

`BrokerConfig` (broker_config.py) inherits them. Most apply to topics that do not set their own
value; topic_config.py maps topic settings to these settings. Names, types, bounds and defaults are
Kafka's unless the text says otherwise.
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
    """The part of `BrokerConfig` for logs."""

    log_segment_bytes: int = setting(
        "log.segment.bytes",
        GIB,
        "Maximum size of a segment. Larger segments mean fewer files; smaller segments let"
        " retention delete records sooner.",
        at_least=MIB,  # KIP-1030.
        unit="bytes",
        importance="high",
        update="cluster-wide",
        group="Log: segments and indexes",
    )
    log_roll_ms: int | None = setting(
        "log.roll.ms",
        None,
        "Age of the active segment at which the log rolls to a new segment even if that segment"
        " is not full. If not set, `log.roll.hours` applies.",
        type=SettingType.LONG,
        at_least=1,
        unit="ms",
        importance="high",
        update="cluster-wide",
    )
    log_roll_hours: int = setting(
        # In Kafka, clients can change only the setting in ms; the same applies to those below.
        "log.roll.hours",
        168,
        "Like `log.roll.ms`, which takes precedence.",
        at_least=1,
        unit="hours",
        importance="high",
        update="reload",
    )
    log_roll_jitter_ms: int | None = setting(
        "log.roll.jitter.ms",
        None,
        "Maximum random time subtracted from the roll age, so that logs do not all roll at the"
        " same time. If not set, `log.roll.jitter.hours` applies.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
        importance="high",
        update="cluster-wide",
    )
    log_roll_jitter_hours: int = setting(
        "log.roll.jitter.hours",
        0,
        "Like `log.roll.jitter.ms`, which takes precedence.",
        at_least=0,
        unit="hours",
        importance="high",
        update="reload",
    )
    log_index_interval_bytes: int = setting(
        "log.index.interval.bytes",
        4 * KIB,
        "Number of bytes of record data between two index entries. A lower value makes lookups"
        " faster and indexes larger.",
        at_least=0,
        unit="bytes",
        update="cluster-wide",
    )
    log_index_size_max_bytes: int = setting(
        "log.index.size.max.bytes",
        10 * MIB,
        "Maximum size of an offset index. When the index is full, the log rolls to a new segment.",
        at_least=4,  # Kafka's minimum, although an entry has eight bytes.
        unit="bytes",
        update="cluster-wide",
    )
    log_segment_delete_delay_ms: int = setting(
        "log.segment.delete.delay.ms",
        MINUTE_MS,
        "Time to wait before the renamed files of a deleted segment are removed.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
        importance="high",
        update="cluster-wide",
    )

    log_flush_interval_messages: int = setting(
        "log.flush.interval.messages",
        1,
        "Maximum number of unsynced records in a log. With 1, plog's default, a response means"
        " that the records are on disk, and consumers see only records that are on disk; all"
        " writes that arrive during one sync share the next sync. Kafka's default is the largest"
        " possible number, which leaves syncing to the operating system.",
        type=SettingType.LONG,
        at_least=1,
        importance="high",
        update="cluster-wide",
        group="Log: durability",
    )
    log_flush_interval_ms: int | None = setting(
        "log.flush.interval.ms",
        None,
        "Maximum time before a log's records are synced, checked every"
        " `log.flush.scheduler.interval.ms`. If not set, that interval applies.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
        importance="high",
        update="cluster-wide",
    )
    log_flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms",
        LONG_MAX,  # Never: log.flush.interval.messages=1 syncs every append.
        "Interval between checks for logs whose records must be synced.",
        type=SettingType.LONG,
        at_least=1,
        unit="ms",
        importance="high",
    )
    plog_flush_before_visible: bool = setting(
        "plog.flush.before.visible",
        False,
        "Whether to acknowledge records and expose them to consumers only after they are synced,"
        " even if `log.flush.interval.messages` is larger than 1.",
        importance="high",
    )
    plog_flush_syncfs: str = setting(
        "plog.flush.syncfs",
        "auto",
        "Whether the broker may sync many files with a single `syncfs` call for their file"
        " system. `auto` allows this where the system reports errors from that call (ext4 or xfs,"
        " Linux 5.8 or newer).",
        one_of=("auto", "never"),
        importance="low",
    )
    plog_decompressed_batch_max_bytes: int = setting(
        "plog.decompressed.batch.max.bytes",
        64 * MIB,  # docs/decisions/0005 explains the limit.
        "Maximum uncompressed size of a batch in topics whose records the broker reads: compacted"
        " topics, and topics with `compression.type` or `message.timestamp.before.max.ms` set. The"
        " size is also limited to 16 times `max.message.bytes`. Larger batches fail with"
        " MESSAGE_TOO_LARGE. At most one batch over 1 MiB is decompressed at a time, so the setting"
        " also limits memory.",
        type=SettingType.LONG,
        at_least=MIB,
        unit="bytes",
        update="reload",
    )
    plog_unsynced_max_bytes: int = setting(
        "plog.unsynced.max.bytes",
        64 * MIB,  # Reached only if the disk is slower than the clients.
        "Maximum number of unsynced bytes per disk; beyond it, produce requests wait.",
        type=SettingType.LONG,
        at_least=1,
        unit="bytes",
    )
    plog_log_max_open_segments: int = setting(
        "plog.log.max.open.segments",
        0,
        "Maximum number of segments that are open, for all logs; 0 means half of the limit on open"
        " files. Beyond it, the broker closes the segments that were used least recently, and opens"
        " them again when they are needed. Segments with unsynced records stay open.",
        at_least=0,
    )
    plog_log_preallocate_bytes: int = setting(
        "plog.log.preallocate.bytes",
        64 * MIB,
        "Maximum disk space that is allocated ahead of the appends to an active segment; 0 disables"
        " this. Space is allocated once a segment has 4 MiB, and never more than the segment has."
        " The rest is released when the segment is closed.",
        type=SettingType.LONG,
        at_least=0,
        unit="bytes",
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms",
        MINUTE_MS,
        "Interval at which each log's recovery point is checkpointed.",
        at_least=1,
        unit="ms",
        importance="high",
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        "log.flush.start.offset.checkpoint.interval.ms",
        MINUTE_MS,
        "Interval at which each log's start offset is checkpointed.",
        at_least=1,
        unit="ms",
        importance="high",
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        "replica.high.watermark.checkpoint.interval.ms",
        5 * SECOND_MS,
        "Interval at which each partition's high watermark is checkpointed.",
        type=SettingType.LONG,
        at_least=1,
        unit="ms",
        importance="high",
    )

    log_cleanup_policy: tuple[str, ...] = setting(
        "log.cleanup.policy",
        ("delete",),
        "`delete` deletes old segments according to the retention settings. `compact` keeps only"
        " the last record of each key; every record then needs a key. Both can be combined. An"
        " empty value keeps all records.",
        one_of=CLEANUP_POLICIES,
        update="cluster-wide",
        group="Log: retention",
    )
    log_retention_ms: int | None = setting(
        "log.retention.ms",
        None,
        "Age at which a segment may be deleted; -1 means never. If not set,"
        " `log.retention.minutes` applies.",
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
        "Like `log.retention.ms`, which takes precedence. If neither is set,"
        " `log.retention.hours` applies.",
        type=SettingType.INT,  # The default is None, so the type cannot be derived from it.
        at_least=1,
        also=(-1,),
        unit="minutes",
        importance="high",
        update="reload",
    )
    log_retention_hours: int = setting(
        "log.retention.hours",
        168,
        "Like `log.retention.ms` and `log.retention.minutes`, which take precedence.",
        at_least=1,
        also=(-1,),
        unit="hours",
        importance="high",
        update="reload",
    )
    log_retention_bytes: int = setting(
        "log.retention.bytes",
        -1,
        "Partition size above which the partition's oldest segments are deleted; a negative value"
        " means no limit.",
        type=SettingType.LONG,
        unit="bytes",
        importance="high",
        update="cluster-wide",
    )
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms",
        5 * MINUTE_MS,
        "Interval between checks for segments to delete.",
        type=SettingType.LONG,
        at_least=1,
        unit="ms",
    )

    message_max_bytes: int = setting(
        "message.max.bytes",
        MIB + 12,  # LOG_OVERHEAD: the base offset and the length are not counted in the MiB.
        "Maximum size of a record batch as stored, including its header.",
        at_least=0,
        unit="bytes",
        importance="high",
        update="cluster-wide",
        group="Log: records",
    )
    compression_type: str = setting(
        "compression.type",
        "producer",
        "Compression of stored batches. `producer` keeps the producer's compression; with any"
        " other value, the broker recompresses batches that are compressed differently.",
        one_of=COMPRESSION_TYPES,
        importance="high",
        update="cluster-wide",
    )
    compression_gzip_level: int = setting(
        "compression.gzip.level",
        -1,
        "Compression level for `compression.type=gzip`; -1 is the library's default.",
        at_least=1,
        at_most=9,
        also=(-1,),
        update="cluster-wide",
    )
    compression_lz4_level: int = setting(
        "compression.lz4.level",
        9,  # The default of lz4-java, Kafka's library (KIP-390).
        "Compression level for `compression.type=lz4`.",
        at_least=1,
        at_most=17,  # The maximum of lz4-java.
        update="cluster-wide",
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level",
        3,  # The default of the zstd library.
        "Compression level for `compression.type=zstd`.",
        at_least=-(2**17),  # The minimum of the zstd library; KIP-390 allows its whole range.
        at_most=22,
        update="cluster-wide",
    )
    log_message_timestamp_type: str = setting(
        "log.message.timestamp.type",
        "CreateTime",
        "Whether a record keeps the timestamp set by the producer (`CreateTime`) or gets the"
        " broker's time when it is appended (`LogAppendTime`).",
        one_of=TIMESTAMP_TYPES,
        update="cluster-wide",
    )
    log_message_timestamp_before_max_ms: int = setting(
        # KIP-937 replaced log.message.timestamp.difference.max.ms with this setting and the next.
        "log.message.timestamp.before.max.ms",
        LONG_MAX,
        "Maximum time by which a record's timestamp can be earlier than the broker's clock."
        " Ignored with `LogAppendTime`.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
        update="cluster-wide",
    )
    log_message_timestamp_after_max_ms: int = setting(
        "log.message.timestamp.after.max.ms",
        HOUR_MS,  # KIP-1030; before, there was no limit.
        "Maximum time by which a record's timestamp can be later than the broker's clock. Ignored"
        " with `LogAppendTime`.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
        update="cluster-wide",
    )
    producer_id_expiration_ms: int = setting(
        # KIP-854 separated this time from transactional.id.expiration.ms, which is longer.
        "producer.id.expiration.ms",
        DAY_MS,
        "Time for which a partition remembers an idempotent producer after its last append, in"
        " order to detect duplicates. Measured by the broker's clock, not by record timestamps.",
        at_least=1,
        unit="ms",
        importance="low",
        update="cluster-wide",
    )
    producer_id_expiration_check_interval_ms: int = setting(
        "producer.id.expiration.check.interval.ms",
        10 * MINUTE_MS,
        "Interval between checks for producers for which `producer.id.expiration.ms` has elapsed.",
        at_least=1,
        unit="ms",
        importance="low",
    )
