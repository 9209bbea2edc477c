"""Names of the metadata.version levels, which determine the contents of KRaft records.

Source: Kafka 4.3 MetadataVersion.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

METADATA_VERSIONS: Final[Mapping[int, str]] = dict(
    enumerate(
        (
            "3.0-IV1", "3.1-IV0", "3.2-IV0", "3.3-IV0", "3.3-IV1", "3.3-IV2", "3.3-IV3",
            "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2",
            "3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0",
            "4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0", "4.1-IV1", "4.2-IV0",
            "4.2-IV1", "4.3-IV0",
        ),
        # Versions before 3.0-IV1 have no level. KRaft records contain the level, so the numbers of
        # existing names never change.
        start=1,
    )
)  # fmt: skip
"""The name of each level, by number."""
