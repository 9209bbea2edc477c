"""`BrokerConfig`: all settings of the broker, cross-checks between them, and their descriptions.

The `*_settings.py` files of this package declare the settings, one field each. They declare only
settings that plog uses or accepts deliberately, because DescribeConfigs shows them; Kafka's other
names are in known_settings.py. config_loader.py reads files, dynamic_config.py applies values set
by clients, and plogd/topic_config.py declares the topic settings.

`load_config` validates the values of a `BrokerConfig`; the constructor, which tests call, does not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from plog.enums import ConfigSource
from plog.settings import Setting, Value, nearest_name, settings_of
from plogd.config.cleaner_settings import CleanerSettings
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
from plogd.config.metadata_log_settings import MetadataLogSettings
from plogd.config.network_settings import NetworkSettings
from plogd.config.offsets_settings import OffsetsSettings
from plogd.config.replication_settings import ReplicationSettings
from plogd.config.tls_settings import TlsSettings, check_tls
from plogd.config.zookeeper_settings import ZooKeeperSettings, check_zookeeper


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicSettings:
    """Values set by clients at run time, as text; `broker` takes precedence over `cluster`."""

    cluster: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Values for all brokers."""
    broker: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Values for this broker only."""

    @property
    def names(self) -> frozenset[str]:
        """Return the names set at either level."""
        return frozenset(self.cluster) | frozenset(self.broker)


# Without slots, because a class cannot inherit from several classes with slots. A dataclass takes
# the fields of its bases in reverse order, so the docs begin with GeneralSettings.
@dataclass(frozen=True, kw_only=True)
class BrokerConfig(
    ReplicationSettings,
    OffsetsSettings,
    GroupSettings,
    ZooKeeperSettings,
    MetadataLogSettings,
    CleanerSettings,
    LogSettings,
    TlsSettings,
    NetworkSettings,
    GeneralSettings,
):
    """The settings of one broker; immutable, so a reload creates a new instance."""

    # Names set in a file or on the command line, even if set to the default value. This field is
    # not a setting.
    explicit: frozenset[str] = dataclasses.field(default=frozenset(), compare=False, repr=False)
    # The directory that the service manager provides for data; used if log.dirs is not set.
    state_directory: str | None = dataclasses.field(default=None, compare=False, repr=False)
    # The values set by clients, and the configuration without them. Neither field is a setting.
    dynamic: DynamicSettings = dataclasses.field(
        default=DynamicSettings(), compare=False, repr=False
    )
    static: BrokerConfig | None = dataclasses.field(default=None, compare=False, repr=False)
    # Values for single listeners by full name, including the prefix (listener_overrides.py).
    listener_overrides: Mapping[str, Value] = dataclasses.field(
        default_factory=dict, hash=False, repr=False
    )

    def value(self, row: Setting) -> Value:
        """Return the value of one setting."""
        value: Value = getattr(self, row.attribute)
        return value

    def is_set(self, row: Setting) -> bool:
        """Return whether the value was set explicitly or differs from the default."""
        # The constructor, which tests call, does not know which names are explicit.
        return row.name in self.explicit or self.value(row) != row.default

    @property
    def data_dirs(self) -> tuple[str, ...]:
        """Return ``log.dirs``; if it is not set, the service manager's directory or the default."""
        return self.log_dirs or (self.state_directory or DEFAULT_DATA_DIR,)

    def bound_listeners(self) -> tuple[Listener, ...]:
        """Return the listeners to open.

        Raises:
            ValueError: a listener is invalid; `cross_check` reports this at startup.
        """
        protocols = parse_protocol_map(self.listener_security_protocol_map)
        return bound_listeners(self.listeners, protocols, self.controller_listener_names)

    @property
    def has_embedded_store(self) -> bool:
        """Return whether this is a single broker that stores the metadata itself."""
        return self.plog_metadata_store == "embedded"

    @property
    def lacks_node_id(self) -> bool:
        """Return whether this broker gets its id from ZooKeeper (node_id.py)."""
        is_set = "node.id" in self.explicit and self.node_id >= 0
        return not self.has_embedded_store and not is_set

    @property
    def used_inter_broker_listener_name(self) -> str:
        """Return the name of the listener that brokers use between each other."""
        # As in Kafka, a listener is named after its protocol if no name is set.
        return (self.inter_broker_listener_name or self.security_inter_broker_protocol).upper()

    def inter_broker_listener(self) -> Listener | None:
        """Return the listener for other brokers; None if a single broker does not have it."""
        name = self.used_inter_broker_listener_name
        return next((each for each in self.bound_listeners() if each.name == name), None)

    def advertised_by_name(self) -> dict[str, Listener]:
        """Return ``advertised.listeners`` by listener name; empty if not set. See `Listener`."""
        return advertised_listeners(
            self.advertised_listeners or (),
            self.bound_listeners(),
            parse_protocol_map(self.listener_security_protocol_map),
            self.controller_listener_names,
        )

    def tls_listeners(self) -> tuple[Listener, ...]:
        """Return the listeners to open that use TLS."""
        return tuple(each for each in self.bound_listeners() if each.protocol == "SSL")

    def tls_of(self, listener: Listener) -> TlsSettings:
        """Return the TLS settings in effect for one listener."""
        values = {row.name: self.value(row) for row in settings_of(TlsSettings).values()}
        return tls_settings(listener, values, self.listener_overrides)

    def name_for(self, listener: Listener, name: str) -> str:
        """Return the name under which `listener` gets the setting: with its prefix or without."""
        own_name = override_name(listener, name)
        return own_name if own_name in self.listener_overrides else name

    def describe(self) -> list[ConfigEntry]:
        """Return all settings as DescribeConfigs shows them, then the listener overrides."""
        entries = [self._describe(row) for row in settings_of(BrokerConfig).values()]
        return entries + [self._describe_override(name) for name in self.listener_overrides]

    def _describe_override(self, name: str) -> ConfigEntry:
        row = overridden_row(name)
        assert row is not None, "listener_overrides holds only settings that can be overridden"
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
    """Yield the values set for `row`, highest precedence first, then the default."""
    for texts, source in (
        (config.dynamic.broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (config.dynamic.cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
    ):
        if row.name in texts:
            # Parsed first, so that the value has the same form as one from a file.
            value = row.shown(row.parse(texts[row.name]))
            yield ConfigSynonym(name=row.name, value=value, source=source)
    # In a configuration with dynamic values, `is_set` cannot tell where a value comes from.
    static = config.static or config
    if static.is_set(row):
        yield ConfigSynonym(
            name=row.name,
            value=row.shown(static.value(row)),
            source=ConfigSource.STATIC_BROKER_CONFIG,
        )
    # As in Kafka, null defaults are omitted.
    if row.default is not None:
        yield ConfigSynonym(
            name=row.name, value=row.shown(row.default), source=ConfigSource.DEFAULT_CONFIG
        )


def why_unused(name: str) -> str:
    """Return why an unused name has no effect, with the nearest known name if one exists."""
    # The name is valid in a file, so Kafka's list of names would give a wrong reason.
    if overridden_row(name) is not None:
        return f"{name} can only be set in a configuration file"
    if is_known_to_kafka(name):
        return f"{name} is a Kafka setting that plog does not use yet"
    # Also among Kafka's unused names: a misspelled one must not suggest an unrelated setting.
    nearest = nearest_name(name, [*settings_of(BrokerConfig), *KAFKA_4_NAMES, *EARLIER_NAMES])
    hint = f"; did you mean {nearest}?" if nearest else ""
    return f"{name} is not a setting{hint}"


def cross_check(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    """Yield problems that involve several settings, as (name of one of the settings, problem)."""
    # None means the default, whereas an empty list is a mistake.
    if config.log_dirs == ():
        yield "log.dirs", "does not contain any directories"
    # Kafka also requires this: a request of the maximum size must fit.
    if 0 < config.queued_max_request_bytes < config.socket_request_max_bytes:
        yield (
            "queued.max.request.bytes",
            f"is below socket.request.max.bytes ({config.socket_request_max_bytes})",
        )
    if config.group_max_session_timeout_ms < config.group_min_session_timeout_ms:
        yield (
            "group.max.session.timeout.ms",
            f"is below group.min.session.timeout.ms ({config.group_min_session_timeout_ms})",
        )
    yield from check_zookeeper(
        config,
        is_used=not config.has_embedded_store,
        explicit=config.explicit,
        node_id=config.node_id,
    )
    yield from _check_replication(config)
    yield from _check_listeners(config)


def _check_replication(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    # As in Kafka: otherwise, followers with nothing to fetch would time out or leave the ISR.
    wait_ms = config.replica_fetch_wait_max_ms
    for name, limit_ms in (
        ("replica.socket.timeout.ms", config.replica_socket_timeout_ms),
        ("replica.lag.time.max.ms", config.replica_lag_time_max_ms),
    ):
        if limit_ms < wait_ms:
            yield name, f"is below replica.fetch.wait.max.ms ({wait_ms})"


def _check_listeners(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    # Each step needs the result of the previous one, so only the first problem is reported.
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
        # A single broker with the embedded store does not need the listener.
        if not config.has_embedded_store and config.inter_broker_listener() is None:
            yield (
                "security.inter.broker.protocol",
                f"listeners has no listener {config.used_inter_broker_listener_name} for other"
                " brokers; add it, or set inter.broker.listener.name",
            )
        return
    if "security.inter.broker.protocol" in config.explicit:
        yield (
            "inter.broker.listener.name",
            "cannot be combined with security.inter.broker.protocol; set only one of them",
        )
    elif name.upper() not in {listener.name for listener in config.bound_listeners()}:
        yield "inter.broker.listener.name", "is not the name of a listener in listeners"


def _check_tls(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    # Report a problem only once if several listeners share the settings.
    reported = set()
    for listener in config.tls_listeners():
        for name, problem in check_tls(config.tls_of(listener)):
            found = (config.name_for(listener, name), problem)
            if found not in reported:
                reported.add(found)
                yield found
