"""The quorum of the metadata log, as DescribeQuorum shows it (KIP-595)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Quorum:
    """The state of the metadata log, described as a quorum with a single voter."""

    leader_epoch: int
    log_end_offset: int
    high_watermark: int
    log_dir: str
    """The log directory that contains the metadata log."""
