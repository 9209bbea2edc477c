"""Settings of committed offsets and of the topic that keeps them.

A part of `BrokerConfig` (broker_config.py). Kafka's names, types, bounds and defaults; where one of
these is ours, the text says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from plog.settings import KIB, MIB, MINUTE_MS, SECOND_MS, SettingType, setting


@dataclass(frozen=True, kw_only=True)
class OffsetsSettings:
    """Committed offsets, and `__consumer_offsets`."""

    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes",
        4 * KIB,
        "Longest text a client may attach to a committed offset; Kafka counts its characters.",
        at_least=0,
        unit="bytes",
        importance="high",
        group="Committed offsets",
    )
    offsets_commit_timeout_ms: int = setting(
        "offsets.commit.timeout.ms",
        5 * SECOND_MS,
        "How long the answer to a commit waits for the records to become safe; after that the"
        " client is told to try again.",
        at_least=1,
        unit="ms",
        importance="high",
    )
    offsets_load_buffer_size: int = setting(
        "offsets.load.buffer.size",
        5 * MIB,
        "Bytes read at once while committed offsets are loaded.",
        at_least=1,
        unit="bytes",
        importance="high",
    )
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms",
        10 * MINUTE_MS,
        "How often offsets that are no longer kept are looked for.",
        type=SettingType.LONG,
        at_least=1,
        unit="ms",
        importance="high",
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes",
        7 * 24 * 60,
        "How long committed offsets are kept: after the last member of their group has left; after"
        " the last commit where the group has no members by nature, or has stopped to consume the"
        " topic.",
        at_least=1,
        unit="minutes",
        importance="high",
    )
    offsets_topic_compression_codec: int = setting(
        "offsets.topic.compression.codec",
        0,
        "How batches of `__consumer_offsets` are compressed: 0 not at all, 1 gzip, 2 snappy, 3"
        " lz4, 4 zstd.",
        at_least=0,
        at_most=4,
        importance="high",
    )
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions",
        50,
        "Partitions `__consumer_offsets` is created with. Once it is there this has no effect.",
        at_least=1,
        importance="high",
    )
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor",
        3,
        "Replicas `__consumer_offsets` is created with, but never more than there are brokers:"
        " where Kafka would refuse to create it, one broker alone serves groups.",
        type=SettingType.SHORT,
        at_least=1,
        importance="high",
    )
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes",
        100 * MIB,
        "`segment.bytes` of `__consumer_offsets` when it is created. Small files load faster.",
        at_least=MIB,  # As for any topic: else it could not be created.
        unit="bytes",
        importance="high",
    )
