"""The settings of every client: brokers, time limits, retries and connections.

They are part of `ClientSettings` (client.py). Names, types, bounds and defaults are Kafka's, unless
a description says otherwise. Source: Kafka 4.3 CommonClientConfigs, ClientUtils.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from plog.settings import INT_MAX, KIB, MINUTE_MS, SECOND_MS, SettingType, setting

DEFAULT_PORT = 9092

# The form is [scheme://]host[:port]; an IPv6 address must be in brackets.
_ADDRESS = re.compile(
    r"(?:(?P<scheme>[A-Za-z_]+)://)?"
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.%A-Za-z_-]+)\]|(?P<host>[^\s:/\[\],]+))"
    r"(?::(?P<port>[0-9]{1,5}))?",
    re.ASCII,
)


class Address(NamedTuple):
    """The address of a broker's listener."""

    host: str
    port: int


@dataclass(frozen=True, kw_only=True)
class CommonSettings:
    """The settings that all clients share, except the TLS and SASL settings."""

    bootstrap_servers: tuple[str, ...] = setting(
        "bootstrap.servers",
        (),
        "Brokers for the initial connection, as `host:port`; the client discovers the others"
        " through them. Required. List two or three brokers, so that the client can connect even"
        " if one of them is down. The default port is 9092; Kafka has no default.",
        importance="high",
        group="Brokers",
        aliases=("metadata.broker.list",),
    )
    client_id: str = setting(
        "client.id",
        "",
        "Name that identifies this client in brokers' logs, metrics and quotas.",
    )
    metadata_max_age_ms: int = setting(
        "metadata.max.age.ms",
        5 * MINUTE_MS,
        "Maximum age of topic and broker metadata; after that, the client refreshes it.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
        importance="low",
    )
    metadata_recovery_strategy: str = setting(
        "metadata.recovery.strategy",
        "rebootstrap",
        "What to do if no known broker is reachable. Accepted, but has no effect: the client always"
        " falls back to `bootstrap.servers`.",
        one_of=("rebootstrap", "none"),
        any_case=True,
        importance="low",
    )
    metadata_recovery_rebootstrap_trigger_ms: int = setting(
        "metadata.recovery.rebootstrap.trigger.ms",
        5 * MINUTE_MS,
        "Time without a response after which the client rebootstraps. Accepted, but has no"
        " effect; see `metadata.recovery.strategy`.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
        importance="low",
    )

    request_timeout_ms: int = setting(
        "request.timeout.ms",
        30 * SECOND_MS,
        "Maximum time to wait for the response to a request. After that, the connection is"
        " closed, and the request is retried or fails.",
        at_least=0,
        unit="ms",
        group="Time limits and retries",
    )
    default_api_timeout_ms: int = setting(
        "default.api.timeout.ms",
        MINUTE_MS,
        "Time limit for a call, including retries, unless the call has its own timeout.",
        at_least=0,
        unit="ms",
    )
    retries: int = setting(
        "retries",
        INT_MAX,
        "Maximum number of retries after a transient error; usually, a time limit is reached"
        " first.",
        at_least=0,
        at_most=INT_MAX,
        importance="low",
    )
    retry_backoff_ms: int = setting(
        "retry.backoff.ms",
        100,
        "Pause before a failed request is retried; it doubles with each failure.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
        importance="low",
    )
    retry_backoff_max_ms: int = setting(
        "retry.backoff.max.ms",
        SECOND_MS,
        "Maximum pause before a retry; each pause is randomized by 20 %.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
        importance="low",
    )

    reconnect_backoff_ms: int = setting(
        "reconnect.backoff.ms",
        50,
        "Pause before reconnecting to a broker after a failed attempt; it doubles with each"
        " failure, unless this setting is set and `reconnect.backoff.max.ms` is not.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
        importance="low",
        group="Connections",
    )
    reconnect_backoff_max_ms: int = setting(
        "reconnect.backoff.max.ms",
        SECOND_MS,
        "Maximum pause before reconnecting; up to 20 % is added at random.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
        importance="low",
    )
    socket_connection_setup_timeout_ms: int = setting(
        "socket.connection.setup.timeout.ms",
        10 * SECOND_MS,
        "Time limit for opening a connection; it doubles with each failure.",
        type=SettingType.LONG,
        at_least=1,
        unit="ms",
    )
    socket_connection_setup_timeout_max_ms: int = setting(
        "socket.connection.setup.timeout.max.ms",
        30 * SECOND_MS,
        "Maximum value to which `socket.connection.setup.timeout.ms` grows.",
        type=SettingType.LONG,
        at_least=1,
        unit="ms",
    )
    # Brokers close idle connections after 10 minutes by default. A client that closes them first
    # does not send a request on a connection that the broker is closing.
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        9 * MINUTE_MS,
        "How long a connection can be idle before the client closes it; -1 means never. By"
        " default, the client closes it shortly before the broker would.",
        type=SettingType.LONG,
        at_least=0,
        also=(-1,),
        unit="ms",
    )
    send_buffer_bytes: int = setting(
        "send.buffer.bytes",
        128 * KIB,
        "Size of the socket send buffer (SO_SNDBUF); -1 means the system default.",
        at_least=0,
        also=(-1,),
        unit="bytes",
    )
    receive_buffer_bytes: int = setting(
        "receive.buffer.bytes",
        64 * KIB,
        "Size of the socket receive buffer (SO_RCVBUF); -1 means the system default.",
        at_least=0,
        also=(-1,),
        unit="bytes",
    )

    @property
    def uses_controllers(self) -> bool:
        """Whether this client connects to KRaft controllers instead of brokers."""
        return False

    def bootstrap_addresses(self) -> tuple[Address, ...]:
        """Return the bootstrap addresses. Raises ValueError, which `from_options` reports."""
        return tuple(parse_address(server)[1] for server in self.bootstrap_servers)


