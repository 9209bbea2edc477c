"""The Spark loads and their targets: CPU time per row, divided by that of other sources."""

from __future__ import annotations

from tests.bench import spark_loads
from tests.bench.load import Load
from tests.bench.rounds import Target, figure, ratio


def _spark_cpu(at_most: float, against: str = "kafka") -> Target:
    name = "cpu_us_per_row"
    what = f"CPU per row ÷ {_SPARK_SOURCES[against]}"
    return Target(what=what, of=ratio(name, against=against), at_most=at_most)


_SPARK_SOURCES = {
    "kafka": "the connector's, tuned",
    "kafka-default": "the connector's",
    "memory": "a source's in memory",
}
_SPARK_BROKER = Target(
    what="broker CPU per GB ÷ the connector's", of=ratio("broker_cpu_s_per_gb"), at_most=1
)
_SPARK_FIGURE = Target(what="CPU per row", of=figure("cpu_us_per_row"), unit=" µs")

SPARK_LOADS = (
    Load(
        name="spark-read",
        what="Spark: read 200 B records, local[2]",
        section="spark",
        run=spark_loads.read,
        peers=("plog",),
        targets=(_spark_cpu(1), _spark_cpu(0.7, "kafka-default"), _SPARK_BROKER, _SPARK_FIGURE),
    ),
    Load(
        name="spark-read-lz4",
        what="Spark: read 200 B records, lz4",
        section="spark",
        run=spark_loads.read_lz4,
        peers=("plog",),
        targets=(_spark_cpu(1), _SPARK_FIGURE),
    ),
    Load(
        name="spark-read-zstd",
        what="Spark: read 200 B records, zstd",
        section="spark",
        run=spark_loads.read_zstd,
        peers=("plog",),
        targets=(_spark_cpu(1), _SPARK_FIGURE),
    ),
    Load(
        name="spark-stream",
        what="Spark: read a stream in five batches, availableNow",
        section="spark",
        run=spark_loads.stream,
        peers=("plog",),
        targets=(_spark_cpu(1.2), _SPARK_FIGURE),
    ),
    Load(
        name="spark-write",
        what="Spark: write 200 B records",
        section="spark",
        run=spark_loads.write,
        peers=("plog",),
        targets=(_spark_cpu(1.2), _SPARK_FIGURE),
    ),
    Load(
        name="spark-microbatch",
        what="Spark: microbatches of 400 rows",
        section="spark",
        run=spark_loads.microbatch,
        peers=("plog",),
        rounds=3,
        targets=(
            _spark_cpu(1.2, "memory"),
            Target(what="time ÷ a source's in memory", of=ratio("batch_ms", against="memory")),
            Target(what="CPU per row ÷ the connector's", of=ratio("cpu_us_per_row")),
            Target(what="a batch", of=figure("batch_ms"), unit=" ms"),
        ),
    ),
)
