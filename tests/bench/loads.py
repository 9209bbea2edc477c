"""Every load of the bench: its commands, the brokers it runs on, and its targets, as `Load` rows.

A step's command is a command line of clientbench.py; session.py adds the broker and the topic.
`--n` is the number for a full run; `--quick` divides it. Loads that do more than run commands, such
as restarting a broker, name a function of special_loads.py.

"plog" runs with the maximum of ``log.flush.interval.messages``, so it syncs no more than Kafka; the
targets apply to that pair. "plog-default" runs with plog's defaults and syncs before it
acknowledges.
"""

from __future__ import annotations

from tests.bench import client_loads, special_loads
from tests.bench.cluster_targets import CLUSTER_LOADS
from tests.bench.compaction_targets import COMPACTION_LOADS
from tests.bench.load import ALL_THREE, Load, Step
from tests.bench.rounds import (
    Target,
    difference,
    figure,
    of_possible_rate,
    ratio,
)
from tests.bench.scale_targets import SCALE_LOADS
from tests.bench.spark_targets import SPARK_LOADS

KAFKA_AND_PLOG = ("kafka", "plog")
MESSAGE_BROKERS = ("rabbitmq", "activemq")


def _cpu_per_gb(at_most: float) -> tuple[Target, ...]:
    name = "broker_cpu_s_per_gb"
    return (Target(what="CPU per GB ÷ Kafka's", of=ratio(name), at_most=at_most),)


def _cpu_per_gb_by_buffers(at_most: float) -> tuple[Target, ...]:
    """The target, and the ratio to a Kafka whose socket buffers the kernel sizes, as plog's."""
    against = ratio("broker_cpu_s_per_gb", against="kafka-autotuned")
    what = "CPU per GB ÷ Kafka's with the kernel's socket buffers"
    return (*_cpu_per_gb(at_most), Target(what=what, of=against))


def _cpu_per_request(at_most: float, name: str = "broker_us_per_request") -> tuple[Target, ...]:
    return (Target(what="CPU per request ÷ Kafka's", of=ratio(name), at_most=at_most),)


def _interpreted(name: str) -> Target:
    """The effect of the compiled modules."""
    return Target(
        what="CPU of the interpreted modules ÷ the compiled ones",
        of=ratio(name, against="plog"),
        subject="plog-interpreted",
        reported="",
    )


_RAW = "--mode rawproduce --acks 1 --depth 5"

