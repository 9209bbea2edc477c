"""`SimilarWriter`: add the baskets of a batch to the counts, and publish the similar items."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from plog.spark.jobs.job_source import append_records
from plog.spark.jobs.progress import Report, counted
from plog.spark.jobs.recommend.counts_folder import CountsFolder
from plog.spark.jobs.recommend.item_counts import (
    added_counts,
    baskets,
    item_counts,
    pair_counts,
)
from plog.spark.jobs.recommend.recommend_options import RecommendOptions
from plog.spark.jobs.recommend.similar_items import result_records, similar_items

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class SimilarWriter:
    """The driver's side of one query that writes to `folder`."""

    options: RecommendOptions
    folder: CountsFolder
    report: Report

    def write(self, rows: DataFrame, batch_id: int) -> None:
        """Add the rows of `window_items` in a batch of a stream; Spark may repeat the call."""
        before = self.folder.begin(batch_id)
        found = baskets(rows, self.options.max_items).persist()
        try:
            number = found.count()
            self.report(f"batch {batch_id}: {counted(number, 'basket')} completed")
            # A version without new baskets would only be a copy of the counts.
            if number:
                self._publish(found, before, batch_id, keep=True)
        finally:
            found.unpersist()

    def write_range(self, rows: DataFrame) -> None:
        """Replace the result by that of the rows of `window_items` in a range."""
        self.folder.begin(0)
        found = baskets(rows, self.options.max_items).persist()
        try:
            self.report(f"{counted(found.count(), 'basket')} in the range")
            self._publish(found, None, 0, keep=False)
        finally:
            found.unpersist()

    def _publish(self, found: DataFrame, before: Path | None, batch_id: int, *, keep: bool) -> None:
        tables = {"items": item_counts(found), "pairs": pair_counts(found)}
        spark, staged = found.sparkSession, self.folder.staged_counts
        for name, new in tables.items():
            old = None if before is None else spark.read.parquet(str(before / name))
            added_counts(old, new).write.parquet(str(staged / name))
        # The counts are read back, because Spark would compute them again for each use.
        items, pairs = (spark.read.parquet(str(staged / name)) for name in tables)
        similar = similar_items(items, pairs, self.options.similarity).persist()
        try:
            writer = similar.write.format(self.options.output_format)
            writer.save(str(self.folder.staged_similar))
            # The records are sent first. If the driver is killed now, the repeated batch sends them
            # again.
            if self.options.output_topic is not None:
                records = result_records(similar, tables["items"])
                append_records(records, self.options.source, self.options.output_topic)
            text = f"{counted(items.count(), 'item')}, {counted(pairs.count(), 'pair')}"
        finally:
            similar.unpersist()
        self.folder.publish(batch_id, keep=keep)
        self.report(f"published the similar items of {text}")
