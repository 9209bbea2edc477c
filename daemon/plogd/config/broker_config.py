"""`BrokerConfig`: every setting of the broker, what they mean together, and how they are described.

The settings themselves stand in the files `*_settings.py` beside this one, one field each. Only
what has an effect stands there, because DescribeConfigs shows this table and must be true; Kafka's
other names are in known_settings.py. Reading files is config_loader.py's work; a topic's own
settings are in plogd/topic_config.py.

What clients set while the broker runs lies over the files' values: see dynamic_config.py.

A `BrokerConfig` that came through `load_config` holds only allowed values; one built by hand, as in
tests, is not checked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from plog.enums import ConfigSource
from plog.settings import Setting, Value, nearest_name, settings_of
from plogd.config.config_entry import ConfigEntry, ConfigSynonym
from plogd.config.general_settings import DEFAULT_DATA_DIR, GeneralSettings
from plogd.config.group_settings import GroupSettings
from plogd.config.known_settings import EARLIER_NAMES, KAFKA_4_NAMES, is_known_to_kafka
from plogd.config.listener import (
    Listener,
    advertised_listeners,
    bound_listeners,
    parse_protocol_map,
)
from plogd.config.listener_overrides import overridden_row, override_name, tls_settings
from plogd.config.log_settings import LogSettings
from plogd.config.network_settings import NetworkSettings
from plogd.config.offsets_settings import OffsetsSettings
from plogd.config.tls_settings import TlsSettings, check_tls


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicSettings:
    """What clients have set while brokers ran, as texts; `broker` is stronger than `cluster`."""

    cluster: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """For every broker."""
    broker: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """For this one alone."""

    @property
    def names(self) -> frozenset[str]:
        """Whatever is set on either level."""
        return frozenset(self.cluster) | frozenset(self.broker)


@dataclass(frozen=True, kw_only=True)
class BrokerConfig(
    OffsetsSettings, GroupSettings, LogSettings, TlsSettings, NetworkSettings, GeneralSettings
):
    """The settings of one broker; immutable, so a reload makes a new one."""

    # Names set in a file or on the command line, even if to the default. Not a setting itself.
    explicit: frozenset[str] = dataclasses.field(default=frozenset(), compare=False, repr=False)
    # What lies over the files' values, with what lies beneath it; neither is a setting.
    dynamic: DynamicSettings = dataclasses.field(
        default=DynamicSettings(), compare=False, repr=False
    )
    static: BrokerConfig | None = dataclasses.field(default=None, compare=False, repr=False)
    # Values one listener has for itself, by their whole names (listener_overrides.py).
    listener_overrides: Mapping[str, Value] = dataclasses.field(
        default_factory=dict, hash=False, repr=False
    )

    def value(self, row: Setting) -> Value:
        """The value of one setting."""
        value: Value = getattr(self, row.attribute)
        return value

    def is_set(self, row: Setting) -> bool:
        """Whether somebody has chosen this value."""
        return row.name in self.explicit or self.value(row) != row.default

    @property
    def data_dirs(self) -> tuple[str, ...]:
        """Where the partitions live: ``log.dirs``, or our default in the working directory."""
        return self.log_dirs or (DEFAULT_DATA_DIR,)

    def bound_listeners(self) -> tuple[Listener, ...]:
        """The listeners to open. Raises ValueError, which `cross_check` reports at the start."""
        protocols = parse_protocol_map(self.listener_security_protocol_map)
        return bound_listeners(self.listeners, protocols, self.controller_listener_names)

    def advertised_by_name(self) -> dict[str, Listener]:
        """``advertised.listeners`` by listener name, empty if it is not set; see `Listener`."""
        return advertised_listeners(
            self.advertised_listeners or (),
            self.bound_listeners(),
            parse_protocol_map(self.listener_security_protocol_map),
            self.controller_listener_names,
        )

    def tls_listeners(self) -> tuple[Listener, ...]:
        """The listeners to open that speak TLS."""
        return tuple(each for each in self.bound_listeners() if each.protocol == "SSL")

    def tls_of(self, listener: Listener) -> TlsSettings:
        """The settings of TLS as they are for one listener."""
        values = {row.name: self.value(row) for row in settings_of(TlsSettings).values()}
        return tls_settings(listener, values, self.listener_overrides)

    def name_for(self, listener: Listener, name: str) -> str:
        """The name a listener's value of the setting `name` has: its own, or everybody's."""
        own_name = override_name(listener, name)
        return own_name if own_name in self.listener_overrides else name

    def describe(self) -> list[ConfigEntry]:
        """Every setting as DescribeConfigs shows it, and after them those of single listeners."""
        entries = [self._describe(row) for row in settings_of(BrokerConfig).values()]
        return entries + [self._describe_override(name) for name in self.listener_overrides]

    def _describe_override(self, name: str) -> ConfigEntry:
        row = overridden_row(name)
        assert row is not None, "only what can be overridden is kept as an override"
        own = dataclasses.replace(row, name=name)
        value, source = own.shown(self.listener_overrides[name]), ConfigSource.STATIC_BROKER_CONFIG
        return ConfigEntry(
            name=name,
            value=value,
            source=source,
            read_only=not row.is_dynamic,
            sensitive=row.sensitive,
            type=row.type,
            documentation=row.doc,
            synonyms=(
                ConfigSynonym(name=name, value=value, source=source),
                *synonyms_of(self, row),
            ),
        )

    def _describe(self, row: Setting) -> ConfigEntry:
        synonyms = tuple(synonyms_of(self, row))
        return ConfigEntry(
            name=row.name,
            value=row.shown(self.value(row)),
            source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
            read_only=not row.is_dynamic,
            sensitive=row.sensitive,
            type=row.type,
            documentation=row.doc,
            synonyms=synonyms,
        )


def synonyms_of(config: BrokerConfig, row: Setting) -> Iterator[ConfigSynonym]:
    """The values somebody set, strongest first, then the default if it is not null, as in Kafka."""
    for texts, source in (
        (config.dynamic.broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (config.dynamic.cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
    ):
        if row.name in texts:
            value = row.shown(row.parse(texts[row.name]))
            yield ConfigSynonym(name=row.name, value=value, source=source)
    static = config.static or config
    if static.is_set(row):
        yield ConfigSynonym(
            name=row.name,
            value=row.shown(static.value(row)),
            source=ConfigSource.STATIC_BROKER_CONFIG,
        )
    if row.default is not None:
        yield ConfigSynonym(
            name=row.name, value=row.shown(row.default), source=ConfigSource.DEFAULT_CONFIG
        )


def why_unused(name: str) -> str:
    """Why a name that is in no table has no effect, with the nearest one if it may be misspelt."""
    if overridden_row(name) is not None:
        return f"{name} can be set in a file of settings only"
    if is_known_to_kafka(name):
        return f"{name} is known to Kafka, not used by plog yet"
    nearest = nearest_name(name, [*settings_of(BrokerConfig), *KAFKA_4_NAMES, *EARLIER_NAMES])
    hint = f"; did you mean {nearest}?" if nearest else ""
    return f"{name} is not a setting{hint}"


def cross_check(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    """What only several settings together make wrong, as (name of one of them, problem)."""
    if config.log_dirs == ():
        yield "log.dirs", "names no directory"
    if 0 < config.queued_max_request_bytes < config.socket_request_max_bytes:
        yield (
            "queued.max.request.bytes",
            "a request of socket.request.max.bytes"
            f" ({config.socket_request_max_bytes}) would never fit",
        )
    if config.group_max_session_timeout_ms < config.group_min_session_timeout_ms:
        yield (
            "group.max.session.timeout.ms",
            f"is below group.min.session.timeout.ms ({config.group_min_session_timeout_ms})",
        )
    yield from _check_listeners(config)


def _check_listeners(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    # Each step needs the one before it, so only the first problem is told.
    try:
        parse_protocol_map(config.listener_security_protocol_map)
    except ValueError as error:
        yield "listener.security.protocol.map", str(error)
        return
    try:
        config.bound_listeners()
    except ValueError as error:
        yield "listeners", str(error)
        return
    try:
        config.advertised_by_name()
    except ValueError as error:
        yield "advertised.listeners", str(error)
    yield from _check_inter_broker_listener(config)
    yield from _check_tls(config)


def _check_inter_broker_listener(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    name = config.inter_broker_listener_name
    if not name:
        return
    if "security.inter.broker.protocol" in config.explicit:
        yield (
            "inter.broker.listener.name",
            "security.inter.broker.protocol is set as well: only one of the two can choose",
        )
    elif name.upper() not in {listener.name for listener in config.bound_listeners()}:
        yield "inter.broker.listener.name", "is not the name of a listener in listeners"


def _check_tls(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    # Two listeners share what is wrong with their common settings.
    told = set()
    for listener in config.tls_listeners():
        for name, problem in check_tls(config.tls_of(listener)):
            found = (config.name_for(listener, name), problem)
            if found not in told:
                told.add(found)
                yield found
