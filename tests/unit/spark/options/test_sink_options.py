"""Options of the sink are those of Spark's Kafka connector; wrong ones are all reported."""

from __future__ import annotations

import pytest

from plog.client.settings import ConfigError
from plog.spark.options.sink_options import read_sink_options

SERVERS = {"kafka.bootstrap.servers": "a:1"}


def problems(**options: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_sink_options(SERVERS | {key.replace("__", "."): options[key] for key in options})
    return list(caught.value.problems)


def test_settings_of_the_producer_lose_their_prefix() -> None:
    options = read_sink_options({"KAFKA.bootstrap.servers": "a:1", "kafka.linger.ms": "7"})
    assert options.client == {"bootstrap.servers": "a:1", "linger.ms": "7"}
    assert options.topic is None


def test_topic_is_found_in_any_case() -> None:
    assert read_sink_options({**SERVERS, "TOPIC": "t", "includeheaders": "true"}).topic == "t"


def test_options_of_spark_have_no_effect() -> None:
    others = {"path": "/x", "checkpointlocation": "/y", "queryname": "q", "subscribe": "t"}
    assert read_sink_options(SERVERS | others) == read_sink_options(SERVERS)


@pytest.mark.parametrize("name", ["key.serializer", "value.serializer", "transactional.id"])
def test_unsupported_setting_is_refused(name: str) -> None:
    [problem] = problems(**{f"kafka.{name}": "x"})
    assert problem.startswith(f"kafka.{name} is not supported: ")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("topics", "topic"),
        ("includeheader", "includeHeaders"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
    ],
)
def test_misspelled_option_is_reported_with_the_nearest(name: str, nearest: str) -> None:
    assert problems(**{name: "x"}) == [
        f"{name} is not an option of this sink; did you mean {nearest}?"
    ]


def test_every_problem_is_reported() -> None:
    found = problems(topic=" ", kafka__acks="many", includeheaders="yes")
    assert len(found) == 3
    assert {problem.split("=")[0].split(" ")[0] for problem in found} == {
        "topic",
        "kafka.acks",
        "includeHeaders",
    }


def test_servers_are_required() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers"):
        read_sink_options({})


@pytest.mark.parametrize("name", ["a", "orders.v2_x-1", "n" * 100])
def test_name_of_the_notes_is_read(name: str) -> None:
    assert read_sink_options(SERVERS | {"deduplicate": name}).deduplicate == name


@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", "é", "n" * 101])
def test_wrong_name_of_the_notes_is_refused(name: str) -> None:
    assert problems(deduplicate=name) == [
        f"deduplicate={name}: use 1 to 100 letters, digits, and the characters . _ -"
    ]


@pytest.mark.parametrize(
    ("setting", "value"),
    [("acks", "1"), ("acks", "0"), ("enable__idempotence", "false"), ("retries", "0")],
)
def test_settings_that_risk_duplicates_are_refused(setting: str, value: str) -> None:
    [problem] = problems(deduplicate="n", **{f"kafka__{setting}": value})
    assert "deduplicate requires" in problem


def test_settings_are_not_restricted_without_deduplication() -> None:
    assert read_sink_options(SERVERS | {"kafka.acks": "1"}).deduplicate is None


@pytest.mark.parametrize("value", ["all", "-1", "ALL"])
def test_acknowledgment_by_all_replicas_is_accepted(value: str) -> None:
    assert read_sink_options(SERVERS | {"deduplicate": "n", "kafka.acks": value})


def test_misspelled_deduplicate_is_reported() -> None:
    assert problems(deduplicated="x") == [
        "deduplicated is not an option of this sink; did you mean deduplicate?"
    ]
