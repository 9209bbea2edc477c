"""`SessionsOptions`: which records form a session, and where the sessions go. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from plog.settings import ConfigError
from plog.spark.jobs.durations import duration_problems
from plog.spark.jobs.event_columns import column_problems
from plog.spark.jobs.job_source import JobSource, JobTrigger
from plog.spark.jobs.value_format import ValueFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsOptions:
    """A session contains records with the same `by`, without a pause of `gap` between them.

    `by`, `time` and `page` are fields or columns of records. With `page`, a session has its first
    and last value. Durations are Spark's, such as ``30 minutes``.
    """

    source: JobSource
    checkpoint: str
    values: ValueFormat = field(default_factory=ValueFormat)
    by: str = "key"
    time: str = "timestamp"
    page: str | None = None
    gap: str = "30 minutes"
    watermark: str = "10 minutes"
    output_topic: str | None = None
    dead_letter_topic: str | None = None
    shown: int = 20
    """The maximum number of sessions of a batch that are printed."""
    trigger: JobTrigger = field(default_factory=JobTrigger)

    def __post_init__(self) -> None:
        problems = duration_problems({"gap": self.gap, "watermark": self.watermark})
        names = [self.by, self.time, *([] if self.page is None else [self.page])]
        problems += column_problems(self.values, names)
        if not self.shown and self.output_topic is None:
            problems.append("cannot show the sessions: set a topic, or print them")
        problems += self.source.target_problems(self.output_topic, self.dead_letter_topic)
        if problems:
            raise ConfigError(problems)
