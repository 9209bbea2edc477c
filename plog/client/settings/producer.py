"""`ProducerSettings`: the settings of producers, in addition to the common client settings.

Names, types, bounds and defaults are Kafka's, except for the default for ``batch.size``. Settings
that Kafka does not have start with ``plog.``. Source: Kafka 4.3 ProducerConfig, KafkaProducer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from plog.client.settings.client import ClientSettings, Consequence
from plog.settings import INT_MAX, KIB, MIB, MINUTE_MS, SECOND_MS, SettingType, setting

MAX_IN_FLIGHT_IDEMPOTENT = 5
"""The number of a producer's batches that a broker remembers to detect duplicates."""

_ACKS = {"all": -1, "0": 0, "1": 1}
_JAVA_PARTITIONER = "org.apache.kafka.clients.producer.RoundRobinPartitioner"


@dataclass(frozen=True, kw_only=True)
class ProducerSettings(ClientSettings):
    """The immutable settings of one producer."""

    # As in Kafka, retries are practically unlimited, because delivery.timeout.ms limits the time
    # for them (KIP-91).
    retries: int = setting(
        "retries",
        INT_MAX,
        "Maximum number of retries for a batch after a transient error; usually,"
        " `delivery.timeout.ms` is reached first.",
        at_least=0,
        at_most=INT_MAX,
        importance="high",
        aliases=("message.send.max.retries",),
    )
    receive_buffer_bytes: int = setting(
        "receive.buffer.bytes",
        32 * KIB,
        "Size of the socket receive buffer (SO_RCVBUF); -1 means the system default.",
        at_least=0,
        also=(-1,),
        unit="bytes",
    )

    acks: str = setting(
        "acks",
        "all",
        "When a batch is considered written: when all in-sync replicas have it (`all`), when its"
        " leader has it (`1`), or as soon as it has been sent (`0`), which also hides all errors.",
        one_of=("all", "0", "1"),
        spellings=(("-1", "all"),),
        any_case=True,
        importance="low",
        group="Reliability",
        aliases=("request.required.acks",),
    )
    enable_idempotence: bool = setting(
        "enable.idempotence",
        True,
        "Whether brokers detect duplicate batches, so that each record is written exactly once and"
        " in order. Requires `acks=all`, `retries` above 0 and at most 5 requests in flight; with"
        " other values of `acks` or `retries`, idempotence is disabled unless this setting is set.",
        importance="low",
    )
    delivery_timeout_ms: int = setting(
        "delivery.timeout.ms",
        2 * MINUTE_MS,
        "Maximum time from `send` to a record's acknowledgment; after that, the record fails."
        " Must be at least the sum of `linger.ms` and `request.timeout.ms`.",
        at_least=0,
        unit="ms",
        aliases=("message.timeout.ms",),
    )
    max_in_flight_requests_per_connection: int = setting(
        "max.in.flight.requests.per.connection",
        5,
        "Maximum number of unacknowledged requests to one broker. Without idempotence, values above"
        " 1 can reorder records when a request is retried.",
        at_least=1,
        importance="low",
        aliases=("max.in.flight",),
    )

    transactional_id: str | None = setting(
        "transactional.id",
        None,
        "Enables transactions and identifies the producer to brokers. Keep it across restarts,"
        " and never use it for two producers at a time: the older producer is fenced. Requires"
        " `enable.idempotence`.",
        type=SettingType.STRING,
        importance="low",
        group="Transactions",
    )
    transaction_timeout_ms: int = setting(
        "transaction.timeout.ms",
        MINUTE_MS,
        "Maximum duration of a transaction; the broker aborts a longer transaction and may fence"
        " the producer. Must be at most the broker's `transaction.max.timeout.ms`.",
        at_least=1,
        unit="ms",
        importance="low",
    )

    linger_ms: int = setting(
        "linger.ms",
        5,
        "How long a batch waits for more records before it is sent; a full batch does not wait.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
        group="Batches and memory",
        aliases=("queue.buffering.max.ms",),
    )
    # The default is larger than Kafka's, because in Python the fixed costs of a batch dominate
    # (decision 0013).
    batch_size: int = setting(
        "batch.size",
        128 * KIB,
        "Maximum size of a batch of records for one partition; a larger record is sent in a batch"
        " of its own. Kafka's default is 16 KiB.",
        at_least=0,
        unit="bytes",
    )
    buffer_memory: int = setting(
        "buffer.memory",
        32 * MIB,
        "Maximum memory for unacknowledged records; when it is full, `send` waits up to"
        " `max.block.ms`.",
        type=SettingType.LONG,
        at_least=0,
        unit="bytes",
        importance="high",
    )
    max_block_ms: int = setting(
        "max.block.ms",
        MINUTE_MS,
        "How long `send` can wait for memory or for the topic's metadata.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
    )
    max_request_size: int = setting(
        "max.request.size",
        MIB,
        "Maximum size of a request, and therefore of a record before compression; brokers and"
        " topics have their own limits.",
        at_least=0,
        unit="bytes",
    )
    # The minimum is Kafka's (KIP-526).
    metadata_max_idle_ms: int = setting(
        "metadata.max.idle.ms",
        5 * MINUTE_MS,
        "How long the client keeps a topic's metadata while it is not sending any records to the"
        " topic.",
        type=SettingType.LONG,
        at_least=5 * SECOND_MS,
        unit="ms",
        importance="low",
    )

    compression_type: str = setting(
        "compression.type",
        "none",
        "Compression codec for batches.",
        one_of=("none", "gzip", "snappy", "lz4", "zstd"),
        importance="high",
        group="Compression",
        aliases=("compression.codec",),
    )
    compression_gzip_level: int = setting(
        "compression.gzip.level",
        -1,
        "Compression level for gzip; -1 means gzip's default.",
        at_least=1,
        at_most=9,
        also=(-1,),
    )
    # As in Kafka, the bounds are those of lz4-java.
    compression_lz4_level: int = setting(
        "compression.lz4.level",
        9,
        "Compression level for lz4.",
        at_least=1,
        at_most=17,
    )
    # The bounds are zstd's own: ZSTD_minCLevel() and ZSTD_maxCLevel().
    compression_zstd_level: int = setting(
        "compression.zstd.level",
        3,
        "Compression level for zstd; negative levels are the fastest.",
        at_least=-131072,
        at_most=22,
    )

    partitioner_class: str | None = setting(
        "partitioner.class",
        None,
        "How to choose a record's partition. By default, the partition depends on the hash of the"
        " record's key; records without a key go to one partition until a batch is full."
        " `RoundRobinPartitioner` uses each partition in turn, regardless of keys. Pass your own"
        " partitioner as a Python function, `partitioner=…`.",
        type=SettingType.STRING,
        one_of=("RoundRobinPartitioner",),
        spellings=((_JAVA_PARTITIONER, "RoundRobinPartitioner"),),
        group="Partitions",
    )
    partitioner_ignore_keys: bool = setting(
        "partitioner.ignore.keys",
        False,
        "Whether the default partitioner ignores keys.",
    )
    partitioner_adaptive_partitioning_enable: bool = setting(
        "partitioner.adaptive.partitioning.enable",
        True,
        "Whether the default partitioner sends fewer records without a key to slow brokers.",
        importance="low",
    )
    partitioner_availability_timeout_ms: int = setting(
        "partitioner.availability.timeout.ms",
        0,
        "A broker that has not accepted a batch for this long does not receive records without a"
        " key until it accepts a batch again; 0 disables this. Requires"
        " `partitioner.adaptive.partitioning.enable`.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
        importance="low",
    )

    plog_audit_enable: bool = setting(
        "plog.audit.enable",
        False,
        "Whether the producer counts its acknowledged records and reports the counts to the topic"
        " `_plog_audit`. Audits compare the reports with the contents of topics.",
        importance="low",
        group="Audit",
    )
    plog_audit_producer: str | None = setting(
        "plog.audit.producer",
        None,
        "Name of the producer in audit reports and in the record header `plog.audit`. Default:"
        " `client.id` or, if it is not set, the host name.",
        type=SettingType.STRING,
        importance="low",
    )

    @property
    def required_acks(self) -> int:
        """The value of `acks` in the protocol: -1 means all."""
        return _ACKS[self.acks]

    def problems(self) -> Iterator[tuple[str, str]]:
        yield from super().problems()
        if self._wants_idempotence():
            yield from self._check_idempotence()
        elif self.transactional_id is not None:
            yield "enable.idempotence", "is required by transactional.id; do not disable it"
        if self.transactional_id == "":
            yield "transactional.id", "is empty; set a name or omit it"
        if self.plog_audit_producer == "":
            yield "plog.audit.producer", "is empty; set a name or omit it"
        shortest_ms = self._shortest_delivery_ms()
        # As in Kafka, a default that is too short is raised instead (see `consequences`).
        if "delivery.timeout.ms" in self.explicit and self.delivery_timeout_ms < shortest_ms:
            yield (
                "delivery.timeout.ms",
                f"is below {shortest_ms}, the sum of linger.ms ({self.linger_ms}) and"
                f" request.timeout.ms ({self.request_timeout_ms})",
            )

    def _wants_idempotence(self) -> bool:
        """Return whether idempotence is enabled, explicitly or because no setting conflicts."""
        # As in Kafka (KIP-679), other values silently disable idempotence, unless it is set
        # explicitly.
        is_possible = self.acks == "all" and self.retries > 0
        # Transactions require idempotence, so conflicting values must be reported as problems.
        is_possible = is_possible or self.transactional_id is not None
        return self.enable_idempotence and (is_possible or "enable.idempotence" in self.explicit)

    def _check_idempotence(self) -> Iterator[tuple[str, str]]:
        remedy = "or set enable.idempotence=false"
        if self.acks != "all":
            yield "acks", f"enable.idempotence requires acks=all; set it, {remedy}"
        if self.retries == 0:
            yield "retries", f"enable.idempotence requires retries above 0; raise it, {remedy}"
        if self.max_in_flight_requests_per_connection > MAX_IN_FLIGHT_IDEMPOTENT:
            yield (
                "max.in.flight.requests.per.connection",
                f"enable.idempotence allows at most {MAX_IN_FLIGHT_IDEMPOTENT}; lower it, {remedy}",
            )

    def _shortest_delivery_ms(self) -> int:
        # linger.ms is a 64-bit setting, but delivery.timeout.ms has only 32 bits.
        return min(min(self.linger_ms, INT_MAX) + self.request_timeout_ms, INT_MAX)

    def doubts(self) -> Iterator[str]:
        yield from super().doubts()
        if self.plog_audit_producer is not None and not self.plog_audit_enable:
            yield "plog.audit.producer has no effect; set plog.audit.enable=true as well"

    def consequences(self) -> Iterator[Consequence]:
        yield from super().consequences()
        if self.enable_idempotence and not self._wants_idempotence():
            yield Consequence("enable_idempotence", False)
        shortest_ms = self._shortest_delivery_ms()
        if self.delivery_timeout_ms < shortest_ms:
            yield Consequence(
                "delivery_timeout_ms",
                shortest_ms,
                f"delivery.timeout.ms is raised to {shortest_ms}, the sum of linger.ms and"
                " request.timeout.ms, which exceeds its default",
            )