CPU_LOADS = (
    Load(
        name="raw-1",
        what="rawproduce 200 B, batch 1, 5 in flight",
        section="cpu",
        command=f"{_RAW} --batch 1 --n 50000 --warmup 5000",
        peers=(*ALL_THREE, "plog-interpreted"),
        targets=(
            *_cpu_per_request(0.3),
            Target(what="requests/s ÷ Kafka's", of=ratio("requests_s"), at_least=3),
            _interpreted("broker_us_per_request"),
        ),
    ),
    Load(
        name="raw-50",
        what="rawproduce 200 B × 50",
        section="cpu",
        command=f"{_RAW} --batch 50 --n 2000000 --warmup 100000",
        peers=(*ALL_THREE, "plog-interpreted"),
        targets=(*_cpu_per_gb(0.45), _interpreted("broker_cpu_s_per_gb")),
    ),
    Load(
        name="raw-500",
        what="rawproduce 200 B × 500",
        section="cpu",
        command=f"{_RAW} --batch 500 --n 5000000 --warmup 500000",
        targets=_cpu_per_gb(0.55),
    ),
    Load(
        name="raw-1k",
        what="rawproduce 1 KiB × 100",
        section="cpu",
        command=f"{_RAW} --batch 100 --size 1024 --n 1000000 --warmup 100000",
        peers=(*ALL_THREE, "kafka-autotuned"),
        targets=_cpu_per_gb_by_buffers(0.5),
    ),
    Load(
        name="raw-1m",
        what="rawproduce 1 MB requests",
        section="cpu",
        command=f"{_RAW} --batch 1000 --size 1000 --n 1000000 --warmup 100000",
        peers=(*ALL_THREE, "kafka-autotuned"),
        targets=_cpu_per_gb_by_buffers(0.5),
    ),
    Load(
        name="confluent-200",
        what="confluent-kafka defaults, 200 B",
        section="cpu",
        command="--mode produce --acks all --batch-bytes 1000000 --depth 1000000"
        " --n 2000000 --warmup 200000",
        targets=_cpu_per_gb(0.5),
    ),
    Load(
        name="confluent-1k",
        what="confluent-kafka defaults, 1 KiB",
        section="cpu",
        command="--mode produce --acks all --batch-bytes 1000000 --depth 1000000"
        " --size 1024 --n 1000000 --warmup 100000",
        targets=_cpu_per_gb(0.6),
    ),
    Load(
        name="kcat",
        what="kcat: produce a 1 GB access log, and consume identical lines",
        section="cpu",
        command="--mode kcat --acks all --dir {folder} --file-bytes 1000000000",
        peers=KAFKA_AND_PLOG,
        targets=(
            *_cpu_per_gb(0.6),
            Target(what="consume: CPU per GB ÷ Kafka's", of=ratio("out_broker_cpu_s_per_gb")),
        ),
    ),
    *(
        Load(
            name=f"codec-{codec}",
            what=f"compressed batches, {codec}, 1 KiB × 100",
            section="cpu",
            command=f"{_RAW} --batch 100 --size 1024 --compression {codec}"
            " --n 1000000 --warmup 100000",
            peers=KAFKA_AND_PLOG,
            targets=_cpu_per_gb(0.3),
        )
        for codec in ("gzip", "snappy", "lz4", "zstd")
    ),
    Load(
        name="rawfetch",
        what="rawfetch 1 MiB",
        section="cpu",
        prepare=f"{_RAW} --batch 500 --n 10000000",
        command="--mode rawfetch --size 200",
        peers=(*KAFKA_AND_PLOG, "kafka-autotuned"),
        targets=_cpu_per_gb_by_buffers(0.8),
    ),
    Load(
        name="consume",
        what="confluent-kafka consume, 200 B",
        section="cpu",
        prepare="--mode produce --acks all --batch-bytes 1000000 --n 3000000",
        command="--mode consume",
        peers=KAFKA_AND_PLOG,
        targets=_cpu_per_gb(0.5),
    ),
    Load(
        name="poll",
        what="500 idle long-polling fetchers",
        section="cpu",
        command="--mode connections --connections 500 --poll --seconds 8",
        peers=KAFKA_AND_PLOG,
        targets=(
            Target(
                what="CPU per empty poll ÷ Kafka's", of=ratio("broker_us_per_poll"), at_most=0.4
            ),
        ),
    ),
    Load(
        name="each-32",
        what="32 connections, one request in flight each",
        section="cpu",
        command="--mode each --connections 32 --batch 1 --n 60000 --warmup 10000",
        peers=(*ALL_THREE, "plog-interpreted"),
        targets=(*_cpu_per_request(0.8), _interpreted("broker_us_per_request")),
    ),
    Load(
        name="idle",
        what="idle broker",
        section="cpu",
        command="--mode idle --seconds 10",
        peers=KAFKA_AND_PLOG,
        targets=(Target(what="CPU ÷ Kafka's", of=ratio("broker_cpu_pct"), at_most=0.1),),
    ),
)


_POSSIBLE_RATES = {1: 0.8, 5: 0.65, 20: 0.6}
"""The targets for the rates of durable requests, by the number of requests in flight."""


def _durable(depth: int) -> Load:
    synced = Target(
        what="acks per sync",
        of=figure("acks_per_sync"),
        subject="plog-default",
        reported="",
        at_least=20 if depth == 100 else None,
    )
    rate = Target(
        what="requests/s ÷ min(k ÷ (fdatasync p50 + 0.1 ms), without syncs)",
        of=of_possible_rate(depth),
        subject="plog-default",
        reported="",
        at_least=_POSSIBLE_RATES.get(depth),
    )
    return Load(
        name=f"durable-{depth}",
        what=f"default durability, 200 B, {depth} in flight",
        section="other",
        command=f"--mode rawproduce --acks all --batch 1 --depth {depth} --warmup 1000"
        f" --n {min(8000 * depth, 50_000)}",
        peers=("disk", "plog-default", "plog"),
        extra={"disk": "--mode fsync --dir {data} --n 2000"},
        targets=(synced,) if depth == 100 else (rate, synced),
    )


