"""The interface between a `Log` and its `LogManager`: the loaded state, and callbacks.

Recovery (recovery/log_recovery.py) or creation (creation.py) builds a `LogState`. From this state
and its `LogHooks`, `LogManager` creates a `Log`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from plog.types import TopicPartition, Uuid
from plogd.log.leader_epochs import LeaderEpochs
from plogd.log.log_loss import LogLoss
from plogd.log.producer_state import ProducerStateManager
from plogd.log.segment.log_segment import LogSegment
from plogd.ports import Later, Report
from plogd.topic_config import TopicConfig

L = TypeVar("L")


@dataclass(slots=True, kw_only=True)
class LogState:
    """The state of a log that was loaded from disk or created."""

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
    """The value in the checkpoint, limited to the offsets of the log."""
    recovery_point: int
    """All records below this offset were durable before this process started."""
    loss: LogLoss | None = None
    """What the log lacks (rule C2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogHooks(Generic[L]):
    """Callbacks from a `Log` to its `LogManager`; `L` is always `Log`."""

    # Generic, because log.py imports this module, so this module cannot import `Log`.

    seal: Callable[[L, LogSegment, int], None]
    """Make a rolled segment durable in a job, then call `Log.sealed`."""
    retire: Callable[[L, Sequence[LogSegment]], None]
    """Delete segments that were removed from the log, after ``file.delete.delay.ms``."""
    truncate: Callable[[L, int, bool], Later[None]]
    """Remove the records from an offset on, or all records, as truncation.py describes."""
    preallocate: Callable[[L, LogSegment], None]
    """Allocate disk space ahead of the appends to the active segment; never raises."""
    operation_failed: Callable[[str, OSError], None]
    """Handle a failed file operation: take the log directory offline unless the disk is full."""
    report: Report
    on_bug: Callable[[str, Exception], None]
    """Report an unexpected exception as a bug, with its traceback and the failed operation."""
