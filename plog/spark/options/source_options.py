"""`SourceOptions`: the options of a query that reads with ``format("plog")``.

Names, defaults, precedence and rejected options are those of Spark's Kafka connector;
``commitGroup``, ``maxBytesPerPartition``, ``maxBytesPerTrigger`` and ``pushFilters`` exist only
here. Options that
start with ``kafka.`` are settings of plog's client (option_names.py). The values are parsed in
option_values.py and topic_choice.py. Pure.

Source: Spark 4.2 Structured Streaming + Kafka Integration Guide, KafkaSourceProvider.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from plog.client.settings import ConfigError, ConsumerSettings
from plog.spark.options.offset_bound import EARLIEST, LATEST, OffsetBound
from plog.spark.options.offsets_json import parse_offsets
from plog.spark.options.option_names import (
    check_client_settings,
    client_settings,
    nearest_option,
    unknown_options,
)
from plog.spark.options.option_values import OptionReader, parse_duration_ms
from plog.spark.options.topic_choice import TopicChoice, read_topic_choice
from plog.types import TopicPartition

TimestampStrategy: TypeAlias = Literal["error", "latest"]
"""What to do if a partition has no record at or after a time: fail, or start at the end."""

_ONLY_BATCH = (
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "maxBytesPerPartition",
    "pushFilters",
)
_ONLY_STREAM = (
    "commitGroup",
    "maxBytesPerTrigger",
    "maxOffsetsPerTrigger",
    "maxTriggerDelay",
    "minOffsetsPerTrigger",
)
OPTIONS: Final = (
    "assign",
    *_ONLY_BATCH,
    "failOnDataLoss",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "includeHeaders",
    "kafkaConsumer.pollTimeoutMs",
    *_ONLY_STREAM,
    "maxRecordsPerPartition",
    "minPartitions",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "subscribe",
    "subscribePattern",
)
"""The options of the source, except those that start with ``kafka.``."""

_FETCH_SIZES = ("max.partition.fetch.bytes", "fetch.message.max.bytes")
"""The setting for the size of a fetch, and its name in other clients."""
_FETCH_BYTES = 4 << 20
# The connector rejects the same settings.
_REJECTED = {
    "auto.offset.reset": "use startingOffsets; a query never resets its offsets",
    "enable.auto.commit": "Spark stores the offsets of a query in its checkpoint; remove it",
    "interceptor.classes": "interceptors could change the records; transform the DataFrame",
    "key.deserializer": "keys are always binary; convert the column with cast or from_json",
    "value.deserializer": "values are always binary; convert the column with cast or from_json",
}
_DEFAULT_DELAY_MS = 15 * 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of one query; None means no limit. `warnings` concern ignored options."""

    client: Mapping[str, str]
    """The settings of the client, without the prefix ``kafka.``."""
    topics: TopicChoice
    starting: OffsetBound
    ending: OffsetBound
    """The end of a batch query; a stream has no end."""
    timestamp_strategy: TimestampStrategy = "error"
    fail_on_data_loss: bool = True
    include_headers: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_bytes_per_partition: int | None = None
    push_filters: bool = False
    """Whether Spark offers the query's filters, which narrow the ranges of its partitions."""
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = _DEFAULT_DELAY_MS
    offset_lookup_retries: int = 3
    """How often a stream looks again at partitions that seem to have lost records."""
    # The connector's guide names 10 ms, but three lookups within 30 ms would not outlast the start
    # of a broker.
    offset_lookup_retry_interval_ms: int = 1000
    commit_group: str | None = None
    """The group to which a stream commits its progress, for tools that show consumer lag."""
    warnings: tuple[str, ...] = ()


