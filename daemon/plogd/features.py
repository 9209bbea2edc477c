"""The features of the cluster: at which levels this broker could run them, and what may be changed.

There is one, ``metadata.version``: what a reader of the metadata log must know. Its level is
written when the log is made and belongs to the records that are written, so to the broker's own
version; a client may ask for the level that is there, and is refused any other. Features that Kafka
finalizes for its clients (transaction.version, group.version, …) are not in here until they are
built, so that no client relies on them.

Source: Kafka 4.0 FeatureControlManager, QuorumFeatures; KIP-584, KIP-778.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from plog.enums import UpgradeType
from plog.errors import InvalidUpdateVersion

METADATA_VERSION: Final = "metadata.version"
METADATA_VERSION_NAME: Final = "3.5-IV2"
METADATA_VERSION_LEVEL: Final = 11
"""The level of that name: what a reader must know to understand the records written here, of which
those of SCRAM users came last. A log that began at a lower level is raised at the next start."""


class Levels(NamedTuple):
    """The levels this broker could run a feature at, both ends included."""

    first: int
    last: int


SUPPORTED: Final[Mapping[str, Levels]] = {
    METADATA_VERSION: Levels(METADATA_VERSION_LEVEL, METADATA_VERSION_LEVEL)
}


def check_update(feature: str, level: int, upgrade_type: int, finalized: Mapping[str, int]) -> None:
    """Raise InvalidUpdateVersion unless `feature` has this level, which then stays."""
    problem = _problem(feature, level, upgrade_type, finalized)
    if problem is not None:
        raise InvalidUpdateVersion(f"{feature} cannot be set to level {level}: {problem}")


def _problem(
    feature: str, level: int, upgrade_type: int, finalized: Mapping[str, int]
) -> str | None:
    if not UpgradeType(upgrade_type).is_known:
        return f"there is no upgrade type {upgrade_type}"
    if feature not in SUPPORTED:
        return "this broker has no such feature"
    levels, current = SUPPORTED[feature], finalized.get(feature, 0)
    if not levels.first <= level <= levels.last:
        return f"this broker supports levels {levels.first} to {levels.last}"
    if level != current:
        return f"it changes only with the broker's own version, and is {current}"
    return None
