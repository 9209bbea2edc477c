"""What a `Log` returns: the outcome of an append, and the bytes a read found."""

from __future__ import annotations

from typing import NamedTuple

from plog.errors import KafkaError
from plogd.log.segment.file_records import FileRegion


class Writing:
    """What becomes of a batch that a job writes; see lane_writes.py."""

    __slots__ = ("error", "is_written")

    def __init__(self) -> None:
        self.is_written = False
        self.error: KafkaError | None = None
        """Why it is not in the log after all; its offsets go to other records."""


class AppendInfo(NamedTuple):
    """What became of an append; offsets are inclusive, timestamps in ms or -1."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False
    """The batch was in the log already; the offsets are those it got then."""
    writing: Writing | None = None
    """Set while the disk is slow: the batch has its offsets, but is not in the log yet."""


class FetchData(NamedTuple):
    """The bytes a read found: whole batches, but for a last one cut by `max_bytes`."""

    region: FileRegion | None

    @property
    def nbytes(self) -> int:
        """Bytes to send; 0 when there was nothing to read yet."""
        return 0 if self.region is None else self.region.nbytes


NO_DATA = FetchData(region=None)


def as_fetch_data(region: FileRegion) -> FetchData:
    """An empty region would never be sent, and so never be closed."""
    if region.nbytes:
        return FetchData(region=region)
    region.close()
    return NO_DATA
