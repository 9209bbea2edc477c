"""Names of options: the prefix of the client's settings, rejected ones, misspelled ones."""

from __future__ import annotations

import pytest

from plog.client.settings import ProducerSettings
from plog.spark.options.option_names import (
    check_client_settings,
    client_settings,
    nearest_option,
    unknown_options,
)

KNOWN = ("includeHeaders", "topic")


def test_client_settings_lose_their_prefix_in_any_case() -> None:
    problems: list[str] = []
    options = {"KAFKA.acks": "1", "topic": "t", "kafka.key.serializer": "x"}
    assert client_settings(options, {"key.serializer": "use cast"}, problems) == {"acks": "1"}
    assert problems == ["kafka.key.serializer is not supported: use cast"]


def test_problems_of_client_settings_name_the_option() -> None:
    problems: list[str] = []
    settings = {"bootstrap.servers": "a:1", "acks": "many"}
    check_client_settings(settings, ProducerSettings.from_options, problems)
    [problem] = problems
    assert problem.startswith("kafka.acks")


def test_unknown_options_exclude_known_ones_and_client_settings() -> None:
    options = {"TOPIC": "t", "kafka.acks": "1", "topics": "t", "path": "/x"}
    assert unknown_options(options, KNOWN) == ["topics", "path"]


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("topics", "topic"),
        ("includeheader", "includeHeaders"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
        ("path", None),
    ],
)
def test_nearest_option_is_one_that_the_key_resembles(key: str, nearest: str | None) -> None:
    assert nearest_option(key, KNOWN) == nearest
