"""`SearchIndexOptions`: what the job ``search-index`` reads and writes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from plog.settings import ConfigError, nearest_name
from plog.spark.jobs.job_source import JobSource, JobTrigger
from plog.spark.jobs.value_format import RAW, ValueFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchIndexOptions:
    """The index is the folder `index` of the local file system."""

    source: JobSource
    index: Path
    checkpoint: str
    # The default of the other jobs, raw, has no text.
    values: ValueFormat = field(default_factory=lambda: ValueFormat(name="text"))
    texts: tuple[str, ...] = ()
    """The fields that are indexed; by default, all fields that are strings."""
    shards: int | None = None
    """The number of files of a new index, and of tasks that write it; None is the default."""
    tokenizer: str | None = None
    dead_letter_topic: str | None = None
    trigger: JobTrigger = field(default_factory=JobTrigger)

    def __post_init__(self) -> None:
        problems = self.source.target_problems(self.dead_letter_topic)
        if self.values.name == RAW:
            problems.append(
                "cannot index values in the format raw: they have no text; set the format text"
            )
        if problems:
            raise ConfigError(problems)


def text_fields(fields: Sequence[tuple[str, str]], wanted: Sequence[str]) -> tuple[str, ...]:
    """Return the fields to index, of the `fields` with their types.

    Raises ConfigError if a wanted field does not exist, or if there is no field with text.

    >>> text_fields([("id", "bigint"), ("title", "string")], [])
    ('title',)
    """
    names = [name for name, _ in fields]
    problems = []
    for name in wanted:
        if name not in names:
            near = nearest_name(name, names)
            hint = f"did you mean {near}?" if near else f"the fields are {', '.join(names)}"
            problems.append(f"cannot index {name}: there is no such field; {hint}")
    found = tuple(wanted) or tuple(name for name, of in fields if of == "string")
    if not found:
        problems.append("cannot index the values: no field is a string; name the fields to index")
    if problems:
        raise ConfigError(problems)
    return found
