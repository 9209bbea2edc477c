"""`TopicConfig`: the settings of a topic, and the broker settings that they fall back to.

A setting's effective value is the topic's own value, otherwise the broker's, otherwise the default.
The metadata store keeps a topic's own values as text. All of Kafka's topic settings are declared,
because topics may set them and tools show them; if a setting has no effect, its text says so.

`TopicConfig.resolve` validates its values; the constructor, which tests call, does not. Source:
Kafka 4.3 LogConfig, ServerTopicConfigSynonyms.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from plog.enums import ConfigSource
from plog.errors import InvalidConfig
from plog.settings import (
    DAY_MS,
    HOUR_MS,
    LONG_MAX,
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

_LONG = SettingType.LONG
_PROBLEMS_MAX = 20
"""Maximum number of problems in one error, because searching for the nearest name is slow."""
_REPLICA = re.compile(r"[0-9]+:[0-9]+", re.ASCII)
_NO_COMPACTION = " Accepted, but has no effect: plog does not support compaction yet."
_NO_REMOTE_STORAGE = " Accepted, but has no effect: plog does not support remote storage."


def _same_as(name: str, broker_name: str) -> Any:  # The checker cannot infer the field's type.
    """Declare a topic setting with the type, default, bounds and text of a broker setting.

    A topic that does not set it uses the value of the broker setting.
    """
    row = settings_of(BrokerConfig)[broker_name]
    topic_row = dataclasses.replace(
        row,
        name=name,
        importance="medium",
        update="read-only",
        group="",
        synonyms=((broker_name, 1),),
    )
    return dataclasses.field(default=row.default, metadata={"setting": topic_row})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The effective settings of one topic; immutable, so a change creates a new instance."""

    cleanup_policy: tuple[str, ...] = _same_as("cleanup.policy", "log.cleanup.policy")
    compression_gzip_level: int = _same_as("compression.gzip.level", "compression.gzip.level")
    compression_lz4_level: int = _same_as("compression.lz4.level", "compression.lz4.level")
    compression_type: str = _same_as("compression.type", "compression.type")
    compression_zstd_level: int = _same_as("compression.zstd.level", "compression.zstd.level")
    delete_retention_ms: int = _same_as("delete.retention.ms", "log.cleaner.delete.retention.ms")
    file_delete_delay_ms: int = _same_as("file.delete.delay.ms", "log.segment.delete.delay.ms")
    flush_messages: int = _same_as("flush.messages", "log.flush.interval.messages")
    flush_ms: int = setting(
        "flush.ms",
        LONG_MAX,
        "Maximum time before records are synced, checked every `log.flush.scheduler.interval.ms`,"
        " a broker setting.",
        type=_LONG,
        at_least=0,
        unit="ms",
        # As in Kafka, log.flush.interval.ms itself falls back to the scheduler's interval.
        synonyms=(("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    )
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        "follower.replication.throttled.replicas",
        (),
        "Replicas that `follower.replication.throttled.rate` throttles while they are not in sync,"
        " as a list of `partition:broker` pairs, or `*` for all.",
    )
    index_interval_bytes: int = _same_as("index.interval.bytes", "log.index.interval.bytes")
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        "leader.replication.throttled.replicas",
        (),
        "Leaders that `leader.replication.throttled.rate` throttles when they send records to"
        " replicas that are not in sync, as a list of `partition:broker` pairs, or `*` for all.",
    )
    local_retention_bytes: int = setting(
        "local.retention.bytes",
        -2,
        "Size kept on local disks when remote storage is enabled; -2 means `retention.bytes`."
        + _NO_REMOTE_STORAGE,
        type=_LONG,
        at_least=-2,
        unit="bytes",
    )
    local_retention_ms: int = setting(
        "local.retention.ms",
        -2,
        "Time kept on local disks when remote storage is enabled; -2 means `retention.ms`."
        + _NO_REMOTE_STORAGE,
        type=_LONG,
        at_least=-2,
        unit="ms",
    )
    max_compaction_lag_ms: int = _same_as(
        "max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
    )
    max_message_bytes: int = _same_as("max.message.bytes", "message.max.bytes")
    message_timestamp_after_max_ms: int = _same_as(
        "message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms"
    )
    message_timestamp_before_max_ms: int = _same_as(
        "message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms"
    )
    message_timestamp_type: str = _same_as("message.timestamp.type", "log.message.timestamp.type")
    min_cleanable_dirty_ratio: float = _same_as(
        "min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio"
    )
    min_compaction_lag_ms: int = _same_as(
        "min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms"
    )
    min_insync_replicas: int = _same_as("min.insync.replicas", "min.insync.replicas")
    preallocate: bool = setting(
        "preallocate",
        False,
        "Whether a new segment's file is allocated at its full size. Accepted, but has no effect.",
    )
    remote_log_copy_disable: bool = setting(
        "remote.log.copy.disable",
        False,
        "Whether copying to remote storage is disabled." + _NO_REMOTE_STORAGE,
    )
    remote_log_delete_on_disable: bool = setting(
        "remote.log.delete.on.disable",
        False,
        "Whether disabling remote storage deletes the records stored there." + _NO_REMOTE_STORAGE,
    )
    remote_storage_enable: bool = setting(
        "remote.storage.enable",
        False,
        "Whether old segments move to remote storage. plog does not support remote storage, so"
        " `true` is rejected.",
    )
    retention_bytes: int = _same_as("retention.bytes", "log.retention.bytes")
    retention_ms: int = setting(
        "retention.ms",
        7 * DAY_MS,
        "Age at which a segment may be deleted; -1 means never.",
        type=_LONG,
        at_least=0,
        also=(-1,),
        unit="ms",
        synonyms=(
            # In Kafka's order of precedence: the smallest unit first.
            ("log.retention.ms", 1),
            ("log.retention.minutes", MINUTE_MS),
            ("log.retention.hours", HOUR_MS),
        ),
    )
    segment_bytes: int = _same_as("segment.bytes", "log.segment.bytes")
    segment_index_bytes: int = _same_as("segment.index.bytes", "log.index.size.max.bytes")
    segment_jitter_ms: int = setting(
        "segment.jitter.ms",
        0,
        "Maximum random time subtracted from `segment.ms`, so that logs do not all roll at the"
        " same time.",
        type=_LONG,
        at_least=0,
        unit="ms",
        synonyms=(("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS)),
    )
    segment_ms: int = setting(
        "segment.ms",
        7 * DAY_MS,
        "Age of the active segment at which the log rolls to a new segment even if that segment"
        " is not full.",
        type=_LONG,
        at_least=1,
        unit="ms",
        synonyms=(("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)),
    )
    unclean_leader_election_enable: bool = _same_as(
        "unclean.leader.election.enable", "unclean.leader.election.enable"
    )

    @property
    def deletes_old_segments(self) -> bool:
        """Whether retention applies."""
        return "delete" in self.cleanup_policy

    @property
    def is_compacted(self) -> bool:
        """Whether every record needs a key."""
        return "compact" in self.cleanup_policy

    @property
    def max_segment_ms(self) -> int:
        """The age at which the active segment rolls.

        Compaction leaves out the active segment, so ``max.compaction.lag.ms`` also limits its age.
        Source: Kafka 4.3 LogConfig.maxSegmentMs; KIP-354.
        """
        if self.max_compaction_lag_ms < self.segment_ms and self.is_compacted:
            return self.max_compaction_lag_ms
        return self.segment_ms

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
        values: dict[str, Any] = {}  # A type checker cannot infer the type of each value.
        # Iterate over the known settings, because an unknown name must not prevent a topic from
        # loading.
        for name, row in settings_of(cls).items():
            if name in overrides:
                values[row.attribute] = _parse(row, overrides[name])
            else:
                values[row.attribute] = _broker_value(broker, row)
        return cls(**values)


def validate_overrides(overrides: Mapping[str, str | None]) -> None:
    """Raise InvalidConfig, listing the settings that are unknown or have an invalid value.

    At most `_PROBLEMS_MAX` settings are listed. None stands for a null value in the request.
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
                # As in Kafka, CreateTopics rejects a null value.
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
    """Return the value that a topic inherits, in the unit of the topic's setting."""
    broker_rows = settings_of(BrokerConfig)
    for name, factor in row.synonyms:
        value = broker.value(broker_rows[name])
        if value is None:
            continue
        if factor != 1:
            assert isinstance(value, int)
            # -1 means "no limit" in every unit, so it is not converted.
            return value * factor if value >= 0 else -1
        return value
    return row.default


def _broker_synonyms(broker: BrokerConfig, row: Setting) -> Iterator[ConfigSynonym]:
    """Yield the values set for the broker, highest precedence first, then the defaults."""
    broker_rows = settings_of(BrokerConfig)
    found = [s for name, _ in row.synonyms for s in synonyms_of(broker, broker_rows[name])]
    # The source takes precedence over the name: milliseconds set by a client override hours set in
    # a file. ConfigSource numbers the sources in order of precedence.
    yield from sorted(found, key=lambda synonym: synonym.source)


def _parse(row: Setting, text: str) -> Value:
    try:
        return row.parse(text)
    except ValueError as error:
        raise InvalidConfig(f"{row.name}={text}: {error}") from None


def _cross_check(values: Mapping[str, Value]) -> Iterator[str]:
    if values["remote.storage.enable"]:
        # If this were ignored, retention would delete records that the operator wants to keep
        # remotely.
        yield "remote.storage.enable=true: remote storage is not supported"
    least, most = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    assert isinstance(least, int) and isinstance(most, int)
    # As in Kafka's LogConfig.validateValues.
    if least > most:
        yield f"min.compaction.lag.ms={least} is greater than max.compaction.lag.ms={most}"
    for side in ("follower", "leader"):
        name = f"{side}.replication.throttled.replicas"
        replicas = values[name]
        assert isinstance(replicas, tuple)
        if replicas != ("*",) and not all(map(_REPLICA.fullmatch, replicas)):
            yield f"{name} is neither * nor a list of partition:broker pairs"
