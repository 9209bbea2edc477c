"""What a `Log` returns: the outcome of an append, and the bytes a read found."""

from __future__ import annotations

from typing import NamedTuple

from plogd.log.file_records import FileRegion


class AppendInfo(NamedTuple):
    """What became of an append; offsets are inclusive, timestamps in ms or -1."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False
    """The batch was in the log already; the offsets are those it got then."""


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
