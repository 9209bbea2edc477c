"""What loading one log needs to know: where it is, and what the checkpoints say about it.

Made by log_loader.py from the metadata and the log directory's checkpoints; used by
log_recovery.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from plog.types import TopicPartition, Uuid
from plogd.topic_config import TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """One log to load, with what the log directory's checkpoints say of it."""

    topic_partition: TopicPartition
    topic_id: Uuid
    directory: str
    log_dir: str
    config: TopicConfig
    clean: bool
    """The last stop was a clean one: nothing needs to be recovered."""
    recovery_point: int
    high_watermark: int
    log_start_offset: int
    producer_id_expiration_ms: int
    now_ms: int
    monotonic_ms: float
    """The monotonic clock at `now_ms`."""
    leader_epoch: int | None = None
    """The epoch the log is about to be led in; None where that is not known."""
    knows_log_start: bool = False
    """Whether the checkpoint has an entry for the log; otherwise its start is 0."""
    durable_end_offset: int = 0
    """Everything below it is known to have been on the disk; `load_log` looks that up."""

    @property
    def may_have_gaps(self) -> bool:
        """Whether offsets may be missing between its segments without anything being wrong."""
        return "compact" in self.config.cleanup_policy
