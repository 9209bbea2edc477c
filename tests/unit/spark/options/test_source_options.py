"""The options of a query have the names, defaults and rules of Spark's Kafka connector."""

from __future__ import annotations

import pytest

from plog.settings import ConfigError
from plog.spark.options.offset_bound import EARLIEST, LATEST, OffsetBound
from plog.spark.options.source_options import OPTIONS, SourceOptions, read_source_options
from plog.types import TopicPartition

T0 = TopicPartition("t", 0)
BASE = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t"}


def batch(**options: str) -> SourceOptions:
    return read_source_options(BASE | options, is_stream=False)


def stream(**options: str) -> SourceOptions:
    return read_source_options(BASE | options, is_stream=True)


def problems(options: dict[str, str], *, is_stream: bool = False) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        read_source_options(options, is_stream=is_stream)
    return caught.value.problems


def test_defaults_are_those_of_the_connector() -> None:
    made = batch()
    assert made.client == {
        "bootstrap.servers": "b:9092",
        # A difference, because a task reads one partition at a time.
        "max.partition.fetch.bytes": "4194304",
    }
    assert made.topics.topics == ("t",)
    assert made.starting.value == EARLIEST
    assert made.ending.value == LATEST
    assert made.fail_on_data_loss
    assert not made.include_headers
    assert made.timestamp_strategy == "error"
    assert made.max_trigger_delay_ms == 900_000
    assert made.warnings == ()
    assert stream().starting.value == LATEST


@pytest.mark.parametrize("name", ["max.partition.fetch.bytes", "fetch.message.max.bytes"])
def test_size_of_a_fetch_can_be_set_by_either_name(name: str) -> None:
    client = batch(**{f"kafka.{name}": "1000"}).client
    assert client == {"bootstrap.servers": "b:9092", name: "1000"}


def test_every_option_is_accepted_in_lower_case() -> None:
    values = {
        "failondataloss": "false",
        "fetchoffset.numretries": "1",
        "fetchoffset.retryintervalms": "0",
        "groupidprefix": "mine",
        "includeheaders": "true",
        "kafkaconsumer.polltimeoutms": "70000",
        "maxrecordsperpartition": "3",
        "minpartitions": "4",
        "startingoffsets": '{"t":{"0":-2}}',
        "startingoffsetsbytimestamp": '{"t":{"0":5}}',
        "startingoffsetsbytimestampstrategy": "LATEST",
        "startingtimestamp": "6",
    }
    only_batch = {
        "endingoffsets": "latest",
        "endingoffsetsbytimestamp": '{"t":{"0":7}}',
        "endingtimestamp": "8",
        "maxbytesperpartition": "5",
        "pushfilters": "true",
    }
    only_stream = {
        "commitgroup": "lag",
        "maxbytespertrigger": "10",
        "maxoffsetspertrigger": "11",
        "maxtriggerdelay": "1m",
        "minoffsetspertrigger": "9",
    }
    names = {*values, *only_batch, *only_stream, "subscribe", "assign", "subscribepattern"}
    assert names == {name.lower() for name in OPTIONS}
    one = batch(**values, **only_batch)
    assert (one.fail_on_data_loss, one.include_headers) == (False, True)
    assert (one.max_records_per_partition, one.min_partitions) == (3, 4)
    assert one.max_bytes_per_partition == 5
    assert one.push_filters
    assert one.timestamp_strategy == "latest"
    assert one.client["default.api.timeout.ms"] == "70000"
    other = stream(**values, **only_stream)
    assert other.max_bytes_per_trigger == 10
    assert other.max_offsets_per_trigger == 11
    assert other.min_offsets_per_trigger == 9
    assert other.max_trigger_delay_ms == 60_000
    assert other.commit_group == "lag"
    assert one.warnings == other.warnings == ()


def test_time_has_precedence_over_offsets() -> None:
    options = {"startingoffsets": '{"t":{"0":4}}'}
    assert batch(**options).starting == OffsetBound(option="startingOffsets", value={T0: 4})
    options["startingoffsetsbytimestamp"] = '{"t":{"0":5}}'
    assert batch(**options).starting == OffsetBound(
        option="startingOffsetsByTimestamp", value={T0: 5}, is_time=True
    )
    options["startingtimestamp"] = "6"
    assert batch(**options).starting == OffsetBound(
        option="startingTimestamp", value=6, is_time=True
    )
    assert batch(endingoffsets="latest", endingtimestamp="7").ending == OffsetBound(
        option="endingTimestamp", value=7, is_time=True
    )


