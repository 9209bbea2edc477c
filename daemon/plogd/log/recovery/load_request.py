"""The request to load one log: its directory, and its offsets from the checkpoints.

log_loader.py builds the request from the metadata and the log directory's checkpoints.
log_recovery.py loads the log.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from plog.types import TopicPartition, Uuid
from plogd.log.recovery.load_progress import LoadWork
from plogd.topic_config import TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """A log to load, with its offsets from the log directory's checkpoints."""

    topic_partition: TopicPartition
    topic_id: Uuid
    directory: str
    log_dir: str
    config: TopicConfig
    clean: bool
    """Whether the last stop was clean, so that no recovery is needed."""
    recovery_point: int
    high_watermark: int
    log_start_offset: int
    producer_id_expiration_ms: int
    now_ms: int
    monotonic_ms: float
    """The monotonic time that corresponds to `now_ms`."""
    clean_since_ms: int | None = None
    """The wall-clock time of the clean stop; None if unknown."""
    was_recovered: bool = False
    """Whether this process has recovered the log, which is therefore as after a clean stop."""
    leader_epoch: int | None = None
    """The leader epoch that the log is about to enter; None if unknown."""
    knows_log_start: bool = False
    """Whether the checkpoint has an entry for the log; if not, `log_start_offset` is 0."""
    durable_end_offset: int = 0
    """All records below this offset are known to have been on disk; set by `load_log`."""
    work: LoadWork = field(default_factory=LoadWork)
    """Counts the work of loading this log, and ends the work if the broker is stopping."""

    has_other_replicas: bool = False
    """Whether other brokers have replicas, from which lost records can be copied (rule C2)."""

    was_compacted: bool = False
    """Whether a part of the log has been compacted, even if it no longer is."""

    @property
    def may_have_gaps(self) -> bool:
        """Whether offsets can be missing between segments even if nothing is damaged."""
        # Kafka may have compacted the log before plog opened it.
        return self.was_compacted or self.config.is_compacted
