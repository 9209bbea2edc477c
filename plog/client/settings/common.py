"""Settings of every client: which brokers, how long to wait for them, how soon to try again.

A part of `ClientSettings` (client.py). Kafka's names, types, bounds and defaults; where
one of these is ours, the text says so. Source: Kafka 4.3 CommonClientConfigs, ClientUtils.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from plog.settings import INT_MAX, KIB, MINUTE_MS, SECOND_MS, SettingType, setting

DEFAULT_PORT = 9092

# [scheme://]host[:port], an IPv6 address in brackets if a port follows.
_ADDRESS = re.compile(
    r"(?:(?P<scheme>[A-Za-z_]+)://)?"
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.%A-Za-z_-]+)\]|(?P<host>[^\s:/\[\],]+))"
    r"(?::(?P<port>[0-9]{1,5}))?",
    re.ASCII,
)


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int


@dataclass(frozen=True, kw_only=True)
class CommonSettings:
    """Brokers, time limits, connections."""

    bootstrap_servers: tuple[str, ...] = setting(
        "bootstrap.servers",
        (),
        "Brokers to ask first, as `host:port`; the others are learned from them. Needed. Name two"
        " or three, so that one may be down. Without a port, 9092 is meant, which Kafka does not"
        " assume.",
        importance="high",
        group="Brokers",
        aliases=("metadata.broker.list",),
    )
    client_id: str = setting(
        "client.id",
        "",
        "A name for this client, by which brokers' logs, metrics and quotas know it.",
    )
    metadata_max_age_ms: int = setting(
        "metadata.max.age.ms",
        5 * MINUTE_MS,
        "What is known of topics and brokers is asked for again when it is this old.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
        importance="low",
    )
    metadata_recovery_strategy: str = setting(
        "metadata.recovery.strategy",
        "rebootstrap",
        "What to do when no known broker can be reached: begin again with `bootstrap.servers`, or"
        " `none`.",
        one_of=("rebootstrap", "none"),
        any_case=True,
        importance="low",
    )
    metadata_recovery_rebootstrap_trigger_ms: int = setting(
        "metadata.recovery.rebootstrap.trigger.ms",
        5 * MINUTE_MS,
        "With `rebootstrap`: begin again also when no broker has answered for this long.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
        importance="low",
    )

    request_timeout_ms: int = setting(
        "request.timeout.ms",
        30 * SECOND_MS,
        "How long a broker may take to answer; then the connection is closed and the request is"
        " tried again or fails.",
        at_least=0,
        unit="ms",
        group="Time limits and retries",
    )
    default_api_timeout_ms: int = setting(
        "default.api.timeout.ms",
        MINUTE_MS,
        "How long a call may take in all, retries included, if it is not given a limit of its own.",
        at_least=0,
        unit="ms",
    )
    retries: int = setting(
        "retries",
        INT_MAX,
        "How often a request is sent again after an error that may pass; as a rule the time limits"
        " end it sooner.",
        at_least=0,
        at_most=INT_MAX,
        importance="low",
    )
    retry_backoff_ms: int = setting(
        "retry.backoff.ms",
        100,
        "Pause before a failed request is tried again; it doubles with each failure.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
        importance="low",
    )
    retry_backoff_max_ms: int = setting(
        "retry.backoff.max.ms",
        SECOND_MS,
        "Longest such pause; each is up to a fifth longer or shorter by chance.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
        importance="low",
    )

    reconnect_backoff_ms: int = setting(
        "reconnect.backoff.ms",
        50,
        "Pause before a broker that could not be reached is tried again; it doubles with each"
        " failure, unless this is set and `reconnect.backoff.max.ms` is not.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
        importance="low",
        group="Connections",
    )
    reconnect_backoff_max_ms: int = setting(
        "reconnect.backoff.max.ms",
        SECOND_MS,
        "Longest such pause, but for up to a fifth more by chance.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
        importance="low",
    )
    socket_connection_setup_timeout_ms: int = setting(
        "socket.connection.setup.timeout.ms",
        10 * SECOND_MS,
        "How long a connection may take to open; doubled after each that did not.",
        type=SettingType.LONG,
        at_least=1,
        unit="ms",
    )
    socket_connection_setup_timeout_max_ms: int = setting(
        "socket.connection.setup.timeout.max.ms",
        30 * SECOND_MS,
        "Most that `socket.connection.setup.timeout.ms` may grow to.",
        type=SettingType.LONG,
        at_least=1,
        unit="ms",
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        9 * MINUTE_MS,
        "A connection without requests is closed after this long, a little before the broker would;"
        " -1 never.",
        type=SettingType.LONG,
        at_least=0,
        also=(-1,),
        unit="ms",
    )
    send_buffer_bytes: int = setting(
        "send.buffer.bytes",
        128 * KIB,
        "SO_SNDBUF of the sockets; -1 leaves it to the system.",
        at_least=0,
        also=(-1,),
        unit="bytes",
    )
    receive_buffer_bytes: int = setting(
        "receive.buffer.bytes",
        64 * KIB,
        "SO_RCVBUF of the sockets; -1 leaves it to the system.",
        at_least=0,
        also=(-1,),
        unit="bytes",
    )

    @property
    def uses_controllers(self) -> bool:
        """Whether this client talks to the controllers of a KRaft quorum, not to brokers."""
        return False

    def bootstrap_addresses(self) -> tuple[Address, ...]:
        """Those to ask first as addresses. Raises ValueError, which `from_options` reports."""
        return tuple(parse_address(server)[1] for server in self.bootstrap_servers)


def parse_address(text: str) -> tuple[str, Address]:
    """The security protocol a server's text begins with, empty if with none, and its address.

    >>> parse_address("SSL://[::1]:9093")
    ('SSL', Address(host='::1', port=9093))
    >>> parse_address("kafka.example.com")
    ('', Address(host='kafka.example.com', port=9092))
    """
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text} is not of the form host:port")
    port = int(match["port"] or DEFAULT_PORT)
    if not 0 < port < 1 << 16:
        raise ValueError(f"{text}: there is no port {port}")
    return (match["scheme"] or "").upper(), Address(match["ipv6"] or match["host"], port)


def check_common(settings: CommonSettings, protocol: str) -> Iterator[tuple[str, str]]:
    """What is wrong with these settings together, as (name of one of them, problem)."""
    if not settings.bootstrap_servers and not settings.uses_controllers:
        yield "bootstrap.servers", "name one or more brokers, as host:port"
    yield from check_servers("bootstrap.servers", settings.bootstrap_servers, protocol)


def check_servers(name: str, servers: Iterable[str], protocol: str) -> Iterator[tuple[str, str]]:
    """What is wrong with the addresses in the setting `name`."""
    for server in servers:
        try:
            scheme, _ = parse_address(server)
        except ValueError as error:
            yield name, str(error)
            continue
        if scheme and scheme != protocol:
            yield name, f"{server} begins with {scheme}, but security.protocol is {protocol}"


def doubtful_common(settings: CommonSettings) -> Iterator[str]:
    """What is allowed and hardly meant, a line each."""
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
            yield f"{name}={value} is above {longest_name}={longest}, which is what counts then"