def read_source_options(options: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
    """Return the options of a query. Raises ConfigError, which lists every problem."""
    reader = OptionReader(options)
    problems = reader.problems
    client = _client_settings(options, reader)
    delay_ms = reader.parsed("maxTriggerDelay", parse_duration_ms)
    retries = reader.integer("fetchOffset.numRetries")
    interval_ms = reader.integer("fetchOffset.retryIntervalMs", at_least=0)
    made = SourceOptions(
        client=client,
        topics=read_topic_choice(reader),
        starting=_starting(reader, is_stream=is_stream),
        ending=_ending(reader),
        timestamp_strategy=reader.parsed("startingOffsetsByTimestampStrategy", _strategy)
        or "error",
        fail_on_data_loss=reader.boolean("failOnDataLoss", True),
        include_headers=reader.boolean("includeHeaders", False),
        min_partitions=reader.integer("minPartitions"),
        max_records_per_partition=reader.integer("maxRecordsPerPartition"),
        max_bytes_per_partition=reader.integer("maxBytesPerPartition"),
        push_filters=reader.boolean("pushFilters", False),
        max_offsets_per_trigger=reader.integer("maxOffsetsPerTrigger"),
        max_bytes_per_trigger=reader.integer("maxBytesPerTrigger"),
        min_offsets_per_trigger=reader.integer("minOffsetsPerTrigger", at_least=0),
        max_trigger_delay_ms=_DEFAULT_DELAY_MS if delay_ms is None else delay_ms,
        offset_lookup_retries=3 if retries is None else retries,
        offset_lookup_retry_interval_ms=1000 if interval_ms is None else interval_ms,
        commit_group=reader.parsed("commitGroup", _group),
        warnings=tuple(_warnings(options, reader, is_stream=is_stream)),
    )
    least, most = made.min_offsets_per_trigger, made.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        problems.append(
            f"minOffsetsPerTrigger={least}: is above maxOffsetsPerTrigger ({most}); lower it"
        )
    if is_stream:
        # The connector ignores endingTimestamp in streams. The query would then not end where the
        # application expects.
        problems += [
            f"{name} is set: a stream has no end; remove it"
            for name in _ONLY_BATCH
            if reader.has(name)
        ]
    problems += _misspelled(options)
    if problems:
        raise ConfigError(problems)
    return made


# -- settings of the client -----------------------------------------------------------------------


def _client_settings(options: Mapping[str, str], reader: OptionReader) -> dict[str, str]:
    """Return the settings after ``kafka.``, checked as the workers will check them."""
    settings = client_settings(options, _REJECTED, reader.problems)
    # Reading a known range needs no group, so the name of one has no effect.
    settings.pop("group.id", None)
    # `kafka.default.api.timeout.ms` limits the same waits, and takes precedence if both are set.
    timeout_ms = reader.integer("kafkaConsumer.pollTimeoutMs")
    if timeout_ms is not None:
        settings.setdefault("default.api.timeout.ms", str(timeout_ms))
    # A task reads one partition at a time, so larger fetches need little memory and save time.
    if settings.keys().isdisjoint(_FETCH_SIZES):
        settings[_FETCH_SIZES[0]] = str(_FETCH_BYTES)
    check_client_settings(settings, ConsumerSettings.from_options, reader.problems)
    return settings


# -- where to start and to end --------------------------------------------------------------------


def _starting(reader: OptionReader, *, is_stream: bool) -> OffsetBound:
    # These are the connector's defaults.
    default = LATEST if is_stream else EARLIEST
    return _bound(reader, "starting", default, refused=None if is_stream else LATEST)


def _ending(reader: OptionReader) -> OffsetBound:
    return _bound(reader, "ending", LATEST, refused=EARLIEST)


def _bound(reader: OptionReader, which: str, default: int, *, refused: int | None) -> OffsetBound:
    """Return the bound that the first of the three options sets.

    `refused` is the special offset that makes no sense here.
    """
    # The order of precedence is that of the connector (getKafkaOffsetRangeLimit). All three options
    # are parsed, so that a wrong one is reported even if another one takes precedence.
    bounds: list[OffsetBound] = []
    name = f"{which}Timestamp"
    # The connector passes negative times on to ListOffsets, where -1 is the latest offset and -2
    # the earliest. That would mislead, so they are rejected.
    time_ms = reader.integer(name, at_least=0)
    if time_ms is not None:
        bounds.append(OffsetBound(option=name, value=time_ms, is_time=True))
    name = f"{which}OffsetsByTimestamp"
    times = reader.parsed(name, parse_offsets)
    if times is not None:
        bounds.append(OffsetBound(option=name, value=times, is_time=True))
    name = f"{which}Offsets"
    offsets = reader.parsed(name, lambda text: _offsets(text, refused))
    if offsets is not None:
        bounds.append(OffsetBound(option=name, value=offsets))
    return bounds[0] if bounds else OffsetBound(option=name, value=default)


def _offsets(text: str, refused: int | None) -> int | dict[TopicPartition, int]:
    special = {"earliest": EARLIEST, "latest": LATEST}.get(text.strip().lower())
    value = parse_offsets(text, at_least=EARLIEST) if special is None else special
    given = (value,) if isinstance(value, int) else value.values()
    if refused == LATEST and LATEST in given:
        raise ValueError("a batch query cannot start at the latest offset; use earliest")
    if refused == EARLIEST and EARLIEST in given:
        raise ValueError("a query cannot end at the earliest offset; use latest")
    return value


def _group(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty; set the name of a group that no consumer uses")
    return text


def _strategy(text: str) -> TimestampStrategy:
    strategies: dict[str, TimestampStrategy] = {"error": "error", "latest": "latest"}
    if text.lower() not in strategies:
        raise ValueError("use error or latest")
    return strategies[text.lower()]


# -- names ----------------------------------------------------------------------------------------


def _misspelled(options: Mapping[str, str]) -> Iterator[str]:
    """Yield a problem for each unknown name that resembles an option."""
    for key in unknown_options(options, OPTIONS):
        nearest = nearest_option(key, OPTIONS)
        if nearest is not None:
            yield f"{key} is not an option of this source; did you mean {nearest}?"


def _warnings(
    options: Mapping[str, str], reader: OptionReader, *, is_stream: bool
) -> Iterator[str]:
    for key in unknown_options(options, OPTIONS):
        if nearest_option(key, OPTIONS) is None:
            # This is not an error, because Spark adds options of its own, such as path.
            yield f"{key} has no effect: it is not an option of this source"
    if not is_stream:
        # The connector, too, only warns about options of streams in a batch query.
        for name in _ONLY_STREAM:
            if reader.has(name):
                yield f"{name} has no effect: it is an option of streams"
