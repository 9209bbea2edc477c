"""Settings of the network: listeners, connections, and the bounds on what clients may occupy.

A part of `BrokerConfig` (broker_config.py). Kafka's names, types, bounds and defaults; where one of
these is ours, the text says so. What a listener's text means is listener.py's business.
"""

from __future__ import annotations

from dataclasses import dataclass

from plog.settings import INT_MAX, KIB, MIB, MINUTE_MS, SECOND_MS, SettingType, setting
from plogd.config.listener import SECURITY_PROTOCOLS


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """Listeners and connections, requests."""

    listeners: tuple[str, ...] = setting(
        "listeners",
        ("PLAINTEXT://:9092",),
        "Where clients connect: `NAME://host:port`, an IPv6 address in brackets. No host means"
        " every interface, port 0 a free one. Names and ports are unique, except that one IPv4 and"
        " one IPv6 address may share a port.",
        importance="high",
        group="Listeners and connections",
    )
    advertised_listeners: tuple[str, ...] | None = setting(
        "advertised.listeners",
        None,
        "The addresses clients are told to use, by listener name. A listener without one advertises"
        " the address and port the asking client itself has connected to.",
        type=SettingType.LIST,
        importance="high",
    )
    listener_security_protocol_map: str = setting(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Security protocol of each listener name: `PLAINTEXT`, or `SSL` for TLS. Those of SASL are"
        " not served yet: a listener that asks for one keeps the broker from starting.",
        importance="low",
    )
    inter_broker_listener_name: str | None = setting(
        "inter.broker.listener.name",
        None,
        "The listener that brokers use among themselves, one of `listeners`. It is checked, and"
        " has nothing to do yet: there is one broker.",
        type=SettingType.STRING,
    )
    security_inter_broker_protocol: str = setting(
        "security.inter.broker.protocol",
        "PLAINTEXT",
        "Chooses that listener by its security protocol instead; not both.",
        one_of=SECURITY_PROTOCOLS,
    )
    controller_listener_names: tuple[str, ...] = setting(
        "controller.listener.names",
        (),
        "Listeners of these names are not opened: plog's controller needs none. Kafka requires it;"
        " here it only lets a Kafka file be used as it is.",
        importance="high",
    )
    socket_send_buffer_bytes: int = setting(
        "socket.send.buffer.bytes",
        100 * KIB,
        "SO_SNDBUF of client sockets; -1 leaves it to the system.",
        at_least=1,
        also=(-1,),
        unit="bytes",
        importance="high",
    )
    socket_receive_buffer_bytes: int = setting(
        "socket.receive.buffer.bytes",
        100 * KIB,
        "SO_RCVBUF of client sockets; -1 leaves it to the system.",
        at_least=1,
        also=(-1,),
        unit="bytes",
        importance="high",
    )
    socket_listen_backlog_size: int = setting(
        "socket.listen.backlog.size",
        4096,
        "Connections the kernel holds until they are accepted; `net.core.somaxconn` caps it. With"
        " Kafka's default of 50, some wait a minute when thousands come back at once.",
        at_least=1,
    )
    max_connections: int = setting(
        "max.connections",
        INT_MAX,
        "Open client connections of this broker; a further one is closed at once. Not 0, unlike"
        " Kafka's: nobody could connect any more to set it back.",
        at_least=1,
        update="cluster-wide",
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip",
        INT_MAX,
        "Open client connections from one address; a further one is closed at once. Not 0: Kafka"
        " allows that only beside `max.connections.per.ip.overrides`, which is not served yet.",
        at_least=1,
        update="cluster-wide",
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        10 * MINUTE_MS,
        "A connection that has been silent this long is closed; -1 never.",
        type=SettingType.LONG,
        at_least=1,
        also=(-1,),
        unit="ms",
        update="reload",
    )

    plog_connections_sweep_interval_ms: int = setting(
        "plog.connections.sweep.interval.ms",
        5 * SECOND_MS,
        "How often connections are looked for that are idle, too slow, or whose client has gone.",
        at_least=1,
        unit="ms",
        importance="low",
    )

    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes",
        100 * MIB,
        "Largest request; the connection that announces a larger one is closed.",
        at_least=1,
        unit="bytes",
        importance="high",
        group="Requests",
    )
    plog_request_max_elements: int = setting(
        "plog.request.max.elements",
        50_000,
        "Most elements (topics, partitions, groups, settings, …) one request may have, counted in"
        " all its arrays together; the connection that sends more is closed. Each of them takes"
        " a few bytes in the request, and memory and time a hundred times that in the broker.",
        at_least=10_000,
        importance="low",
    )
    plog_request_without_records_max_bytes: int = setting(
        "plog.request.without.records.max.bytes",
        16 * MIB,
        "Largest request that carries no records, which is every request but Produce; the"
        " connection that sends a larger one is closed.",
        at_least=MIB,
        unit="bytes",
        importance="low",
    )
    plog_response_max_bytes: int = setting(
        "plog.response.max.bytes",
        64 * MIB,
        "Largest response, not counting records, which are sent from their files; a request whose"
        " response would be larger gets POLICY_VIOLATION.",
        at_least=MIB,
        unit="bytes",
        importance="low",
    )
    queued_max_requests: int = setting(
        "queued.max.requests",
        500,
        "Produce requests of all connections that may wait for the disk or for followers; beyond"
        " that, each connection may have only one.",
        at_least=1,
        importance="high",
    )
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes",
        128 * MIB,
        "Memory for unfinished requests, counted as their bytes arrive, and for large requests"
        " without records until they are decoded. Three quarters are for requests over 1 MiB, the"
        " rest for all others. While it is used up, no more bytes of them are read, and connections"
        " whose requests take longer than 10 s to arrive are closed. -1 means no bound, which is"
        " Kafka's default; ours is not. At least `socket.request.max.bytes`.",
        type=SettingType.LONG,
        at_least=1,
        also=(-1,),
        unit="bytes",
    )
    plog_queued_max_response_bytes: int = setting(
        "plog.queued.max.response.bytes",
        64 * MIB,
        "Memory for responses of all connections that wait to be sent, without records that go from"
        " the file to the socket directly. While it is exceeded, no further request starts on a"
        " connection that has responses to send, and connections whose clients do not read theirs"
        " are closed. Responses that are being encoded may take as much again.",
        type=SettingType.LONG,
        at_least=MIB,
        unit="bytes",
        update="reload",
    )
    plog_produce_parked_max_bytes: int = setting(
        "plog.produce.parked.max.bytes",
        32 * MIB,
        "Memory for records of produce requests that cannot be appended yet, because their disk"
        " does not keep up or because they have to be validated or compressed again. One topic may"
        " take half of it. Beyond that, appends are refused with REQUEST_TIMED_OUT, and clients"
        " send them again. A batch that has to wait and is larger is refused for good.",
        type=SettingType.LONG,
        at_least=2 * MIB,
        unit="bytes",
        update="reload",
    )
    plog_response_buffer_max_bytes: int = setting(
        "plog.response.buffer.max.bytes",
        128 * KIB,
        "While more than this waits to be sent on a connection, no further request is read from"
        " it. Records that go from the file to the socket directly count 16 KiB each time.",
        at_least=64 * KIB,
        unit="bytes",
        update="reload",
    )
    plog_partial_request_timeout_ms: int = setting(
        "plog.partial.request.timeout.ms",
        30 * SECOND_MS,
        "A request must arrive within twice this time, at an even rate: a connection whose"
        " unfinished request has grown by less than half its size in this time, or by less than"
        " `plog.partial.request.min.rate.bytes` a second, is closed.",
        at_least=SECOND_MS,
        unit="ms",
        update="reload",
    )
    plog_partial_request_min_rate_bytes: int = setting(
        "plog.partial.request.min.rate.bytes",
        KIB,
        "Slowest a request may arrive, in bytes a second; see `plog.partial.request.timeout.ms`.",
        at_least=1,
        unit="bytes",
        update="reload",
    )
    plog_request_turn_max_requests: int = setting(
        "plog.request.turn.max.requests",
        64,
        "Requests of one connection that are handled before the others get their turn.",
        at_least=1,
        importance="low",
    )
    max_request_partition_size_limit: int = setting(
        "max.request.partition.size.limit",
        2000,
        "Most partitions that one answer to DescribeTopicPartitions tells of.",
        at_least=1,
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes",
        55 * MIB,
        "Largest answer to a fetch, whatever the client asks for; a first batch that is larger"
        " still goes out whole.",
        at_least=KIB,
        unit="bytes",
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots",
        1000,
        "Fetch sessions the broker remembers; with 0 every fetch names all its partitions.",
        at_least=0,
    )
    plog_fetch_session_max_partitions: int = setting(
        "plog.fetch.session.max.partitions",
        10_000,
        "Partitions one fetch session may have. A consumer of more names all its partitions in each"
        " fetch.",
        at_least=1,
        importance="low",
    )
    plog_fetch_sessions_max_partitions: int = setting(
        "plog.fetch.sessions.max.partitions",
        100_000,
        "Partitions all fetch sessions may have together, each about 500 bytes of memory. While"
        " there is no room, consumers name all their partitions in each fetch.",
        at_least=1,
        importance="low",
    )
    quota_window_num: int = setting(
        "quota.window.num",
        11,
        "A client's rate is measured over so many samples; see `quota.window.size.seconds` and"
        " docs/security.md.",
        at_least=1,
        importance="low",
    )
    quota_window_size_seconds: int = setting(
        "quota.window.size.seconds",
        1,
        "How long each sample of a client's rate is.",
        at_least=1,
        unit="s",
        importance="low",
    )
