"""`RealtimeOptions`: what the job ``realtime`` counts, and where the results go. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from plog.settings import ConfigError
from plog.spark.jobs.durations import duration_problems
from plog.spark.jobs.event_columns import column_problems
from plog.spark.jobs.job_source import JobSource, JobTrigger
from plog.spark.jobs.value_format import ValueFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class RealtimeOptions:
    """Counts by the column `by` in windows; `by` and `time` are fields or columns of records.

    Durations are Spark's, such as ``5 minutes``. Results go to `output_topic` and to the console,
    and values that cannot be decoded to `dead_letter_topic`; each topic may be None.
    """

    source: JobSource
    checkpoint: str
    values: ValueFormat = field(default_factory=ValueFormat)
    by: str = "topic"
    time: str = "timestamp"
    window: str = "1 minute"
    slide: str | None = None
    watermark: str = "1 minute"
    top: int = 10
    output_topic: str | None = None
    dead_letter_topic: str | None = None
    console: bool = True
    trigger: JobTrigger = field(default_factory=JobTrigger)

    def __post_init__(self) -> None:
        durations = {"window": self.window, "slide": self.slide, "watermark": self.watermark}
        problems = duration_problems(durations)
        problems += column_problems(self.values, (self.by, self.time))
        if not self.console and self.output_topic is None:
            problems.append("cannot show the results: set a topic, or use the console")
        problems += self.source.target_problems(self.output_topic, self.dead_letter_topic)
        if problems:
            raise ConfigError(problems)
