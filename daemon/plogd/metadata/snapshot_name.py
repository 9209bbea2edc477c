"""The names of metadata snapshots: the end of the records that they replace, as in KIP-630.

Snapshots are in the directory of the metadata log. Readers ignore a file with the suffix ``.part``,
because it is not complete. Source: Kafka 4.3 Snapshots, OffsetAndEpoch.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

CHECKPOINT_SUFFIX: Final = ".checkpoint"
PART_SUFFIX: Final = ".part"
"""Second suffix of a snapshot that is being written."""

_SNAPSHOT_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint", re.ASCII)


# A tuple, so that snapshots are sorted by their offsets and then by their epochs.
class SnapshotName(NamedTuple):
    """The id of a snapshot, which replaces all records below `end_offset`."""

    end_offset: int
    epoch: int
    """The leader epoch of the last of these records."""

    @property
    def file_name(self) -> str:
        """The name of the file.

        >>> SnapshotName(end_offset=123, epoch=4).file_name
        '00000000000000000123-0000000004.checkpoint'
        """
        return f"{self.end_offset:020d}-{self.epoch:010d}{CHECKPOINT_SUFFIX}"


def parse_snapshot_name(name: str) -> SnapshotName | None:
    """Parse the name of a snapshot; return None for other names and for incomplete snapshots.

    >>> parse_snapshot_name("00000000000000000123-0000000004.checkpoint")
    SnapshotName(end_offset=123, epoch=4)
    >>> parse_snapshot_name("00000000000000000123-0000000004.checkpoint.part")
    """
    match = _SNAPSHOT_NAME.fullmatch(name)
    return SnapshotName(int(match[1]), int(match[2])) if match else None
