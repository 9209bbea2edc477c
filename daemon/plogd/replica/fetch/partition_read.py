"""The result of reading one partition for a fetch.

Source: Kafka 3.9 LogReadInfo, FetchPartitionData.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from plog.errors import KafkaError
from plogd.log.segment.file_records import FileRegion
from plogd.log.segment.transaction_index import AbortedTransaction


class PartitionRead(NamedTuple):
    """The result of reading one partition; the offsets are -1 if `error` is set."""

    error: KafkaError | None
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    region: FileRegion | None = None
    aborted: Sequence[AbortedTransaction] = ()
    """The aborted transactions in the region; only for a read_committed read."""
    diverging_epoch: tuple[int, int] | None = None
    """The epoch, and its end offset, after which the reader's log differs from this log."""
    preferred_replica: int = -1
    """The follower from which the consumer should read instead (KIP-392); -1 for this broker."""
    has_news: bool = False
    """Whether a follower must receive the high watermark without waiting for records."""

    @property
    def nbytes(self) -> int:
        """Size of the records in bytes."""
        return 0 if self.region is None else self.region.nbytes

    @property
    def error_code(self) -> int:
        """The error code, or 0 after a success."""
        return 0 if self.error is None else self.error.code

    @property
    def is_urgent(self) -> bool:
        """Whether the result must be sent without waiting for records."""
        return (
            self.error is not None
            or self.has_news
            or self.preferred_replica >= 0
            or self.diverging_epoch is not None
        )

    def close(self) -> None:
        """Release the region's file, which will not be sent."""
        if self.region is not None:
            self.region.close()
