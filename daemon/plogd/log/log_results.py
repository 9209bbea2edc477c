"""The results of `Log` methods: the outcome of an append, and the bytes that a read returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from plog.errors import KafkaError
from plogd.log.segment.file_records import FileRegion
from plogd.log.segment.transaction_index import AbortedTransaction


class Writing:
    """The state of a batch that a job writes: pending, written or failed.

    Used while the disk is slow (disk/slow_disk_writes.py).
    """

    __slots__ = ("error", "is_written")

    def __init__(self) -> None:
        self.is_written = False
        self.error: KafkaError | None = None
        """The reason why the write failed; if set, other records will get the batch's offsets."""


class AppendInfo(NamedTuple):
    """The outcome of an append; `last_offset` is inclusive, and timestamps are in ms or -1."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False
    """Whether the batch was already in the log; the offsets are those of its first append."""
    writing: Writing | None = None
    """Set if a job writes the batch, which then has offsets but is not in the log yet."""

    @classmethod
    def written(cls, first: int, last: int, log_append_time_ms: int, log_start: int) -> AppendInfo:
        """Return the outcome of an append that is in the log."""
        # Faster than a call of the class; this runs for every produced batch.
        return tuple.__new__(cls, (first, last, log_append_time_ms, log_start, False, None))


class FetchData(NamedTuple):
    """The bytes that a read returns: whole batches, but `max_bytes` may truncate the last one."""

    region: FileRegion | None
    aborted: Sequence[AbortedTransaction] = ()
    """The aborted transactions with records in the region, and possibly a few after it."""

    @property
    def nbytes(self) -> int:
        """Number of bytes to send; 0 if no records are available yet."""
        return 0 if self.region is None else self.region.nbytes


NO_DATA = FetchData(region=None)


def as_fetch_data(region: FileRegion | None) -> FetchData:
    """Return `region` as FetchData; close an empty region and return `NO_DATA`."""
    if region is None:
        return NO_DATA
    if region.nbytes:
        return FetchData(region=region)
    region.close()  # An empty region is never sent, so nothing else would close it.
    return NO_DATA
