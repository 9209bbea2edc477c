"""The loads on clusters as `Load` rows: what each measures, and its targets.

"plog-cluster" does not sync, as Kafka by default; "plog-cluster-default" syncs before it
acknowledges.
"""

from __future__ import annotations

from tests.bench import cluster_loads
from tests.bench.load import Load
from tests.bench.rounds import Target, figure, ratio

_DURABLE = "plog-cluster-default"
_ALL = ("kafka-cluster", "plog-cluster", _DURABLE)
_REPLICATED = "--acks all --replication 3 --partitions 6"


def _against_kafka(what: str, name: str, key: str = "", at_most: float | None = None) -> Target:
    of = ratio(name, key, against="kafka-cluster")
    return Target(what=what, of=of, at_most=at_most, subject="plog-cluster", reported=_DURABLE)


def _durable(what: str, name: str, key: str = "") -> Target:
    of = ratio(name, key, against="kafka-cluster")
    return Target(what=f"{what}, durable", of=of, subject=_DURABLE, reported="")


_CPU = "CPU of all brokers per GB ÷ Kafka's"
_CPU_FIGURE = "broker_cpu_s_per_gb"

CLUSTER_LOADS = (
    Load(
        name="cluster-200",
        what="3 brokers, acks=all, 3 replicas: confluent-kafka defaults, 200 B",
        section="cluster",
        command=f"--mode produce {_REPLICATED} --batch-bytes 1000000 --depth 1000000"
        " --n 2000000 --warmup 200000",
        peers=_ALL,
        targets=(_against_kafka(_CPU, _CPU_FIGURE, at_most=0.8), _durable(_CPU, _CPU_FIGURE)),
    ),
    Load(
        name="cluster-1k",
        what="3 brokers, acks=all, 3 replicas: confluent-kafka, 1 KiB × 100",
        section="cluster",
        command=f"--mode produce {_REPLICATED} --batch 100 --size 1024 --n 500000 --warmup 50000",
        peers=_ALL,
        targets=(_against_kafka(_CPU, _CPU_FIGURE, at_most=1.0), _durable(_CPU, _CPU_FIGURE)),
    ),
    Load(
        name="cluster-latency",
        # Clients need up to 5 s to learn the leaders of a new topic.
        what="3 brokers, acks=all, 3 replicas: 200/s end to end",
        section="cluster",
        command=f"--mode latency {_REPLICATED} --rate 200 --n 2000 --warmup 2000",
        peers=_ALL,
        targets=(
            _against_kafka("p50 ÷ Kafka's", "end_to_end_ms", "p50", at_most=1.2),
            _against_kafka("p99 ÷ Kafka's", "end_to_end_ms", "p99", at_most=1.2),
            _durable("p50 ÷ Kafka's", "end_to_end_ms", "p50"),
            _durable("p99 ÷ Kafka's", "end_to_end_ms", "p99"),
        ),
    ),
    Load(
        name="cluster-failover",
        what="3 brokers: from the kill of a leader to the next acknowledged record",
        section="cluster",
        run=cluster_loads.failover,
        peers=_ALL,
        targets=(
            _against_kafka("time ÷ Kafka's", "until_acknowledged_s", at_most=1.0),
            Target(
                what="time",
                of=figure("until_acknowledged_s"),
                unit=" s",
                subject="plog-cluster",
                reported=_DURABLE,
            ),
        ),
    ),
    Load(
        name="cluster-controller",
        what="3 brokers: from the removal of /controller until the next serves 2,000 partitions",
        section="cluster",
        run=cluster_loads.controller_move,
        peers=("plog-cluster",),
        targets=(
            Target(
                what="time",
                of=figure("served_s"),
                at_most=2,
                unit=" s",
                subject="plog-cluster",
                reported="",
            ),
        ),
    ),
    Load(
        name="cluster-idle",
        what="3 idle brokers with 100 partitions: RSS together",
        section="cluster",
        run=cluster_loads.idle,
        peers=("kafka-cluster", "plog-cluster"),
        rounds=3,
        targets=(
            Target(
                what="plog",
                of=figure("rss_mb"),
                at_most=240,
                unit=" MB",
                subject="plog-cluster",
                reported="",
            ),
            Target(
                what="Kafka", of=figure("rss_mb"), unit=" MB", subject="kafka-cluster", reported=""
            ),
        ),
    ),
)
