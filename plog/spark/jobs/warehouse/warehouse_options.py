"""`WarehouseOptions`: what the job ``warehouse`` reads and writes. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from plog.settings import ConfigError
from plog.spark.jobs.job_source import JobSource, JobTrigger
from plog.spark.jobs.value_format import ValueFormat
from plog.spark.jobs.warehouse.merge_planning import MergeLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """The table `output`, which is a folder of the local file system, and its contents."""

    output: Path
    values: ValueFormat = field(default_factory=ValueFormat)
    dead_letter_topic: str | None = None
    """Where values that do not fit go: a topic, or without one, the folder ``_dead_letters``."""
    merges: MergeLimits = field(default_factory=MergeLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseOptions:
    """The options of one query; `checkpoint` is a folder of the local file system, too."""

    source: JobSource
    table: TableOptions
    checkpoint: Path
    trigger: JobTrigger = field(default_factory=JobTrigger)

    def __post_init__(self) -> None:
        problems = self.source.target_problems(self.table.dead_letter_topic)
        if problems:
            raise ConfigError(problems)
