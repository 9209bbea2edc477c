"""The Spark loads and their targets: CPU time per row, divided by that of other sources."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from tests.bench import spark_loads
from tests.bench.load import Load
from tests.bench.rounds import Round, Target, figure, ratio

if TYPE_CHECKING:
    from tests.bench.session import Session


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


def _load(
    name: str,
    what: str,
    run: Callable[[Session], Generator[Round]],
    targets: tuple[Target, ...],
    rounds: int = 5,
) -> Load:
    return Load(
        name=f"spark-{name}",
        what=f"Spark: {what}",
        section="spark",
        run=run,
        peers=("plog",),
        rounds=rounds,
        targets=targets,
    )


SPARK_LOADS = (
    _load(
        "read",
        "read 200 B records, local[2]",
        spark_loads.read,
        (_spark_cpu(1), _spark_cpu(0.7, "kafka-default"), _SPARK_BROKER, _SPARK_FIGURE),
    ),
    _load(
        "read-lz4",
        "read 200 B records, lz4",
        spark_loads.read_lz4,
        (_spark_cpu(1), _SPARK_FIGURE),
    ),
    _load(
        "read-zstd",
        "read 200 B records, zstd",
        spark_loads.read_zstd,
        (_spark_cpu(1), _SPARK_FIGURE),
    ),
    _load(
        "stream",
        "read a stream in five batches, availableNow",
        spark_loads.stream,
        (_spark_cpu(1.2), _SPARK_FIGURE),
    ),
    _load("write", "write 200 B records", spark_loads.write, (_spark_cpu(1.2), _SPARK_FIGURE)),
    _load(
        "microbatch",
        "microbatches of 400 rows",
        spark_loads.microbatch,
        (
            _spark_cpu(1.2, "memory"),
            Target(what="time ÷ a source's in memory", of=ratio("batch_ms", against="memory")),
            Target(what="CPU per row ÷ the connector's", of=ratio("cpu_us_per_row")),
            Target(what="a batch", of=figure("batch_ms"), unit=" ms"),
        ),
        rounds=3,
    ),
)
