"""`ProducerSettings`: what a producer is set by, beside what every client is.

Kafka's names, types, bounds and defaults. Source: Kafka 4.3 ProducerConfig, KafkaProducer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from plog.client.settings.client import ClientSettings, Consequence
from plog.settings import INT_MAX, KIB, MIB, MINUTE_MS, SECOND_MS, SettingType, setting

MAX_IN_FLIGHT_IDEMPOTENT = 5
"""Batches of a producer that a broker remembers, so that it knows one that comes again."""

_ACKS = {"all": -1, "0": 0, "1": 1}
_JAVA_PARTITIONER = "org.apache.kafka.clients.producer.RoundRobinPartitioner"


@dataclass(frozen=True, kw_only=True)
class ProducerSettings(ClientSettings):
    """The settings of one producer; immutable."""

    retries: int = setting(
        "retries",
        INT_MAX,
        "How often a batch is sent again after an error that may pass; as a rule"
        " `delivery.timeout.ms` ends it sooner.",
        at_least=0,
        at_most=INT_MAX,
        importance="high",
        aliases=("message.send.max.retries",),
    )
    receive_buffer_bytes: int = setting(
        "receive.buffer.bytes",
        32 * KIB,
        "SO_RCVBUF of the sockets; -1 leaves it to the system.",
        at_least=0,
        also=(-1,),
        unit="bytes",
    )

    acks: str = setting(
        "acks",
        "all",
        "When a batch counts as written: when all in-sync replicas have it, when its leader has it"
        " (`1`), or when it was sent (`0`), which also hides every error.",
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
        "Whether brokers recognize a batch that comes twice, so that each record is written once"
        " and in order. Needs `acks=all`, `retries` above 0, and at most 5 requests in flight; with"
        " other `acks` or `retries`, it is off unless it is set.",
        importance="low",
    )
    delivery_timeout_ms: int = setting(
        "delivery.timeout.ms",
        2 * MINUTE_MS,
        "How long after `send` a record must be acknowledged; else it fails. At least `linger.ms`"
        " and `request.timeout.ms` together.",
        at_least=0,
        unit="ms",
        aliases=("message.timeout.ms",),
    )
    max_in_flight_requests_per_connection: int = setting(
        "max.in.flight.requests.per.connection",
        5,
        "Unanswered requests to one broker. Without idempotence, more than 1 may change the order"
        " of records when one is retried.",
        at_least=1,
        importance="low",
        aliases=("max.in.flight",),
    )

    transactional_id: str | None = setting(
        "transactional.id",
        None,
        "Makes the producer one of transactions, and is its name for brokers: the same after a"
        " restart, and no other producer's at a time, or the older one is fenced. Needs"
        " `enable.idempotence`.",
        type=SettingType.STRING,
        importance="low",
        group="Transactions",
    )
    transaction_timeout_ms: int = setting(
        "transaction.timeout.ms",
        MINUTE_MS,
        "A transaction that is open for longer is aborted by the broker, and the producer may be"
        " fenced then; at most the broker's `transaction.max.timeout.ms`.",
        at_least=1,
        unit="ms",
        importance="low",
    )

    linger_ms: int = setting(
        "linger.ms",
        5,
        "How long a batch waits for more records before it is sent; a full one does not.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
        group="Batches and memory",
        aliases=("queue.buffering.max.ms",),
    )
    batch_size: int = setting(
        "batch.size",
        128 * KIB,
        "Records of a partition go together up to this size; a larger record goes alone."
        " Kafka's own default is 16 KiB.",
        at_least=0,
        unit="bytes",
    )
    buffer_memory: int = setting(
        "buffer.memory",
        32 * MIB,
        "Most memory for records that are not acknowledged yet; when it is full, `send` waits for"
        " `max.block.ms`.",
        type=SettingType.LONG,
        at_least=0,
        unit="bytes",
        importance="high",
    )
    max_block_ms: int = setting(
        "max.block.ms",
        MINUTE_MS,
        "How long `send` may wait for memory, or to learn the topic's partitions.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
    )
    max_request_size: int = setting(
        "max.request.size",
        MIB,
        "Largest request, and so the largest record, before compression; a broker and a topic have"
        " their own bounds.",
        at_least=0,
        unit="bytes",
    )
    metadata_max_idle_ms: int = setting(
        "metadata.max.idle.ms",
        5 * MINUTE_MS,
        "A topic to which nothing was sent for this long is forgotten until the next `send`.",
        type=SettingType.LONG,
        at_least=5 * SECOND_MS,
        unit="ms",
        importance="low",
    )

    compression_type: str = setting(
        "compression.type",
        "none",
        "How whole batches are compressed.",
        one_of=("none", "gzip", "snappy", "lz4", "zstd"),
        importance="high",
        group="Compression",
        aliases=("compression.codec",),
    )
    compression_gzip_level: int = setting(
        "compression.gzip.level",
        -1,
        "How hard gzip tries; -1 is its own choice.",
        at_least=1,
        at_most=9,
        also=(-1,),
    )
    compression_lz4_level: int = setting(
        "compression.lz4.level",
        9,
        "How hard lz4 tries.",
        at_least=1,
        at_most=17,
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level",
        3,
        "How hard zstd tries; below zero it is faster still.",
        at_least=-131072,
        at_most=22,
    )

    partitioner_class: str | None = setting(
        "partitioner.class",
        None,
        "How a record without a partition gets one. Not set: by the hash of its key, or, without a"
        " key, in one partition until a batch is full. `RoundRobinPartitioner`: each in turn,"
        " keys or not. Another is given as a Python function, `partitioner=…`.",
        type=SettingType.STRING,
        one_of=("RoundRobinPartitioner",),
        spellings=((_JAVA_PARTITIONER, "RoundRobinPartitioner"),),
        group="Partitions",
    )
    partitioner_ignore_keys: bool = setting(
        "partitioner.ignore.keys",
        False,
        "Whether the default treats records with a key like those without.",
    )
    partitioner_adaptive_partitioning_enable: bool = setting(
        "partitioner.adaptive.partitioning.enable",
        True,
        "Whether the default gives fewer records without a key to brokers that are slow.",
        importance="low",
    )
    partitioner_availability_timeout_ms: int = setting(
        "partitioner.availability.timeout.ms",
        0,
        "A broker that takes no batch for this long gets no records without a key until it does; 0"
        " never. Needs `partitioner.adaptive.partitioning.enable`.",
        type=SettingType.LONG,
        at_least=0,
        unit="ms",
        importance="low",
    )

    @property
    def required_acks(self) -> int:
        """`acks` as it is sent: -1 for all."""
        return _ACKS[self.acks]

    def problems(self) -> Iterator[tuple[str, str]]:
        yield from super().problems()
        if self._wants_idempotence():
            yield from self._check_idempotence()
        elif self.transactional_id is not None:
            yield "enable.idempotence", "transactional.id needs it: leave it on"
        if self.transactional_id == "":
            yield "transactional.id", "is empty: give it a name, or leave it out"
        shortest_ms = self._shortest_delivery_ms()
        if "delivery.timeout.ms" in self.explicit and self.delivery_timeout_ms < shortest_ms:
            yield (
                "delivery.timeout.ms",
                f"is below linger.ms ({self.linger_ms}) and request.timeout.ms"
                f" ({self.request_timeout_ms}) together, {shortest_ms}",
            )

    def _wants_idempotence(self) -> bool:
        """Whether it is on in the end: what excludes it switches it off if nobody has set it."""
        is_possible = self.acks == "all" and self.retries > 0
        is_possible = is_possible or self.transactional_id is not None
        return self.enable_idempotence and (is_possible or "enable.idempotence" in self.explicit)

    def _check_idempotence(self) -> Iterator[tuple[str, str]]:
        remedy = "or set enable.idempotence=false"
        if self.acks != "all":
            yield "acks", f"enable.idempotence needs acks=all; set it, {remedy}"
        if self.retries == 0:
            yield "retries", f"enable.idempotence needs retries above 0; raise it, {remedy}"
        if self.max_in_flight_requests_per_connection > MAX_IN_FLIGHT_IDEMPOTENT:
            yield (
                "max.in.flight.requests.per.connection",
                f"enable.idempotence needs at most {MAX_IN_FLIGHT_IDEMPOTENT}; lower it, {remedy}",
            )

    def _shortest_delivery_ms(self) -> int:
        return min(min(self.linger_ms, INT_MAX) + self.request_timeout_ms, INT_MAX)

    def consequences(self) -> Iterator[Consequence]:
        yield from super().consequences()
        if self.enable_idempotence and not self._wants_idempotence():
            yield Consequence("enable_idempotence", False)
        shortest_ms = self._shortest_delivery_ms()
        if self.delivery_timeout_ms < shortest_ms:
            yield Consequence(
                "delivery_timeout_ms",
                shortest_ms,
                f"delivery.timeout.ms is taken to be {shortest_ms}: linger.ms and"
                " request.timeout.ms together are above its default",
            )
