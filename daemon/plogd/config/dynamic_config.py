"""Broker settings that clients change at run time: validation and the effective configuration.

The order of precedence is: values for this broker, values for all brokers, files and command line,
default. `overlay` applies the values in the metadata store to the static configuration;
`check_change` decides whether a client may change those values. controller/configs.py stores them
as text, and broker.py uses the effective configuration.

Source: Kafka 4.3 DynamicBrokerConfig.
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

# A sign is valid for Java's Integer.parseInt, too. Ten digits suffice for an int32, and converting
# thousands of digits would take long.
_NUMBER = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_SHOWN_CHARACTERS = 1_000
"""A value may have 32,767 bytes; a log line contains only its first characters."""
PROBLEMS_MAX = 20
"""Maximum number of problems in one error, because searching for the nearest name is slow."""


def broker_id_of(name: str) -> int:
    """Return the broker id in a resource name. Raises InvalidRequest if it is not a number."""
    if not _NUMBER.fullmatch(name):
        raise InvalidRequest(f"Broker id must be an integer, but it is: {name}")
    return int(name)


def overlay(static: BrokerConfig, dynamic: DynamicSettings) -> tuple[BrokerConfig, list[str]]:
    """Return the effective configuration, and the problems with values that cannot be used."""
    problems: list[str] = []
    cluster = _usable(dynamic.cluster, False, problems)
    broker = _usable(dynamic.broker, True, problems)
    values = cluster | broker
    # Without dynamic values, no copy is needed, and `static` stays None.
    if not values:
        return static, problems
    rows = settings_of(BrokerConfig)
    changes: dict[str, Any] = {rows[name].attribute: value for name, value in values.items()}
    # Unusable values are left out, so that DescribeConfigs does not show them as effective.
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
            # The value may have been valid in another version of plog, so it must not prevent
            # startup.
            problems.append(f"ignored a value set at run time: {error}")
    return values


def _value(name: str, text: str, one_broker: bool) -> Value:
    """Parse a value set by a client.

    Raises:
        InvalidConfig: the name is not a setting.
        InvalidRequest: clients cannot change the setting, or the value is invalid.
    """
    row = settings_of(BrokerConfig).get(name)
    if row is None:
        # Kafka accepts unknown names because plug-ins may read them; plog has no such plug-ins.
        raise InvalidConfig(why_unused(name))
    if not row.is_dynamic:
        remedy = "send SIGHUP" if row.update == "reload" else "restart the broker"
        raise InvalidRequest(
            f"cannot change {name} at run time; set it in the configuration file and {remedy}"
        )
    if not one_broker and row.update == "per-broker":
        raise InvalidRequest(
            f"Cannot update {name} at default cluster level, broker id must be specified"
        )
    try:
        return row.parse(text)
    except ValueError as error:
        # The client and the log receive this message.
        shown = "(hidden)" if row.sensitive else text
        raise InvalidRequest(f"{name}={shown}: {error}") from None


def check_change(
    config: BrokerConfig, old: Mapping[str, str], new: Mapping[str, str], *, one_broker: bool
) -> None:
    """Raise InvalidConfig or InvalidRequest unless the values may change from `old` to `new`.

    At most `PROBLEMS_MAX` problems are reported together. With `one_broker`, the values belong to
    the broker that uses `config`; otherwise, they belong to all brokers. The error codes are
    Kafka's.
    """
    errors: list[KafkaError] = []
    for name, text in new.items():
        if old.get(name) == text:
            # An invalid value that was set earlier must not prevent other changes.
            continue
        try:
            _value(name, text, one_broker)
        except KafkaError as error:
            errors.append(error)
            if len(errors) == PROBLEMS_MAX:
                break
    if errors:
        # A response has a single error code, so the first problem determines it.
        raise type(errors[0])("; ".join(map(str, errors)))
    dynamic = config.dynamic
    dynamic = dataclasses.replace(dynamic, **{"broker" if one_broker else "cluster": new})
    # Checked together: each value may be valid, but not their combination.
    effective, _ = overlay(config.static or config, dynamic)
    problems = [f"{name}: {problem}" for name, problem in cross_check(effective)]
    if problems:
        raise InvalidRequest("; ".join(problems))


def describe_cluster(config: BrokerConfig) -> list[ConfigEntry]:
    """Return the values set for all brokers, as DescribeConfigs shows them.

    They differ from the effective values if this broker has its own value.
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
        # `synonyms_of` also yields the values of the other levels.
        if synonym.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    ]


def describe_changes(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Return the differences between two sets of settings for the log, with secrets hidden.

    >>> describe_changes({"a": "1", "b": "2"}, {"a": "3"})
    'a=3, b removed'
    """
    rows = settings_of(BrokerConfig)
    changes = []
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            changes.append(f"{name} removed")
        elif old.get(name) != new[name]:
            # A value that was stored by another version may have an unknown name.
            secret = name in rows and rows[name].sensitive
            changes.append(f"{name}={'(hidden)' if secret else _shortened(new[name])}")
    return ", ".join(changes)


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
