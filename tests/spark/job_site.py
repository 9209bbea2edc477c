"""Helpers for tests of jobs: topics with few records, and the rows in a warehouse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plog.records.record import Record
from plog.spark.jobs.job_source import JobSource, JobTrigger
from plog.spark.jobs.table_files import TableFiles
from plog.spark.jobs.value_format import ValueFormat
from plog.spark.jobs.warehouse.job import run_warehouse
from plog.spark.jobs.warehouse.merge_planning import MergeLimits
from plog.spark.jobs.warehouse.warehouse_options import TableOptions, WarehouseOptions
from tests.spark.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HOUR_MS = 3_600_000
NOON_MS = 1_767_268_800_000
"""2026-01-01 12:00 UTC; its hour is closed."""


@dataclass
class JobSite:
    """A warehouse with one topic, and the offsets that it must contain."""

    cluster: Cluster
    topic: str
    folder: Path
    values: ValueFormat = field(default_factory=lambda: ValueFormat(name="json"))
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    @classmethod
    def created(cls, cluster: Cluster, new_topic: Callable[[], str], folder: Path) -> JobSite:
        made = cls(cluster, new_topic(), folder)
        cluster.create(made.topic, 2)
        return made

    @property
    def source(self) -> JobSource:
        return JobSource(bootstrap_servers=self.cluster.bootstrap_servers, topics=(self.topic,))

    @property
    def output(self) -> Path:
        return self.folder / "warehouse"

    @property
    def options(self) -> WarehouseOptions:
        return WarehouseOptions(
            source=self.source,
            table=TableOptions(
                output=self.output, values=self.values, merges=MergeLimits(close_delay_s=0)
            ),
            checkpoint=self.folder / "checkpoint",
            trigger=JobTrigger(available_now=True),
        )

    def add(
        self, *values: bytes | None, partition: int = 0, at_ms: int = NOON_MS, topic: str = ""
    ) -> None:
        """Add records, one ms apart."""
        topic = topic or self.topic
        records = [
            Record(timestamp=at_ms + number, key=b"k", value=value)
            for number, value in enumerate(values)
        ]
        self.cluster.produce(topic, partition, records)
        self.offsets[topic, partition] = self.offsets.get((topic, partition), 0) + len(values)

    def run(self, files: TableFiles | None = None, **table: Any) -> None:
        options = replace(self.options, table=replace(self.options.table, **table))
        run_warehouse(self.cluster.spark, options, report=self.lines.append, files=files)

    def table(self, topic: str = "") -> DataFrame:
        """Return the table as a user reads it."""
        path = str(self.output / (topic or self.topic))
        return self.cluster.spark.read.option("mergeSchema", "true").parquet(path)

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        """Return columns of the table by partition and offset."""
        found = self.table().orderBy("partition", "offset").selectExpr(*columns).collect()
        return [tuple(row) for row in found]

    def letters(self) -> list[tuple[bytes, dict[str, bytes]]]:
        """Return the values and headers of the dead letters."""
        folder = self.output / "_dead_letters" / self.topic
        found = self.cluster.spark.read.parquet(str(folder)).collect() if folder.exists() else []
        return [(row.value, {one.key: one.value for one in row.headers}) for row in found]

    def check(self, dead: Sequence[tuple[int, int]] = ()) -> None:
        """Assert that each record is in the table once, except the `dead` letters."""
        expected = [
            (topic, partition, offset)
            for (topic, partition), end in sorted(self.offsets.items())
            for offset in range(end)
            if (partition, offset) not in dead
        ]
        found = []
        for topic in sorted({topic for topic, _ in self.offsets}):
            rows = self.table(topic).select("topic", "partition", "offset").collect()
            found += sorted(map(tuple, rows))
        assert found == expected
        facts = [headers for _, headers in self.letters()]
        places = [
            (int(one["plog.source.partition"]), int(one["plog.source.offset"])) for one in facts
        ]
        assert sorted(places) == sorted(dead)

    def files(self) -> list[str]:
        """Return the files of the topic, below its folder."""
        root = self.output / self.topic
        return sorted(str(path.relative_to(root)) for path in root.rglob("*.parquet"))
