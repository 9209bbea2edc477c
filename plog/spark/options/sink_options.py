"""`SinkOptions`: the options of a query that writes with ``format("plog")``.

Names and rejected options are those of Spark's Kafka connector. Options that start with ``kafka.``
are settings of plog's producer. Unknown options have no effect, because Spark passes options of its
own to the sink; a name that resembles an option is an error. Pure.

Source: Spark 4.2 Structured Streaming + Kafka Integration Guide, KafkaSourceProvider.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from plog.client.settings import ConfigError, ProducerSettings
from plog.spark.options.option_names import (
    check_client_settings,
    client_settings,
    nearest_option,
    unknown_options,
)
from plog.spark.options.option_values import OptionReader

OPTIONS: Final = ("deduplicate", "includeHeaders", "topic")
"""The options of the sink, except those that start with ``kafka.``."""

_REJECTED: Final = {
    "key.serializer": "the column key is string or binary; convert it with cast or to_json",
    "value.serializer": "the column value is string or binary; convert it with cast or to_json",
    # All tasks would have the same id, with which producers fence each other (KIP-98).
    "transactional.id": "the sink writes without transactions; remove it",
}

# In the keys of notes, a slash follows the name, so it must not contain one.
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,100}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The options of one query; a `topic` replaces the column topic."""

    client: Mapping[str, str]
    """The settings of the producer, without the prefix ``kafka.``."""
    topic: str | None = None
    deduplicate: str | None = None
    """The name under which a stream notes what it has written; None: it may write rows twice."""


def read_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Return the options of a query. Raises ConfigError, which lists every problem."""
    reader = OptionReader(options)
    problems = reader.problems
    made = SinkOptions(
        client=_client_settings(options, problems),
        topic=reader.text("topic"),
        deduplicate=reader.parsed("deduplicate", _name),
    )
    if made.topic is not None and not made.topic.strip():
        problems.append("topic is empty: set the name of a topic, or remove the option")
    # Accepted because the connector accepts it; headers are written if the column exists.
    reader.boolean("includeHeaders", False)
    problems += _misspelled(options)
    if made.deduplicate is not None and not problems:
        # Settings that are wrong have been reported above, and cannot be parsed again.
        problems += _risks(made.client)
    if problems:
        raise ConfigError(problems)
    return made


def _client_settings(options: Mapping[str, str], problems: list[str]) -> dict[str, str]:
    settings = client_settings(options, _REJECTED, problems)
    check_client_settings(settings, ProducerSettings.from_options, problems)
    return settings


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError("use 1 to 100 letters, digits, and the characters . _ -")
    return text


def _risks(client: Mapping[str, str]) -> Iterator[str]:
    """Yield a problem for each setting with which the producer could lose or repeat records."""
    settings = ProducerSettings.from_options(client)
    # A leader's failure could remove records that are noted as written.
    if settings.acks != "all":
        yield f"kafka.acks={settings.acks}: deduplicate requires acks=all; remove it"
    # A request that the producer retries could append its records twice.
    elif not settings.enable_idempotence:
        yield (
            "kafka.enable.idempotence=false: deduplicate requires it; remove it, and do not set"
            " kafka.retries=0"
        )


def _misspelled(options: Mapping[str, str]) -> Iterator[str]:
    """Yield a problem for each unknown name that resembles an option."""
    for key in unknown_options(options, OPTIONS):
        nearest = nearest_option(key, OPTIONS)
        if nearest is not None:
            yield f"{key} is not an option of this sink; did you mean {nearest}?"
