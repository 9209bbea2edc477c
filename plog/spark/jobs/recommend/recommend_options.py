"""`RecommendOptions`: which items are similar, and where the result goes. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from plog.settings import ConfigError, nearest_name
from plog.spark.jobs.durations import duration_problems
from plog.spark.jobs.event_columns import column_problems
from plog.spark.jobs.job_source import EARLIEST_OFFSETS, JobSource, JobTrigger, TimeRange
from plog.spark.jobs.value_format import ValueFormat

SCORES: Final = {
    # As bigint, the product of two large counts would be an error.
    "cosine": "count / sqrt(double(item_count) * double(other_count))",
    "jaccard": "count / (item_count + other_count - count)",
}
"""SQL for each score, which is between 0 and 1, of the numbers of baskets with both items, with the
first one, and with the other one."""
OUTPUT_FORMATS: Final = ("parquet", "json")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarityOptions:
    """How the `top` similar items of each item are chosen."""

    score: str = "cosine"
    min_count: int = 1
    """The minimum number of baskets with both items."""
    top: int = 10

    def __post_init__(self) -> None:
        if self.score not in SCORES:
            raise ConfigError([_unknown("score", self.score, tuple(SCORES))])


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendOptions:
    """Items are values of `item` that a user, a value of `by`, has seen in a window.

    With a `checkpoint`, the job reads the stream, and the counts grow. With `times`, it reads this
    range once. `by`, `item` and `time` are fields or columns of records.
    """

    source: JobSource
    output: Path
    item: str
    checkpoint: str | None = None
    times: TimeRange = field(default_factory=TimeRange)
    values: ValueFormat = field(default_factory=ValueFormat)
    by: str = "key"
    time: str = "timestamp"
    window: str = "1 hour"
    watermark: str = "10 minutes"
    # The number of pairs grows with the square of the items: 100 items are 4,950 pairs.
    max_items: int = 100
    """The maximum number of items of a basket; a larger one is sampled."""
    similarity: SimilarityOptions = field(default_factory=SimilarityOptions)
    output_format: str = "parquet"
    output_topic: str | None = None
    dead_letter_topic: str | None = None
    trigger: JobTrigger = field(default_factory=JobTrigger)

    def __post_init__(self) -> None:
        problems = duration_problems({"window": self.window, "watermark": self.watermark})
        problems += column_problems(self.values, (self.by, self.item, self.time))
        if self.output_format not in OUTPUT_FORMATS:
            problems.append(_unknown("output format", self.output_format, OUTPUT_FORMATS))
        # A stream has no end, and the counts of a range need no checkpoint.
        if (self.checkpoint is None) != self.times.is_limited:
            problems.append(
                "cannot choose the records: set either a checkpoint, for the stream, or the start"
                " or end of a range"
            )
        if self.checkpoint is None and (
            self.source.starting_offsets != EARLIEST_OFFSETS
            or self.source.max_offsets_per_trigger is not None
        ):
            problems.append(
                "cannot limit the offsets of a range: starting offsets and a maximum number of"
                " offsets apply only to a stream, with a checkpoint"
            )
        problems += self.source.target_problems(self.output_topic, self.dead_letter_topic)
        if problems:
            raise ConfigError(problems)


def _unknown(noun: str, name: str, known: tuple[str, ...]) -> str:
    near = nearest_name(name, known)
    hint = f"did you mean {near}?" if near else f"use one of {', '.join(known)}"
    return f"cannot use the {noun} {name!r}: {hint}"