OTHER_LOADS = (
    Load(
        name="latency",
        what="200/s end to end",
        section="other",
        command="--mode latency --rate 200 --n 2000",
        targets=(
            Target(what="p50 ÷ Kafka's", of=ratio("end_to_end_ms", "p50"), at_most=1),
            Target(what="p99 ÷ Kafka's", of=ratio("end_to_end_ms", "p99"), at_most=1),
            Target(what="p50", of=figure("end_to_end_ms", "p50"), unit=" ms"),
            Target(what="p99", of=figure("end_to_end_ms", "p99"), unit=" ms"),
        ),
    ),
    *(_durable(depth) for depth in (1, 5, 20, 100)),
    Load(
        name="hot",
        what="1,000 hot partitions, 2,000 requests/s",
        section="other",
        command="--mode paced --acks all --partitions 1000 --batch 1 --rate 2000 --n 10000",
        peers=("plog-default", "plog"),
        targets=(
            Target(
                what="ack p99, durable minus unsynced",
                of=difference("produce_ack_ms", "p99", against="plog"),
                subject="plog-default",
                reported="",
                at_most=15,
                unit=" ms",
            ),
        ),
    ),
    Load(
        name="start",
        what="from start to first response after a clean stop, 10 topics",
        section="other",
        run=special_loads.start_again,
        peers=KAFKA_AND_PLOG,
        targets=(
            Target(what="plog", of=figure("start_s"), at_most=0.7, unit=" s"),
            Target(what="Kafka", of=figure("start_s"), subject="kafka", unit=" s"),
        ),
    ),
    Load(
        name="memory",
        what="RSS",
        section="other",
        run=special_loads.memory,
        peers=("plog",),
        rounds=3,
        targets=(
            Target(what="idle", of=figure("idle_mb"), at_most=75, unit=" MB"),
            Target(what="per 1,000 partitions", of=figure("partitions_mb"), at_most=25, unit=" MB"),
            Target(what="per idle connection", of=figure("connection_kb"), at_most=6, unit=" kB"),
        ),
    ),
    Load(
        name="topics-1000",
        what="creating a topic with 1,000 partitions, until each has accepted a message",
        section="other",
        command="--mode topics --partitions 1000",
        targets=(Target(what="time ÷ Kafka's", of=ratio("until_written_s"), at_most=0.35),),
    ),
    Load(
        name="big-log",
        what="a large log ÷ a 1 GB log",
        section="other",
        run=special_loads.big_log,
        peers=("plog",),
        targets=(
            Target(what="produce CPU per GB", of=figure("produce_ratio"), at_most=1.1),
            Target(what="fetch CPU per GB", of=figure("fetch_ratio"), at_most=1.1),
            Target(what="the large log", of=figure("log_gb"), unit=" GB"),
        ),
    ),
)

PAPER_LOADS = (
    Load(
        name="paper",
        what="the paper's figures, 200 B",
        section="paper",
        peers=("kafka", "plog", "rabbitmq", "activemq"),
        steps=(
            Step("in1", "--mode rawproduce --batch 1 --depth 50 --n 100000 --warmup 10000"),
            Step("out1", "--mode rawfetch --fetch-bytes 200000 --n 110000"),
            Step("in50", "--mode rawproduce --batch 50 --depth 50 --n 3000000", KAFKA_AND_PLOG),
            Step(
                "out50", "--mode rawfetch --fetch-bytes 200000 --last --n 3000000", KAFKA_AND_PLOG
            ),
        ),
        extra=dict.fromkeys(MESSAGE_BROKERS, "--acks 0"),
        targets=(
            Target(
                what="producer, batch 1, 50 in flight ÷ RabbitMQ's",
                of=ratio("in1.msgs_s", against="rabbitmq"),
                at_least=2,
            ),
            Target(
                what="consumer ÷ RabbitMQ's",
                of=ratio("out50.msgs_s", against="rabbitmq", against_name="out1.msgs_s"),
                at_least=10,
            ),
            Target(
                what="consumer ÷ ActiveMQ's",
                of=ratio("out50.msgs_s", against="activemq", against_name="out1.msgs_s"),
                at_least=10,
            ),
            Target(
                what="consumer of a log written at batch 1 ÷ RabbitMQ's",
                of=ratio("out1.msgs_s", against="rabbitmq"),
            ),
            Target(
                what="Kafka's producer, batch 1, 50 in flight ÷ RabbitMQ's",
                of=ratio("in1.msgs_s", against="rabbitmq"),
                subject="kafka",
            ),
        ),
    ),
)


