"""Network settings: listeners, connections, and limits on requests and responses.

`BrokerConfig` (broker_config.py) inherits them. Names, types, bounds and defaults are Kafka's
unless the text says otherwise. listener.py parses the values that define listeners.
"""

from __future__ import annotations

from dataclasses import dataclass

from plog.settings import INT_MAX, KIB, MIB, MINUTE_MS, SECOND_MS, SettingType, setting
from plogd.config.listener import SECURITY_PROTOCOLS


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """The part of `BrokerConfig` for the network."""

    listeners: tuple[str, ...] = setting(
        "listeners",
        ("PLAINTEXT://:9092",),
        "Addresses to which clients connect, in the form `NAME://host:port`, with an IPv6 address"
        " in brackets. An empty host means all interfaces; port 0 means any free port. Names and"
        " ports must be unique, except that one IPv4 and one IPv6 address may share a name and"
        " port.",
        importance="high",
        group="Listeners and connections",
    )
    advertised_listeners: tuple[str, ...] | None = setting(
        "advertised.listeners",
        None,
        "Addresses that clients use to connect, by listener name. A listener without an"
        " advertised address advertises the address and port to which the requesting client"
        " connected.",
        type=SettingType.LIST,
        importance="high",
    )
    listener_security_protocol_map: str = setting(
        "listener.security.protocol.map",
        # The order is that of Kafka's default, which clients see in DescribeConfigs.
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Security protocol of each listener name: `PLAINTEXT`, or `SSL` for TLS. SASL is not"
        " supported yet: the broker does not start if a listener uses it.",
        importance="low",
    )
    inter_broker_listener_name: str | None = setting(
        "inter.broker.listener.name",
        None,
        "Listener used between brokers; must be one of `listeners`. The value is validated but"
        " has no effect while a cluster has only one broker.",
        type=SettingType.STRING,
    )
    security_inter_broker_protocol: str = setting(
        "security.inter.broker.protocol",
        "PLAINTEXT",
        "Security protocol of the listener used between brokers; cannot be combined with"
        " `inter.broker.listener.name`. The setting has no effect while a cluster has only one"
        " broker.",
        one_of=SECURITY_PROTOCOLS,
    )
    controller_listener_names: tuple[str, ...] = setting(
        "controller.listener.names",
        (),
        "Names of listeners that the broker does not open. Kafka requires controller listeners;"
        " plog's controller does not need a listener, so this setting exists only so that a Kafka"
        " configuration file can be used unchanged.",
        importance="high",
    )
    socket_send_buffer_bytes: int = setting(
        "socket.send.buffer.bytes",
        -1,  # docs/decisions/0017.
        "SO_SNDBUF of client sockets. With -1, the kernel adapts the size to each connection; Kafka"
        " sets 102400 by default.",
        at_least=1,
        also=(-1,),
        unit="bytes",
        importance="high",
    )
    plog_socket_unsent_max_bytes: int = setting(
        "plog.socket.unsent.max.bytes",
        128 * KIB,
        "TCP_NOTSENT_LOWAT of client sockets: the kernel accepts no more bytes of responses while"
        " this number of them has not been sent, because the client does not read them. It limits"
        " the kernel's memory for each connection.",
        at_least=16 * KIB,
        unit="bytes",
        importance="low",
    )
    socket_receive_buffer_bytes: int = setting(
        "socket.receive.buffer.bytes",
        -1,  # docs/decisions/0017.
        "SO_RCVBUF of client sockets. With -1, the kernel adapts the size to each connection,"
        " within `net.ipv4.tcp_rmem`; Kafka sets 102400 by default.",
        at_least=1,
        also=(-1,),
        unit="bytes",
        importance="high",
    )
    socket_listen_backlog_size: int = setting(
        "socket.listen.backlog.size",
        4096,  # docs/decisions/0006.
        "Maximum number of pending connections in the kernel's queue, capped by"
        " `net.core.somaxconn`. With Kafka's default of 50, some clients wait a minute when"
        " thousands reconnect at the same time.",
        at_least=1,
    )
    max_connections: int = setting(
        "max.connections",
        INT_MAX,  # In practice, the limit on open files applies first.
        "Maximum number of open client connections to this broker; additional connections are"
        " closed immediately. Unlike in Kafka, 0 is not allowed, because no client could then"
        " connect to change it.",
        at_least=1,
        update="cluster-wide",
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip",
        INT_MAX,
        "Maximum number of open client connections from one IP address; additional connections"
        " are closed immediately. 0 is not allowed: Kafka allows it only in combination with"
        " `max.connections.per.ip.overrides`, which plog does not support yet.",
        at_least=1,
        update="cluster-wide",
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        10 * MINUTE_MS,
        "Time after which an idle connection is closed; -1 disables the timeout.",
        type=SettingType.LONG,
        at_least=1,
        also=(-1,),
        unit="ms",
        update="reload",
    )

    plog_connections_sweep_interval_ms: int = setting(
        "plog.connections.sweep.interval.ms",
        5 * SECOND_MS,
        "Interval between checks for connections that are idle, too slow, or abandoned by their"
        " client.",
        at_least=1,
        unit="ms",
        importance="low",
    )

    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes",
        100 * MIB,
        "Maximum size of a request. The broker closes a connection that announces a larger"
        " request.",
        at_least=1,
        unit="bytes",
        importance="high",
        group="Requests",
    )
    plog_request_max_elements: int = setting(
        "plog.request.max.elements",
        50_000,
        "Maximum number of array elements (topics, partitions, groups, settings, …) in one"
        " request, added up over all its arrays. The broker closes a connection that sends more."
        " An element occupies a few bytes in a request but costs the broker about a hundred times"
        " as much memory, as well as processing time.",
        at_least=10_000,  # Consumers with thousands of partitions list all of them.
        importance="low",
    )
    plog_request_without_records_max_bytes: int = setting(
        "plog.request.without.records.max.bytes",
        16 * MIB,
        "Maximum size of a request that does not contain records, that is, any request except"
        " Produce. The broker closes a connection that sends a larger request.",
        at_least=MIB,
        unit="bytes",
        importance="low",
    )
    plog_response_max_bytes: int = setting(
        "plog.response.max.bytes",
        64 * MIB,
        "Maximum size of a response, not counting records sent directly from their files. A"
        " request whose response would be larger fails with POLICY_VIOLATION.",
        at_least=MIB,
        unit="bytes",
        importance="low",
    )
    queued_max_requests: int = setting(
        "queued.max.requests",
        500,
        "Maximum number of produce requests, across all connections, that can wait for the disk"
        " or for followers. At the limit, each connection can have only one such request.",
        at_least=1,
        importance="high",
    )
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes",
        128 * MIB,  # Without a limit, a few clients could exhaust the memory (KIP-72).
        "Memory for incomplete requests, counted as their bytes arrive, and for requests with"
        " many elements until they are decoded. Three quarters of it is reserved for requests"
        " over 1 MiB, the rest for smaller ones. While one of these shares is full, the broker"
        " stops reading the requests that need it, and closes connections whose requests take"
        " longer than 10 s to arrive. -1, Kafka's default, means no limit. Any other value must"
        " be at least `socket.request.max.bytes`.",
        type=SettingType.LONG,
        at_least=1,
        also=(-1,),
        unit="bytes",
    )
    plog_queued_max_response_bytes: int = setting(
        "plog.queued.max.response.bytes",
        64 * MIB,
        "Memory for responses waiting to be sent, across all connections, not counting records"
        " sent directly from their files. While the limit is exceeded, the broker does not start"
        " any new requests on connections with unsent responses, and closes connections whose"
        " clients do not read their responses. Responses that are being encoded can use the same"
        " amount again.",
        type=SettingType.LONG,
        at_least=MIB,
        unit="bytes",
        update="reload",
    )
    plog_produce_parked_max_bytes: int = setting(
        "plog.produce.parked.max.bytes",
        32 * MIB,
        "Memory for records of produce requests that cannot be appended yet, because their disk"
        " is too slow or because they must be validated or recompressed. A single topic can use"
        " half of this memory. At the limit, appends fail with REQUEST_TIMED_OUT, which clients"
        " retry. A batch that has to wait and is larger than the limit is rejected with a"
        " non-retriable error.",
        type=SettingType.LONG,
        at_least=2 * MIB,
        unit="bytes",
        update="reload",
    )
    plog_response_buffer_max_bytes: int = setting(
        "plog.response.buffer.max.bytes",
        128 * KIB,
        "Maximum number of bytes waiting to be sent on a connection. While this limit is"
        " exceeded, the broker does not read any more requests from the connection. Each range of"
        " records sent directly from its file is counted as 16 KiB.",
        at_least=64 * KIB,
        unit="bytes",
        update="reload",
    )
    plog_partial_request_timeout_ms: int = setting(
        "plog.partial.request.timeout.ms",
        30 * SECOND_MS,
        "Half the time within which a request must arrive. The broker closes a connection"
        " if its incomplete request grew during this time by less than half its size, or by less"
        " than `plog.partial.request.min.rate.bytes` per second.",
        at_least=SECOND_MS,
        unit="ms",
        update="reload",
    )
    plog_partial_request_min_rate_bytes: int = setting(
        "plog.partial.request.min.rate.bytes",
        KIB,
        "Minimum rate at which a request must arrive, in bytes per second; see"
        " `plog.partial.request.timeout.ms`.",
        at_least=1,
        unit="bytes",
        update="reload",
    )
    plog_request_turn_max_requests: int = setting(
        "plog.request.turn.max.requests",
        64,
        "Maximum number of requests from one connection that the broker handles before it serves"
        " other connections.",
        at_least=1,
        importance="low",
    )
    max_request_partition_size_limit: int = setting(
        "max.request.partition.size.limit",
        2000,  # KIP-966.
        "Maximum number of partitions in one DescribeTopicPartitions response.",
        at_least=1,
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes",
        55 * MIB,  # KIP-541: the broker's own limit, whatever clients request.
        "Maximum size of a fetch response, even if the client requests more. If the first batch"
        " is larger, the broker still returns the whole batch.",
        at_least=KIB,
        unit="bytes",
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots",
        1000,  # KIP-227.
        "Maximum number of fetch sessions. With 0, every fetch request lists all its partitions.",
        at_least=0,
    )
    plog_fetch_session_max_partitions: int = setting(
        "plog.fetch.session.max.partitions",
        10_000,
        "Maximum number of partitions in one fetch session. A consumer with more partitions lists"
        " all of them in each fetch request.",
        at_least=1,
        importance="low",
    )
    plog_fetch_sessions_max_partitions: int = setting(
        "plog.fetch.sessions.max.partitions",
        100_000,
        "Maximum number of partitions across all fetch sessions; each partition uses about 500"
        " bytes of memory. At the limit, consumers without a session list all their partitions in"
        " each fetch request.",
        at_least=1,
        importance="low",
    )
    quota_window_num: int = setting(
        "quota.window.num",
        11,  # Ten complete samples and the current one, as in Kafka's QuotaConfig.
        "Number of samples from which a client's rate is calculated; see"
        " `quota.window.size.seconds` and docs/security.md.",
        at_least=1,
        importance="low",
    )
    quota_window_size_seconds: int = setting(
        "quota.window.size.seconds",
        1,
        "Duration of each sample from which a client's rate is calculated.",
        at_least=1,
        unit="s",
        importance="low",
    )
