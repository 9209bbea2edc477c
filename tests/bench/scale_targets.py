"""The loads of scale_loads.py as `Load` rows: what each measures, and its targets."""

from __future__ import annotations

from tests.bench import scale_loads
from tests.bench.load import Load
from tests.bench.rounds import Target, figure, ratio

SCALE_LOADS = (
    Load(
        name="recover",
        what="from start to first response after kill -9, 10 GB log",
        section="other",
        run=scale_loads.recover,
        peers=("kafka", "plog-default"),
        rounds=3,
        targets=(
            Target(
                what="time ÷ Kafka's",
                of=ratio("start_s"),
                at_most=1,
                subject="plog-default",
                reported="",
            ),
            Target(
                what="bytes read ÷ bytes above the recovery point",
                of=figure("read_ratio"),
                at_most=1.25,
                subject="plog-default",
                reported="",
            ),
            Target(
                what="plog", of=figure("start_s"), unit=" s", subject="plog-default", reported=""
            ),
            Target(what="Kafka", of=figure("start_s"), unit=" s", subject="kafka", reported=""),
            Target(
                what="the log", of=figure("log_gb"), unit=" GB", subject="plog-default", reported=""
            ),
        ),
    ),
    Load(
        name="start-2000",
        what="start after a clean stop, 2,000 partitions",
        section="other",
        run=scale_loads.start_with_partitions,
        peers=("plog",),
        rounds=3,
        targets=(
            Target(what="time", of=figure("start_s"), at_most=2.5, unit=" s"),
            Target(what="CPU", of=figure("cpu_s"), unit=" s"),
            # 75 MB, and 10 MB for each 1,000 partitions.
            Target(what="RSS", of=figure("rss_mb"), at_most=95, unit=" MB"),
        ),
    ),
    Load(
        name="start-segments",
        what="2,000 partitions, 10,000 segments, 1,024 open files: start, write and read all",
        section="other",
        run=scale_loads.start_with_segments,
        peers=("plog",),
        rounds=2,
        targets=(
            Target(what="partitions served", of=figure("served"), at_least=2000),
            Target(what="segments", of=figure("segments"), at_least=10_000),
            Target(what="start", of=figure("start_s"), unit=" s"),
            Target(what="CPU of the start", of=figure("cpu_s"), unit=" s"),
            Target(what="open files", of=figure("descriptors"), at_most=1024),
        ),
    ),
)
