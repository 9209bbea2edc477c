"""Cluster features: the levels that this broker supports, and the checks for an update.

The only feature is ``metadata.version``, the level that a reader needs to understand the metadata
log. The level is written when the log is created, and depends on the records that this version of
the broker writes. A client may therefore request only the current level.

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
"""The level with that name, which added records for SCRAM users. If a log was created at a lower
level, the next startup raises its level."""


class Levels(NamedTuple):
    """The levels of a feature that this broker supports, including both ends."""

    first: int
    last: int


# Features that Kafka finalizes for clients (transaction.version, group.version, …) are missing
# until they are implemented, because clients rely on a finalized feature.
SUPPORTED: Final[Mapping[str, Levels]] = {
    METADATA_VERSION: Levels(METADATA_VERSION_LEVEL, METADATA_VERSION_LEVEL)
}


def check_update(feature: str, level: int, upgrade_type: int, finalized: Mapping[str, int]) -> None:
    """Raise InvalidUpdateVersion unless `level` is the current level of `feature`."""
    problem = _problem(feature, level, upgrade_type, finalized)
    if problem is not None:
        raise InvalidUpdateVersion(f"cannot set {feature} to level {level}: {problem}")


def _problem(
    feature: str, level: int, upgrade_type: int, finalized: Mapping[str, int]
) -> str | None:
    if not UpgradeType(upgrade_type).is_known:
        return f"unknown upgrade type {upgrade_type}"
    if feature not in SUPPORTED:
        return "this broker does not support the feature"
    # A feature that was never finalized has level 0 (KIP-584).
    levels, current = SUPPORTED[feature], finalized.get(feature, 0)
    if not levels.first <= level <= levels.last:
        return f"this broker supports levels {levels.first} to {levels.last}"
    if level != current:
        return f"the level is {current} and changes only with the broker version"
    return None
