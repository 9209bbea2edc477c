"""`OffsetBound`: where a query starts or ends, as its options say, before any lookup."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from plog.settings import ConfigError
from plog.types import TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1
"""Offsets that stand for the start and the end of a log, as in ListOffsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetBound:
    """Offsets or times, one for all partitions or one for each; `option` names their option.

    An offset may be EARLIEST or LATEST. A time, in ms since 1970, stands for the first record at or
    after it.
    """

    option: str
    value: int | Mapping[TopicPartition, int]
    is_time: bool = False

    def by_partition(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset or time of each of `partitions`.

        Raises ConfigError if the option names other partitions than these.
        """
        if isinstance(self.value, int):
            return dict.fromkeys(partitions, self.value)
        # As in the connector, the option names exactly the partitions of the query. A partition
        # without an offset has no start, and one that the query does not read is probably
        # misspelled.
        missing = sorted(set(partitions) - self.value.keys())
        if missing:
            special = "" if self.is_time else "; -2 means the earliest offset, -1 the latest"
            text = f"{self.option} lacks {_shown(missing)}; set every partition of the query"
            raise ConfigError([text + special])
        extra = sorted(self.value.keys() - set(partitions))
        if extra:
            text = f"{self.option} contains {_shown(extra)}, which the query does not read"
            raise ConfigError([f"{text}; remove it"])
        return {partition: self.value[partition] for partition in partitions}


def _shown(partitions: list[TopicPartition], most: int = 5) -> str:
    # A query may read thousands of partitions.
    names = ", ".join(map(str, partitions[:most]))
    rest = len(partitions) - most
    return f"{names} and {rest} more" if rest > 0 else names
