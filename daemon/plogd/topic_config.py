"""Topic settings: one field per setting, with the broker setting that is its fallback.

A `TopicConfig` has the effective settings of a topic: the topic's own value if it has one,
otherwise the broker's value, otherwise the default. The metadata store keeps the topic's own values
as text. All of Kafka's names are here, because a topic may set them and tools show them; the
documentation of a setting without effect says so.

`resolve` returns only allowed values; a `TopicConfig` built directly, as in tests, is not checked.
Source: Kafka 4.3 LogConfig, ServerTopicConfigSynonyms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from plog.enums import ConfigSource
from plog.errors import InvalidConfig
from plog.settings import (
    DAY_MS,
    GIB,
    HOUR_MS,
    KIB,
    LONG_MAX,
    MIB,
    MINUTE_MS,
    Setting,
    SettingType,
    Value,
    nearest_name,
    setting,
    settings_of,
)
from plogd.config.broker_config import BrokerConfig, synonyms_of
from plogd.config.config_entry import ConfigEntry, ConfigSynonym
from plogd.config.log_settings import CLEANUP_POLICIES, COMPRESSION_TYPES, TIMESTAMP_TYPES

_LONG = SettingType.LONG
_PROBLEMS_MAX = 20
_REPLICA = re.compile(r"[0-9]+:[0-9]+", re.ASCII)
_COMPACTION_LATER = " Accepted and shown, but without effect: compaction is not supported yet."
_REMOTE_LATER = " Accepted and shown, but without effect: remote storage is not supported."
_REPLICAS_LATER = " Accepted and shown, but without effect while a partition has one replica."


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The effective settings of a topic; immutable, so a change creates a new instance."""

    cleanup_policy: tuple[str, ...] = setting(
        "cleanup.policy",
        ("delete",),
        "`delete` removes old segments by `retention.ms` and `retention.bytes`. `compact` keeps the"
        " last record of each key; compaction is not supported yet, so a topic with `compact` alone"
        " keeps all records. An empty value keeps all records, too.",
        one_of=CLEANUP_POLICIES,
        synonyms=(("log.cleanup.policy", 1),),
    )
    compression_gzip_level: int = setting(
        "compression.gzip.level",
        -1,
        "Level for `compression.type=gzip`; -1 is the library's default.",
        at_least=1,
        at_most=9,
        also=(-1,),
        synonyms=(("compression.gzip.level", 1),),
    )
    compression_lz4_level: int = setting(
        "compression.lz4.level",
        9,
        "Level for `compression.type=lz4`.",
        at_least=1,
        at_most=17,
        synonyms=(("compression.lz4.level", 1),),
    )
    compression_type: str = setting(
        "compression.type",
        "producer",
        "Compression of stored batches. `producer` keeps the producer's compression; with any other"
        " value the broker recompresses batches that have a different one.",
        one_of=COMPRESSION_TYPES,
        synonyms=(("compression.type", 1),),
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level",
        3,
        "Level for `compression.type=zstd`.",
        at_least=-(2**17),
        at_most=22,
        synonyms=(("compression.zstd.level", 1),),
    )
    delete_retention_ms: int = setting(
        "delete.retention.ms",
        DAY_MS,
        "How long compaction keeps the tombstone of a deleted key." + _COMPACTION_LATER,
        type=_LONG,
        at_least=0,
        unit="ms",
    )
    file_delete_delay_ms: int = setting(
        "file.delete.delay.ms",
        MINUTE_MS,
        "Delay before the renamed files of a deleted segment are removed.",
        type=_LONG,
        at_least=0,
        unit="ms",
        synonyms=(("log.segment.delete.delay.ms", 1),),
    )
    flush_messages: int = setting(
        "flush.messages",
        1,
        "Records that may be written before they are synced to the disk. With 1, plog's default, a"
        " response means that the records are on the disk. Kafka's default is the largest number.",
        type=_LONG,
        at_least=1,
        synonyms=(("log.flush.interval.messages", 1),),
    )
    flush_ms: int = setting(
        "flush.ms",
        LONG_MAX,
        "Maximum time before records are synced to the disk. The broker checks it every"
        " `log.flush.scheduler.interval.ms`.",
        type=_LONG,
        at_least=0,
        unit="ms",
        synonyms=(("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    )
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        "follower.replication.throttled.replicas",
        (),
        "Replicas whose replication is throttled on the follower, as `partition:broker` or `*`."
        + _REPLICAS_LATER,
    )
    index_interval_bytes: int = setting(
        "index.interval.bytes",
        4 * KIB,
        "Bytes of records between two index entries.",
        at_least=0,
        unit="bytes",
        synonyms=(("log.index.interval.bytes", 1),),
    )
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        "leader.replication.throttled.replicas",
        (),
        "Replicas whose replication is throttled on the leader, as `partition:broker` or `*`."
        + _REPLICAS_LATER,
    )
    local_retention_bytes: int = setting(
        "local.retention.bytes",
        -2,
        "Size that is kept on local disks in addition to remote storage; -2 means"
        " `retention.bytes`." + _REMOTE_LATER,
        type=_LONG,
        at_least=-2,
        unit="bytes",
    )
    local_retention_ms: int = setting(
        "local.retention.ms",
        -2,
        "How long records are kept on local disks in addition to remote storage; -2 means"
        " `retention.ms`." + _REMOTE_LATER,
        type=_LONG,
        at_least=-2,
        unit="ms",
    )
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms",
        LONG_MAX,
        "Age at which a record must be eligible for compaction." + _COMPACTION_LATER,
        type=_LONG,
        at_least=1,
        unit="ms",
    )
    max_message_bytes: int = setting(
        "max.message.bytes",
        MIB + 12,
        "Maximum size of a record batch as stored, including its header.",
        at_least=0,
        unit="bytes",
        synonyms=(("message.max.bytes", 1),),
    )
    message_timestamp_after_max_ms: int = setting(
        "message.timestamp.after.max.ms",
        HOUR_MS,
        "How far a record's timestamp may be after the broker's clock. Without effect for"
        " `LogAppendTime`.",
        type=_LONG,
        at_least=0,
        unit="ms",
        synonyms=(("log.message.timestamp.after.max.ms", 1),),
    )
    message_timestamp_before_max_ms: int = setting(
        "message.timestamp.before.max.ms",
        LONG_MAX,
        "How far a record's timestamp may be before the broker's clock. Without effect for"
        " `LogAppendTime`.",
        type=_LONG,
        at_least=0,
        unit="ms",
        synonyms=(("log.message.timestamp.before.max.ms", 1),),
    )
    message_timestamp_type: str = setting(
        "message.timestamp.type",
        "CreateTime",
        "Whether a record keeps the timestamp of its producer or gets the broker's time when it is"
        " appended.",
        one_of=TIMESTAMP_TYPES,
        synonyms=(("log.message.timestamp.type", 1),),
    )
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio",
        0.5,
        "Uncompacted share of a log at which compaction starts." + _COMPACTION_LATER,
        at_least=0,
        at_most=1,
    )
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms",
        0,
        "Age below which a record is never compacted." + _COMPACTION_LATER,
        type=_LONG,
        at_least=0,
        unit="ms",
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        1,
        "In-sync replicas that a partition needs to accept a produce request with `acks=all`.",
        at_least=1,
        synonyms=(("min.insync.replicas", 1),),
    )
    preallocate: bool = setting(
        "preallocate",
        False,
        "Whether the file of a new segment is allocated in full. Accepted and shown, but without"
        " effect.",
    )
    remote_log_copy_disable: bool = setting(
        "remote.log.copy.disable",
        False,
        "Whether copying to remote storage is disabled." + _REMOTE_LATER,
    )
    remote_log_delete_on_disable: bool = setting(
        "remote.log.delete.on.disable",
        False,
        "Whether disabling remote storage deletes the data in it." + _REMOTE_LATER,
    )
    remote_storage_enable: bool = setting(
        "remote.storage.enable",
        False,
        "Whether old segments are moved to remote storage. It is not supported, so `true` is"
        " refused.",
    )
    retention_bytes: int = setting(
        "retention.bytes",
        -1,
        "Size of a partition above which its oldest segments are deleted; a negative value means"
        " no limit.",
        type=_LONG,
        unit="bytes",
        synonyms=(("log.retention.bytes", 1),),
    )
    retention_ms: int = setting(
        "retention.ms",
        7 * DAY_MS,
        "Age at which a segment may be deleted; -1 means no limit.",
        type=_LONG,
        at_least=0,
        also=(-1,),
        unit="ms",
        synonyms=(
            ("log.retention.ms", 1),
            ("log.retention.minutes", MINUTE_MS),
            ("log.retention.hours", HOUR_MS),
        ),
    )
    segment_bytes: int = setting(
        "segment.bytes",
        GIB,
        "Size of a segment at which the log rolls: it closes the segment and creates a new one.",
        at_least=MIB,
        unit="bytes",
        synonyms=(("log.segment.bytes", 1),),
    )
    segment_index_bytes: int = setting(
        "segment.index.bytes",
        10 * MIB,
        "Maximum size of an offset index; the log rolls when the index is full.",
        at_least=4,
        unit="bytes",
        synonyms=(("log.index.size.max.bytes", 1),),
    )
    segment_jitter_ms: int = setting(
        "segment.jitter.ms",
        0,
        "Maximum random time that is subtracted from `segment.ms`, so that not all logs roll at the"
        " same time.",
        type=_LONG,
        at_least=0,
        unit="ms",
        synonyms=(("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS)),
    )
    segment_ms: int = setting(
        "segment.ms",
        7 * DAY_MS,
        "Age of a segment at which the log rolls even if the segment is not full.",
        type=_LONG,
        at_least=1,
        unit="ms",
        synonyms=(("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)),
    )
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable",
        False,
        "Whether a replica that lacks acknowledged records may become leader if no other is left."
        + _REPLICAS_LATER,
    )

    @property
    def deletes_old_segments(self) -> bool:
        """Whether retention deletes old segments."""
        return "delete" in self.cleanup_policy

    @property
    def is_compacted(self) -> bool:
        """Whether the topic is compacted, so that every record needs a key."""
        return "compact" in self.cleanup_policy

    @property
    def uses_log_append_time(self) -> bool:
        """Whether the broker sets the timestamps of records."""
        return self.message_timestamp_type == "LogAppendTime"

    @classmethod
    def resolve(cls, broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
        """Return the effective settings of a topic that sets `overrides`; ignore unknown names.

        Raises:
            InvalidConfig: a value is invalid.
        """
        values: dict[str, Any] = {}  # Any: each setting has its own type.
        for name, row in settings_of(cls).items():
            if name in overrides:
                values[row.attribute] = _parse(row, overrides[name])
            else:
                values[row.attribute] = _broker_value(broker, row)
        return cls(**values)


def validate_overrides(overrides: Mapping[str, str | None]) -> None:
    """Raise InvalidConfig with the settings that are unknown or have an invalid value.

    At most 20 problems are listed, because the search for the nearest name is slow. None is the
    value of a setting without one in a CreateTopics request; it is refused, as in Kafka.
    """
    rows = settings_of(TopicConfig)
    problems = []
    values: dict[str, Value] = {name: row.default for name, row in rows.items()}
    for name, text in overrides.items():
        try:
            if name not in rows:
                nearest = nearest_name(name, rows)
                hint = f"; did you mean {nearest}?" if nearest else ""
                raise InvalidConfig(f"{name} is not a topic setting{hint}")
            if text is None:
                raise InvalidConfig(f"{name} has no value")
            values[name] = _parse(rows[name], text)
        except InvalidConfig as error:
            problems.append(str(error))
            if len(problems) == _PROBLEMS_MAX:
                break
    problems += _cross_check(values)
    if problems:
        raise InvalidConfig("; ".join(problems))


def describe(broker: BrokerConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Return every setting of a topic that sets `overrides`, as DescribeConfigs shows it."""
    return [_describe(broker, row, overrides) for row in settings_of(TopicConfig).values()]


def _describe(broker: BrokerConfig, row: Setting, overrides: Mapping[str, str]) -> ConfigEntry:
    own = overrides.get(row.name)
    synonyms: tuple[ConfigSynonym, ...] = tuple(_broker_synonyms(broker, row))
    value = row.shown(_broker_value(broker, row))
    if own is not None:
        value = row.shown(_parse(row, own))
        override = ConfigSynonym(
            name=row.name, value=value, source=ConfigSource.DYNAMIC_TOPIC_CONFIG
        )
        synonyms = (override, *synonyms)
    return ConfigEntry(
        name=row.name,
        value=value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        read_only=False,
        sensitive=row.sensitive,
        type=row.type,
        documentation=row.doc,
        synonyms=synonyms,
    )


def _broker_value(broker: BrokerConfig, row: Setting) -> Value:
    """Return the value for a topic without its own, in the unit of the topic's setting."""
    broker_rows = settings_of(BrokerConfig)
    for name, factor in row.synonyms:
        value = broker.value(broker_rows[name])
        if value is None:
            continue
        if factor != 1:
            assert isinstance(value, int)
            return value * factor if value >= 0 else -1  # -1 hours is not -3600000 ms.
        return value
    return row.default


def _broker_synonyms(broker: BrokerConfig, row: Setting) -> Iterator[ConfigSynonym]:
    """Yield the values of the broker's settings, strongest first, then the defaults.

    Values are ordered by source first: a value that a client has set precedes one from a file,
    whichever of the setting's names they have.
    """
    broker_rows = settings_of(BrokerConfig)
    found = [s for name, _ in row.synonyms for s in synonyms_of(broker, broker_rows[name])]
    yield from sorted(found, key=lambda synonym: synonym.source)  # Kafka numbers them this way.


def _parse(row: Setting, text: str) -> Value:
    try:
        return row.parse(text)
    except ValueError as error:
        raise InvalidConfig(f"{row.name}={text}: {error}") from None


def _cross_check(values: Mapping[str, Value]) -> Iterator[str]:
    if values["remote.storage.enable"]:
        yield "remote.storage.enable=true: remote storage is not supported"
    least, most = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    assert isinstance(least, int) and isinstance(most, int)
    if least > most:
        yield f"min.compaction.lag.ms={least} is greater than max.compaction.lag.ms={most}"
    for side in ("follower", "leader"):
        name = f"{side}.replication.throttled.replicas"
        replicas = values[name]
        assert isinstance(replicas, tuple)
        if replicas != ("*",) and not all(map(_REPLICA.fullmatch, replicas)):
            yield f"{name} is neither * nor a list of partition:broker"