def parse_address(text: str) -> tuple[str, Address]:
    """Return the security protocol before a server's address, or an empty string, and the address.

    >>> parse_address("SSL://[::1]:9093")
    ('SSL', Address(host='::1', port=9093))
    >>> parse_address("kafka.example.com")
    ('', Address(host='kafka.example.com', port=9092))
    """
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text} does not have the form host:port")
    port = int(match["port"] or DEFAULT_PORT)
    # Port 0 lets the system choose a port, which makes sense only for a server.
    if not 0 < port < 1 << 16:
        raise ValueError(f"{text}: invalid port {port}")
    return (match["scheme"] or "").upper(), Address(match["ipv6"] or match["host"], port)


def check_common(settings: CommonSettings, protocol: str) -> Iterator[tuple[str, str]]:
    """Yield conflicts between these settings, as (name of one of them, problem)."""
    # Admin clients can use bootstrap.controllers instead (KIP-919).
    if not settings.bootstrap_servers and not settings.uses_controllers:
        yield "bootstrap.servers", "set one or more brokers, as host:port"
    yield from check_servers("bootstrap.servers", settings.bootstrap_servers, protocol)


def check_servers(name: str, servers: Iterable[str], protocol: str) -> Iterator[tuple[str, str]]:
    """Yield problems with the addresses in the setting `name`."""
    for server in servers:
        try:
            scheme, _ = parse_address(server)
        except ValueError as error:
            yield name, str(error)
            continue
        # An address that was copied from a broker's `listeners` starts with a protocol.
        if scheme and scheme != protocol:
            yield name, f"{server} starts with {scheme}, but security.protocol is {protocol}"


def doubtful_common(settings: CommonSettings) -> Iterator[str]:
    """Yield a warning for each valid but probably unintended value."""
    for name, value, longest_name, longest in (
        (
            "retry.backoff.ms",
            settings.retry_backoff_ms,
            "retry.backoff.max.ms",
            settings.retry_backoff_max_ms,
        ),
        (
            "socket.connection.setup.timeout.ms",
            settings.socket_connection_setup_timeout_ms,
            "socket.connection.setup.timeout.max.ms",
            settings.socket_connection_setup_timeout_max_ms,
        ),
    ):
        if value > longest:
            yield f"{name}={value} exceeds {longest_name}={longest}, which limits it"
