"""The Spark jobs of the pipeline: their command lines, their processes and their results."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from examples.pipeline.traffic import CLICKS, LINES, MINUTE_MS
from plog.client.simple import SimpleConsumer
from plog.types import TopicPartition

TOP_PAGES: Final = "top-pages"
WATERMARK_MINUTES: Final = 10
# Few cores, and little data.
_SPARK: Final = ("--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=2")
_STOP_TIMEOUT_S: Final = 60


class JobFailed(Exception):
    """A job has ended early or has not read everything in time; the message contains its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineJob:
    """A job of ``plog spark``; it runs until it is stopped, or reads what is available."""

    name: str
    topic: str
    arguments: Sequence[str]
    is_stream: bool = True


def pipeline_jobs(folder: Path) -> list[PipelineJob]:
    """Return the jobs, which write to `folder`."""
    return [
        PipelineJob(
            name="warehouse",
            topic=CLICKS,
            arguments=["--format", "json", "--output", str(folder / "warehouse")],
        ),
        PipelineJob(
            name="realtime",
            topic=CLICKS,
            arguments=[
                *("--format", "json", "--schema", "page string", "--by", "page", "--top", "3"),
                *("--watermark", f"{WATERMARK_MINUTES} minutes", "--output-topic", TOP_PAGES),
            ],
        ),
        PipelineJob(
            name="search-index",
            topic=LINES,
            arguments=["--output", str(folder / "index")],
            is_stream=False,
        ),
    ]


class JobProcess:
    """A running job; its output is in a file."""

    def __init__(self, job: PipelineJob, bootstrap_servers: str, folder: Path) -> None:
        self.name = job.name
        self._log = folder / f"{job.name}.log"
        trigger = ["--interval", "2"] if job.is_stream else ["--available-now"]
        command = [
            *(sys.executable, "-m", "plog.cli", "spark", *_SPARK, job.name),
            *("--bootstrap-server", bootstrap_servers, "--topic", job.topic),
            *("--checkpoint", str(folder / "checkpoints" / job.name), *trigger, *job.arguments),
        ]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)

    def wait_until(self, is_done: Callable[[], bool], timeout_s: float) -> None:
        """Wait for a result of the job. Raises JobFailed if it ends first, or takes too long."""
        deadline_s = time.monotonic() + timeout_s
        while not is_done():
            if self._process.poll() is not None:
                raise JobFailed(f"the job {self.name} has ended:\n{self._tail()}")
            if time.monotonic() > deadline_s:
                raise JobFailed(f"the job {self.name} is too slow:\n{self._tail()}")
            time.sleep(0.5)

    def wait(self, timeout_s: float) -> None:
        """Wait until the job has read what is available. Raises JobFailed."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise JobFailed(f"the job {self.name} is too slow:\n{self._tail()}") from None
        if code:
            raise JobFailed(f"the job {self.name} has failed:\n{self._tail()}")

    def stop(self) -> None:
        """Stop the job as Ctrl-C does; kill it if it does not stop."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _tail(self) -> str:
        return "\n".join(self._log.read_text("utf-8", "replace").splitlines()[-20:])


def stored_clicks(folder: Path) -> tuple[int, int]:
    """Return the number of rows in the warehouse, and of distinct offsets."""
    # Imported here because it takes a second.
    import pyarrow.parquet

    offsets: list[tuple[int, int]] = []
    for path in (folder / "warehouse" / CLICKS).rglob("*.parquet"):
        if path.name.startswith((".", "_")):
            continue
        try:
            # A single file: the names of its folders are not columns.
            columns = pyarrow.parquet.ParquetFile(path).read(["partition", "offset"]).to_pydict()
        except FileNotFoundError:
            continue  # The job has merged it meanwhile.
        offsets += zip(columns["partition"], columns["offset"], strict=True)
    return len(offsets), len(set(offsets))


@dataclass(frozen=True, slots=True, kw_only=True)
class TopPages:
    """The result of `realtime` for one minute."""

    start_ms: int
    total: int
    pages: Sequence[tuple[str, int]]


def top_pages(bootstrap_servers: str) -> list[TopPages]:
    """Return the results of `realtime`, which may be written more than once, by minute."""
    found: dict[tuple[int, int], dict[str, int | str]] = {}
    partition = TopicPartition(TOP_PAGES, 0)
    with SimpleConsumer(bootstrap_servers=bootstrap_servers) as consumer:
        end = consumer.end_offsets([partition])[partition]
        for record in consumer.records(partition, 0, end):
            row = json.loads(record.value)
            found[row["start_ms"], row["rank"]] = row
    minutes: dict[int, list[dict[str, int | str]]] = {}
    for (start_ms, _), row in sorted(found.items()):
        minutes.setdefault(start_ms, []).append(row)
    return [
        TopPages(
            start_ms=start_ms,
            total=int(rows[0]["total"]),
            pages=[(str(row["name"]), int(row["count"])) for row in rows],
        )
        for start_ms, rows in minutes.items()
    ]


def complete_minutes(clicks_ms: Sequence[int]) -> Counter[int]:
    """Return the clicks of each minute that the watermark of `realtime` has passed.

    >>> complete_minutes([0, 1, 60_000, 660_001])
    Counter({0: 2})
    """
    watermark_ms = max(clicks_ms, default=0) - WATERMARK_MINUTES * MINUTE_MS
    starts = (at_ms - at_ms % MINUTE_MS for at_ms in clicks_ms)
    return Counter(start for start in starts if start + MINUTE_MS <= watermark_ms)
