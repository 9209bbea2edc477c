"""The loads for compaction and their targets; compaction_loads.py runs them."""

from __future__ import annotations

from tests.bench import compaction_loads, coordinator_loads
from tests.bench.load import Load
from tests.bench.rounds import Target, figure, ratio

COMPACTION_LOADS = (
    Load(
        name="compaction",
        what="compaction of 200 B keyed records, 10 % live",
        section="other",
        run=compaction_loads.compaction,
        peers=("kafka", "plog", "plog-interpreted"),
        rounds=3,
        targets=(
            Target(
                what="MB per CPU second ÷ that of Kafka's cleaner",
                of=ratio("mb_per_cpu_s"),
                at_least=0.5,
            ),
            Target(
                what="interpreted: MB per CPU second ÷ that of Kafka's cleaner",
                of=ratio("mb_per_cpu_s"),
                subject="plog-interpreted",
                reported="",
            ),
            Target(what="plog", of=figure("mb_per_cpu_s"), unit=" MB per CPU second"),
        ),
    ),
    Load(
        name="compaction-latency",
        what="1,000 requests/s while other logs are compacted",
        section="other",
        run=compaction_loads.produce_latency,
        peers=("plog", "plog-default"),
        rounds=3,
        targets=(
            Target(what="ack p99 ÷ that without", of=figure("p99_ratio"), at_most=1.5),
            Target(
                what="beside a process that only computes: ack p99 ÷ that without",
                of=figure("busy_p99_ratio"),
                reported="",
            ),
            Target(what="ack p99", of=figure("with_ms", "p99"), unit=" ms"),
        ),
    ),
    Load(
        name="coordinator-load",
        what="1,000,000 commits of 1,000 offsets, compacted",
        section="other",
        run=coordinator_loads.restart,
        peers=("kafka", "plog"),
        rounds=3,
        targets=(
            Target(
                what="from restart until all offsets can be fetched, without the start itself",
                of=figure("load_s"),
                at_most=0.5,
                unit=" s",
            ),
            Target(what="Kafka", of=figure("load_s"), subject="kafka", unit=" s"),
        ),
    ),
)
