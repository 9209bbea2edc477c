"""Settings for committed offsets and for `__consumer_offsets`, the topic that stores them.

`BrokerConfig` (broker_config.py) inherits them. Names, types, bounds and defaults are Kafka's
unless the text says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

from plog.settings import KIB, MIB, MINUTE_MS, SECOND_MS, SettingType, setting


@dataclass(frozen=True, kw_only=True)
class OffsetsSettings:
    """The part of `BrokerConfig` for committed offsets."""

    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes",
        4 * KIB,
        "Maximum length of the metadata that a client attaches to a committed offset; like Kafka,"
        " plog counts characters.",
        at_least=0,
        unit="bytes",
        importance="high",
        group="Committed offsets",
    )
    offsets_commit_timeout_ms: int = setting(
        "offsets.commit.timeout.ms",
        5 * SECOND_MS,
        "Maximum time for which an offset commit waits until its records are durable; after that,"
        " it fails with a retriable error.",
        at_least=1,
        unit="ms",
        importance="high",
    )
    offsets_load_buffer_size: int = setting(
        "offsets.load.buffer.size",
        5 * MIB,
        "Size of each read when committed offsets are loaded.",
        at_least=1,
        unit="bytes",
        importance="high",
    )
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms",
        10 * MINUTE_MS,
        "Interval between checks for expired offsets.",
        type=SettingType.LONG,
        at_least=1,
        unit="ms",
        importance="high",
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes",
        7 * 24 * 60,  # KIP-186: offsets outlive a weekend without consumers.
        "How long committed offsets are kept. The period starts when the last member leaves the"
        " group, or at the last commit if the group has never had members or no longer subscribes"
        " to the topic.",
        at_least=1,
        unit="minutes",
        importance="high",
    )
    offsets_topic_compression_codec: int = setting(
        "offsets.topic.compression.codec",
        0,
        "Compression of batches in `__consumer_offsets`: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        at_least=0,
        at_most=4,
        importance="high",
    )
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions",
        50,  # A group's partition is a hash of its id modulo this number.
        "Number of partitions with which `__consumer_offsets` is created. The setting has no effect"
        " once the topic exists.",
        at_least=1,
        importance="high",
    )
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor",
        3,
        "Number of replicas with which `__consumer_offsets` is created. A cluster with fewer"
        " brokers does not serve groups. A broker without a cluster uses 1 instead; Kafka does"
        " not.",
        type=SettingType.SHORT,
        at_least=1,
        importance="high",
    )
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes",
        100 * MIB,
        "`segment.bytes` of `__consumer_offsets` when it is created. Smaller segments load faster.",
        at_least=MIB,  # The minimum of segment.bytes: the topic could not be created with less.
        unit="bytes",
        importance="high",
    )
