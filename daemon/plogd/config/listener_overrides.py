"""``listener.name.<name>.ssl.…``: settings that one listener has for itself.

Pure. The listener's name stands in lower case there, as in Kafka, and whatever is set goes before
the setting of the same name without the prefix. Only the settings of TLS can be overridden yet.
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
    """The setting that `name` gives to one listener; None if it is no such name.

    >>> overridden_row("listener.name.outside.ssl.client.auth").name
    'ssl.client.auth'
    >>> overridden_row("listener.name.OUTSIDE.ssl.client.auth") is None
    True
    """
    listener, row_name = _split(name)
    if not listener or listener != listener.lower():
        return None
    return settings_of(TlsSettings).get(row_name)


def override_name(listener: Listener, name: str) -> str:
    """What the setting `name` is called for one listener alone."""
    return f"{_PREFIX}{listener.name.lower()}.{name}"


def tls_settings(
    listener: Listener, values: Mapping[str, Value], overrides: Mapping[str, Value]
) -> TlsSettings:
    """The settings of one listener out of everybody's `values` and the `overrides`, by name."""
    chosen: dict[str, Any] = {}
    for row in settings_of(TlsSettings).values():
        own_name = override_name(listener, row.name)
        chosen[row.attribute] = overrides.get(own_name, values[row.name])
    return TlsSettings(**chosen)


def overrides_of_nobody(
    overrides: Collection[str], listeners: Collection[Listener]
) -> Iterator[str]:
    """The names among `overrides` whose listener is not there."""
    names = {listener.name.lower() for listener in listeners}
    for name in overrides:
        if _split(name)[0] not in names:
            yield name


def _split(name: str) -> tuple[str, str]:
    """The listener and the setting's own name; two empty texts if the form is another."""
    if not name.startswith(_PREFIX):
        return "", ""
    listener, dot_ssl, rest = name.removeprefix(_PREFIX).rpartition(".ssl.")
    return listener, f"{dot_ssl}{rest}".removeprefix(".")