@pytest.mark.parametrize("text", ["latest", " LATEST ", '{"t":{"0":-1}}'])
def test_batch_cannot_start_at_the_latest_offset(text: str) -> None:
    [found] = problems(BASE | {"startingoffsets": text})
    assert "a batch query cannot start at the latest offset; use earliest" in found
    assert stream(startingoffsets=text).starting.value in (LATEST, {T0: LATEST})


@pytest.mark.parametrize("text", ["earliest", '{"t":{"0":-2}}'])
def test_query_cannot_end_at_the_earliest_offset(text: str) -> None:
    [found] = problems(BASE | {"endingoffsets": text})
    assert "a query cannot end at the earliest offset; use latest" in found


@pytest.mark.parametrize(
    "name", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp", "maxBytesPerPartition"]
)
def test_stream_rejects_options_of_batch_queries(name: str) -> None:
    value = {"endingOffsets": "latest", "endingOffsetsByTimestamp": "{}"}.get(name, "5")
    assert problems(BASE | {name.lower(): value}, is_stream=True) == (
        f"{name} is set: a stream has no end; remove it",
    )


def test_batch_ignores_options_of_streams_with_a_warning() -> None:
    assert batch(maxoffsetspertrigger="5").warnings == (
        "maxOffsetsPerTrigger has no effect: it is an option of streams",
    )


@pytest.mark.parametrize(
    "name",
    [
        "auto.offset.reset",
        "enable.auto.commit",
        "interceptor.classes",
        "key.deserializer",
        "value.deserializer",
    ],
)
def test_settings_that_the_connector_rejects_are_rejected(name: str) -> None:
    [found] = problems(BASE | {f"kafka.{name}": "earliest"})
    assert found.startswith(f"kafka.{name} is not supported: ")


def test_group_has_no_effect() -> None:
    options = BASE | {"kafka.group.id": "g"}
    assert "group.id" not in read_source_options(options, is_stream=False).client


def test_setting_overrides_the_poll_timeout() -> None:
    options = BASE | {"kafkaconsumer.polltimeoutms": "1", "kafka.default.api.timeout.ms": "80000"}
    made = read_source_options(options, is_stream=False)
    assert made.client["default.api.timeout.ms"] == "80000"


def test_misspelled_option_is_an_error_with_a_suggestion() -> None:
    assert problems(BASE | {"startingofsets": "earliest"}) == (
        "startingofsets is not an option of this source; did you mean startingOffsets?",
    )
    [servers, name] = problems({"subscribe": "t", "bootstrap.servers": "b:1"})
    assert servers.startswith("kafka.bootstrap.servers is not set")
    assert name.endswith("did you mean kafka.bootstrap.servers?")


def test_misspelled_setting_is_an_error_with_a_suggestion() -> None:
    [found] = problems(BASE | {"kafka.fetch.min.byte": "5"})
    assert found.startswith("kafka.fetch.min.byte ")
    assert found.endswith("did you mean fetch.min.bytes?")


def test_unrelated_option_is_a_warning() -> None:
    assert batch(path="/x").warnings == ("path has no effect: it is not an option of this source",)


def test_all_problems_are_listed_at_once() -> None:
    found = problems({"subscribe": "", "minpartitions": "0", "startingtimestamp": "-1"})
    assert [text.partition(":")[0].partition("=")[0] for text in found] == [
        "kafka.bootstrap.servers is not set",
        "subscribe",
        "startingTimestamp",
        "minPartitions",
    ]


def test_min_offsets_above_max_offsets_is_an_error() -> None:
    options = BASE | {"minoffsetspertrigger": "9", "maxoffsetspertrigger": "5"}
    assert problems(options, is_stream=True) == (
        "minOffsetsPerTrigger=9: is above maxOffsetsPerTrigger (5); lower it",
    )


def test_zero_lookups_are_refused() -> None:
    # As by the connector, which counts the first lookup, too.
    [found] = problems(BASE | {"fetchoffset.numretries": "0"}, is_stream=True)
    assert found == f"fetchOffset.numRetries=0: must be 1 to {2**63 - 1}"


@pytest.mark.parametrize("text", ["none", '{"t":{"0":-3}}', '{"t":[0]}'])
def test_invalid_offsets_are_refused(text: str) -> None:
    [found] = problems(BASE | {"startingoffsets": text})
    assert found.startswith(f"startingOffsets={text}: ")
