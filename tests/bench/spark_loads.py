"""Loads that compare plog's Spark data source with Spark's own Kafka connector.

Both read and write the same plog, in turn, in one SparkSession (spark_queries.py). The figures are
the CPU time of all of Spark's processes per row: the driver, its JVM and the Python workers. The
first three rounds of each load do not count: Spark starts its processes and compiles its code.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from tests.bench.meter import Meter
from tests.bench.peers import Missing, Peer, need
from tests.bench.rounds import Round

if TYPE_CHECKING:
    from tests.bench.session import Session

_JARS = Path(__file__).parents[1] / "spark" / "connector-jars"
_ROOT = Path(__file__).parents[2]
_ROWS = 2_000_000
_ROW_BYTES = 200
_QUICK_DIVISOR = 25
_MICROBATCHES = 25
# The JVM compiles until about the fourth round, and more code for plog than for the connector.
_WARM_UP_ROUNDS = 3
BATCH_ROWS = 400
"""Rows of a microbatch."""
_TUNED = {"kafka.max.poll.records": "20000"}

READERS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "plog": ("plog", {}),
    "kafka": ("kafka", _TUNED),
    "kafka-default": ("kafka", {}),
}
"""The format and the options of each reader; `kafka` is tuned."""


_Rounds: TypeAlias = "Callable[[Session], Generator[Round]]"


def _warmed(load: _Rounds) -> _Rounds:
    """Discard the first rounds of a load."""

    @functools.wraps(load)
    def rounds(session: Session) -> Generator[Round]:
        yield from islice(load(session), _WARM_UP_ROUNDS, None)

    return rounds


@_warmed
def read(session: Session) -> Generator[Round]:
    """Read two million records as a batch query."""
    return _reads(session, "read", "none", tuple(READERS))


@_warmed
def read_lz4(session: Session) -> Generator[Round]:
    """Read the same records compressed with lz4."""
    return _reads(session, "read", "lz4", ("plog", "kafka"))


@_warmed
def read_zstd(session: Session) -> Generator[Round]:
    """Read the same records compressed with zstd."""
    return _reads(session, "read", "zstd", ("plog", "kafka"))


@_warmed
def stream(session: Session) -> Generator[Round]:
    """Read the same records as a stream of five batches."""
    limit = {"maxOffsetsPerTrigger": "400000"}
    return _reads(session, "stream", "none", ("plog", "kafka"), limit)


@_warmed
def write(session: Session) -> Generator[Round]:
    """Write a million records of 200 bytes."""
    rows = _count(session, _ROWS // 2)
    with _spark(session) as spark:
        number = 0
        while True:
            number += 1
            names = ("plog", "kafka") if number % 2 else ("kafka", "plog")
            round_ = {}
            for name in names:
                target = {"topic": f"spark-write-{name}-{number}"}
                round_[name] = spark.measure("write", name, target, rows)
                session.results.say("spark-write", name, "", round_[name])
            yield round_


@_warmed
def microbatch(session: Session) -> Generator[Round]:
    """Read batches of 400 rows, with each source and from the memory of a Python source."""
    rows = _count(session, BATCH_ROWS * _MICROBATCHES)
    command = f"--mode produce --n {BATCH_ROWS * _MICROBATCHES}"
    session.run(session.peer("plog"), command, "spark-microbatch")
    memory = ("memory-rows", {"rows": str(rows)})
    topic = {
        "subscribe": "spark-microbatch",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(BATCH_ROWS),
    }
    with _spark(session) as spark:
        number = 0
        while True:
            number += 1
            names = ("plog", "memory", "kafka") if number % 2 else ("kafka", "memory", "plog")
            round_ = {}
            for name in names:
                source, options = (name, topic) if name != "memory" else memory
                round_[name] = spark.measure("stream", source, options, rows)
                session.results.say("spark-microbatch", name, "", round_[name])
            yield round_


def _reads(
    session: Session,
    kind: str,
    compression: str,
    names: tuple[str, ...],
    more: Mapping[str, str] | None = None,
) -> Generator[Round]:
    rows, topic = _count(session, _ROWS), f"spark-{kind}-{compression}"
    # `session.run` divides the number for --quick.
    command = f"--mode produce --partitions 4 --compression {compression} --n {_ROWS}"
    session.run(session.peer("plog"), command, topic)
    with _spark(session) as spark:
        number = 0
        while True:
            number += 1
            round_ = {}
            for name in names if number % 2 else names[::-1]:
                source, options = READERS[name]
                chosen = {"subscribe": topic, "startingOffsets": "earliest", **options}
                round_[name] = spark.measure(kind, source, {**chosen, **(more or {})}, rows)
                session.results.say(f"spark-{kind}", name, compression, round_[name])
            yield round_


def _count(session: Session, rows: int) -> int:
    return rows // _QUICK_DIVISOR if session.quick else rows


class _Spark:
    """A running spark_queries.py, whose queries use the broker `peer`."""

    def __init__(self, process: subprocess.Popen[str], peer: Peer) -> None:
        self._process = process
        self._peer = peer

    def measure(
        self, kind: str, source: str, options: Mapping[str, str], rows: int
    ) -> dict[str, Any]:
        """Run a query that must return `rows`; return its figures."""
        servers = {"kafka.bootstrap.servers": self._peer.bootstrap}
        query = {"kind": kind, "source": source, "options": {**servers, **options}, "rows": rows}
        spark, broker = Meter(self._process.pid), Meter(self._peer.pid)
        for meter in (spark, broker):
            meter.start()
        found = self._ask(query)
        used, brokers = spark.stop(), broker.stop()
        if found["rows"] != rows:
            raise AssertionError(f"{source} returned {found['rows']} rows instead of {rows}")
        broker_s = brokers["broker_cpu_s"]
        figures = {
            "wall_s": used["wall_s"],
            "other_cpu_s": round(used["other_cpu_s"] - broker_s, 3),
            "cpu_us_per_row": round(used["broker_cpu_s"] / rows * 1e6, 3),
            "rows_s": round(rows / used["wall_s"]),
            "broker_cpu_s_per_gb": round(broker_s / (rows * _ROW_BYTES) * 1e9, 3),
        }
        return figures | {name: found[name] for name in ("batches", "batch_ms") if name in found}

    def wait_until_ready(self) -> None:
        """Wait until Spark has started."""
        self._answer()

    def _ask(self, query: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(query) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        output: IO[str] = self._process.stdout
        # Spark may print other lines.
        while line := output.readline():
            if line.startswith("{"):
                return dict(json.loads(line))
        raise Missing("Spark ended unexpectedly; its errors are above")


@contextmanager
def _spark(session: Session) -> Generator[_Spark]:
    need("bash", "java", "mvn")
    if importlib.util.find_spec("pyspark") is None:
        raise Missing("pyspark is not installed (pip install 'plog[spark]')")
    peer = session.peer("plog")
    folder = subprocess.run([_JARS], capture_output=True, text=True, check=True).stdout.split()[0]
    jars = ",".join(str(jar) for jar in sorted(Path(folder).glob("*.jar")))
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.spark_queries", jars, str(session.folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": f"{_ROOT}:{_ROOT / 'daemon'}",
        },
    )
    spark = _Spark(process, peer)
    try:
        spark.wait_until_ready()
        yield spark
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=60)
