"""Names of options, for source and sink: the client's settings, and names that are misspelled.

Options that start with ``kafka.`` are settings of plog's client. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from plog.client.settings import ConfigError
from plog.settings import nearest_name

KAFKA: Final = "kafka."
"""The prefix of the client's settings."""


def client_settings(
    options: Mapping[str, str], rejected: Mapping[str, str], problems: list[str]
) -> dict[str, str]:
    """Return the settings after ``kafka.``.

    Settings in `rejected` are added to `problems` instead, with the reason given there.
    """
    settings: dict[str, str] = {}
    for key, value in options.items():
        # Spark ignores the case of option names, and all settings of Kafka are in lower case.
        name = key.lower().removeprefix(KAFKA)
        if not key.lower().startswith(KAFKA):
            continue
        if name in rejected:
            problems.append(f"{KAFKA}{name} is not supported: {rejected[name]}")
        else:
            settings[name] = value
    return settings


def check_client_settings(
    settings: Mapping[str, str], parse: Callable[[Mapping[str, str]], object], problems: list[str]
) -> None:
    """Add the problems that the workers would find in `settings` when they `parse` them."""
    try:
        # Without this check, the query would fail only in its tasks, after Spark has retried them.
        parse(settings)
    except ConfigError as error:
        problems += [f"{KAFKA}{problem}" for problem in error.problems]


def unknown_options(options: Mapping[str, str], known: Collection[str]) -> list[str]:
    """Return the names that are neither in `known` nor settings of the client."""
    lower = {name.lower() for name in known}
    # `check_client_settings` reports misspelled settings of the client.
    keys = [key for key in options if not key.lower().startswith(KAFKA)]
    return [key for key in keys if key.lower() not in lower]


def nearest_option(key: str, known: Collection[str]) -> str | None:
    """Return the option in `known` that `key` resembles, or None."""
    names = {name.lower(): name for name in known}
    # The most frequent mistake: a setting of the client without its prefix.
    names["bootstrap.servers"] = f"{KAFKA}bootstrap.servers"
    nearest = nearest_name(key.lower(), names)
    return None if nearest is None else names[nearest]
