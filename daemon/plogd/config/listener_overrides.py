"""``listener.name.<name>.ssl.…``: settings for a single listener.

The prefix contains the listener's name in lower case, as in Kafka. A prefixed setting takes
precedence over the same setting without the prefix. Only TLS settings can be overridden.
Source: Kafka 4.3 ListenerName.configPrefix, AbstractConfig.valuesWithPrefixOverride.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from plog.settings import Setting, Value, settings_of
from plogd.config.listener import Listener
from plogd.config.tls_settings import TlsSettings

_PREFIX = "listener.name."


def overridden_row(name: str) -> Setting | None:
    """Return the setting that `name` overrides for one listener, or None for other names.

    >>> overridden_row("listener.name.outside.ssl.client.auth").name
    'ssl.client.auth'
    >>> overridden_row("listener.name.OUTSIDE.ssl.client.auth") is None
    True
    """
    listener, row_name = _split(name)
    # Kafka looks the prefix up in lower case, so it would ignore such a name.
    if not listener or listener != listener.lower():
        return None
    return settings_of(TlsSettings).get(row_name)


def override_name(listener: Listener, name: str) -> str:
    """Return the prefixed name of the setting `name` for `listener`."""
    return f"{_PREFIX}{listener.name.lower()}.{name}"


def tls_settings(
    listener: Listener, values: Mapping[str, Value], overrides: Mapping[str, Value]
) -> TlsSettings:
    """Return one listener's settings, from the common `values` and the `overrides`."""
    chosen: dict[str, Any] = {}
    for row in settings_of(TlsSettings).values():
        own_name = override_name(listener, row.name)
        # Not `or`, because None and an empty list are values, too.
        chosen[row.attribute] = overrides.get(own_name, values[row.name])
    return TlsSettings(**chosen)


def overrides_without_listener(
    overrides: Collection[str], listeners: Collection[Listener]
) -> Iterator[str]:
    """Yield the names in `overrides` whose listener does not exist."""
    names = {listener.name.lower() for listener in listeners}
    for name in overrides:
        if _split(name)[0] not in names:
            yield name


def _split(name: str) -> tuple[str, str]:
    """Return the listener and the name without the prefix; two empty strings for other names."""
    if not name.startswith(_PREFIX):
        return "", ""
    # From the right, because the name of a listener can contain periods.
    listener, dot_ssl, rest = name.removeprefix(_PREFIX).rpartition(".ssl.")
    return listener, f"{dot_ssl}{rest}".removeprefix(".")
