"""What a `Log` is made from, and what it asks of its `LogManager`.

Recovery (log_recovery.py) and creation (creation.py) find or make a `LogState`; `LogManager` opens
a `Log` over it and gives it its `LogHooks`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from plog.types import TopicPartition, Uuid
from plogd.log.leader_epochs import LeaderEpochs
from plogd.log.producer_state import ProducerStateManager
from plogd.log.segment.log_segment import LogSegment
from plogd.ports import Report
from plogd.topic_config import TopicConfig

L = TypeVar("L")


@dataclass(slots=True, kw_only=True)
class LogState:
    """What loading a log found on disk; see log_recovery.py."""

    topic_partition: TopicPartition
    topic_id: Uuid
    directory: str
    log_dir: str
    config: TopicConfig
    segments: list[LogSegment]
    leader_epochs: LeaderEpochs
    producer_state: ProducerStateManager
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    """As it was last written down, but within the log."""
    recovery_point: int
    """Everything below it was durable before this process started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogHooks(Generic[L]):
    """What a log asks of its `LogManager`; `L` is `Log`, whose module imports this one."""

    seal: Callable[[L, LogSegment, int], None]
    """Make a segment that was just rolled durable, in a job, then call `Log.sealed`."""
    retire: Callable[[L, Sequence[LogSegment]], None]
    """Delete segments that are no longer part of the log, after ``file.delete.delay.ms``."""
    operation_failed: Callable[[str, OSError], None]
    """A write failed: the log directory must go offline, unless it merely has no room."""
    report: Report
    on_bug: Callable[[str, Exception], None]
    """An unexpected exception, and where it was raised: to be logged with its traceback."""