def _client_cpu(library: str, at_most: float, subject: str = "plog") -> Target:
    """Return a target for a library's CPU per record, relative to that of `library`."""
    prefix = "" if subject == "plog" else f"{subject.removeprefix('plog-')}: "
    of = ratio("client_cpu_s_per_mrecord", against=library)
    what = f"{prefix}client CPU per record ÷ {library}'s"
    return Target(what=what, of=of, at_most=at_most, subject=subject, reported="")


def _client_figures(*subjects: str) -> tuple[Target, ...]:
    """Return absolute figures without targets."""
    return tuple(
        Target(
            what=f"{subject}: client CPU",
            of=figure("client_cpu_s_per_mrecord"),
            unit=" µs/record",
            subject=subject,
            reported="",
        )
        for subject in subjects
    )


CLIENT_LOADS = (
    Load(
        name="client-produce",
        what="clients: produce 200 B records, blocking, default batching",
        section="clients",
        run=client_loads.produce,
        peers=("plog",),
        targets=(
            _client_cpu("kafka-python", 0.35),
            _client_cpu("aiokafka", 0.5),
            _client_cpu("confluent", 2.5),
            *_client_figures(*client_loads.PRODUCERS),
        ),
    ),
    Load(
        name="client-produce-audit",
        what="clients: produce 200 B records with and without plog.audit.enable",
        section="clients",
        run=client_loads.produce_audit,
        peers=("plog",),
        targets=(
            Target(
                what="client CPU per record with audit ÷ without",
                of=ratio("client_cpu_s_per_mrecord", against="plog"),
                at_most=1.3,
                subject="plog-audit",
            ),
            *_client_figures("plog-audit"),
        ),
    ),
    Load(
        name="client-consume",
        what="clients: consume 200 B records",
        section="clients",
        run=client_loads.consume,
        peers=("plog",),
        targets=(
            _client_cpu("kafka-python", 0.3),
            _client_cpu("aiokafka", 0.5),
            _client_cpu("confluent", 2),
            _client_cpu("confluent", 1, "plog-arrow"),
            *_client_figures(*client_loads.CONSUMERS),
        ),
    ),
    Load(
        name="client-latency",
        what="clients: 200 records/s, from send to receipt, asyncio",
        section="clients",
        run=client_loads.latency,
        peers=("plog",),
        targets=(
            Target(what="p50 ÷ aiokafka's", of=ratio("p50_ms", against="aiokafka"), at_most=1),
            Target(what="p99 ÷ aiokafka's", of=ratio("p99_ms", against="aiokafka"), at_most=1),
            Target(what="p50", of=figure("p50_ms"), unit=" ms"),
            Target(what="p99", of=figure("p99_ms"), unit=" ms"),
        ),
    ),
    Load(
        name="commands",
        what="the command line",
        section="clients",
        run=client_loads.commands,
        peers=("plog",),
        rounds=3,
        targets=(
            Target(what="plog --help", of=figure("help_s"), at_most=0.15, unit=" s"),
            Target(what="plog topics --list", of=figure("list_s"), at_most=0.3, unit=" s"),
        ),
    ),
    Load(
        name="fixture",
        what="the test fixtures",
        section="clients",
        run=client_loads.fixture,
        peers=("plog",),
        rounds=3,
        targets=(
            Target(what="a broker is ready", of=figure("ready_s"), at_most=0.5, unit=" s"),
            Target(
                what="100 tests, each with a fresh topic",
                of=figure("tests_s"),
                at_most=5,
                unit=" s",
            ),
        ),
    ),
)

LAST_LOADS = (
    Load(
        name="after",
        what="RSS after the runs",
        section="other",
        run=special_loads.after_the_runs,
        rounds=1,
        targets=(
            Target(what="plog", of=figure("rss_mb"), at_most=120, unit=" MB"),
            Target(what="Kafka", of=figure("rss_mb"), subject="kafka", unit=" MB"),
        ),
    ),
)

LOADS = (
    *CPU_LOADS,
    *OTHER_LOADS,
    *SCALE_LOADS,
    *COMPACTION_LOADS,
    *CLUSTER_LOADS,
    *PAPER_LOADS,
    *CLIENT_LOADS,
    *SPARK_LOADS,
    *LAST_LOADS,
)
BY_NAME = {load.name: load for load in LOADS}
