"""Settings of a broker that clients change while it runs: what may be, and what it comes to.

Strongest first: set for this broker, set for all of them, the files and the command line, the
default. `overlay` makes the configuration in use of the lower two and what the metadata store
holds; `check_change` says whether a client may change that. Pure. The texts are kept by
controller/configs.py, the configuration is used by broker.py.

Source: Kafka 4.3 DynamicBrokerConfig. Kafka takes any name it does not know, for plug-ins; here
nobody would ever read it, so it is refused.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from plog.enums import ConfigSource
from plog.errors import InvalidConfig, InvalidRequest, KafkaError
from plog.settings import Value, settings_of
from plogd.config.broker_config import (
    BrokerConfig,
    DynamicSettings,
    cross_check,
    synonyms_of,
    why_unused,
)
from plogd.config.config_entry import ConfigEntry

_NUMBER = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_TOLD_CHARACTERS = 1_000
PROBLEMS_MAX = 20
"""So many are told at once: looking for the name that was meant takes its time."""


def broker_id_of(name: str) -> int:
    """The broker a resource's name means. Raises InvalidRequest if it is no number."""
    if not _NUMBER.fullmatch(name):
        raise InvalidRequest(f"Broker id must be an integer, but it is: {name}")
    return int(name)


def overlay(static: BrokerConfig, dynamic: DynamicSettings) -> tuple[BrokerConfig, list[str]]:
    """The configuration in use, and why some of `dynamic` has to be left out of it.

    What cannot be used was allowed once, by another version: it must not keep a broker from
    starting.
    """
    problems: list[str] = []
    cluster = _usable(dynamic.cluster, False, problems)
    broker = _usable(dynamic.broker, True, problems)
    values = cluster | broker
    if not values:
        return static, problems
    rows = settings_of(BrokerConfig)
    changes: dict[str, Any] = {rows[name].attribute: value for name, value in values.items()}
    used = DynamicSettings(
        cluster={name: dynamic.cluster[name] for name in cluster},
        broker={name: dynamic.broker[name] for name in broker},
    )
    return dataclasses.replace(static, dynamic=used, static=static, **changes), problems


def _usable(texts: Mapping[str, str], one_broker: bool, problems: list[str]) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for name, text in texts.items():
        try:
            values[name] = _value(name, text, one_broker)
        except KafkaError as error:
            problems.append(f"left out what was set at run time: {error}")
    return values


def _value(name: str, text: str, one_broker: bool) -> Value:
    """The value a client sets. Raises InvalidConfig for the name, InvalidRequest for the value."""
    row = settings_of(BrokerConfig).get(name)
    if row is None:
        raise InvalidConfig(why_unused(name))
    if not row.is_dynamic:
        then = "reload that (SIGHUP)" if row.update == "reload" else "restart the broker"
        raise InvalidRequest(
            f"{name} cannot be changed while the broker runs: put it into the file of settings"
            f" and {then}"
        )
    if not one_broker and row.update == "per-broker":
        raise InvalidRequest(
            f"Cannot update {name} at default cluster level, broker id must be specified"
        )
    try:
        return row.parse(text)
    except ValueError as error:
        shown = "(hidden)" if row.sensitive else text
        raise InvalidRequest(f"{name}={shown}: {error}") from None


def check_change(
    config: BrokerConfig, old: Mapping[str, str], new: Mapping[str, str], *, one_broker: bool
) -> None:
    """Raise InvalidConfig or InvalidRequest unless the settings may go from `old` to `new`.

    What is wrong is told at once, up to a bound. `one_broker` says whether they are those of the
    broker that uses `config`, or those of all brokers. The codes are Kafka's.
    """
    errors: list[KafkaError] = []
    for name, text in new.items():
        if old.get(name) == text:
            continue  # What was there before need not be right, to be able to change the rest.
        try:
            _value(name, text, one_broker)
        except KafkaError as error:
            errors.append(error)
            if len(errors) == PROBLEMS_MAX:
                break
    if errors:
        raise type(errors[0])("; ".join(map(str, errors)))
    dynamic = config.dynamic
    dynamic = dataclasses.replace(dynamic, **{"broker" if one_broker else "cluster": new})
    effective, _ = overlay(config.static or config, dynamic)
    problems = [f"{name}: {problem}" for name, problem in cross_check(effective)]
    if problems:
        raise InvalidRequest("; ".join(problems))


def describe_cluster(config: BrokerConfig) -> list[ConfigEntry]:
    """What is set for all brokers, as DescribeConfigs shows it: nothing that comes from elsewhere.

    A setting that was set for this broker, too, has another value here than in use.
    """
    rows = settings_of(BrokerConfig)
    return [
        ConfigEntry(
            name=synonym.name,
            value=synonym.value,
            source=synonym.source,
            read_only=False,
            sensitive=rows[name].sensitive,
            type=rows[name].type,
            documentation=rows[name].doc,
            synonyms=(synonym,),
        )
        for name in config.dynamic.cluster
        for synonym in synonyms_of(config, rows[name])
        if synonym.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    ]


def told_changes(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """What differs between two sets of settings, for the log; nothing that is secret.

    >>> told_changes({"a": "1", "b": "2"}, {"a": "3"})
    'a=3, b removed'
    """
    rows = settings_of(BrokerConfig)
    changes = []
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            changes.append(f"{name} removed")
        elif old.get(name) != new[name]:
            secret = name in rows and rows[name].sensitive
            changes.append(f"{name}={'(hidden)' if secret else _shortened(new[name])}")
    return ", ".join(changes)


def _shortened(text: str) -> str:
    return text if len(text) <= _TOLD_CHARACTERS else f"{text[:_TOLD_CHARACTERS]}..."
