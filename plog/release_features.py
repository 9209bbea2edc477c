"""Feature levels of Apache Kafka's releases, and the dependencies of each level.

The commands `version-mapping` and `feature-dependencies` print the tables, and `features upgrade
--release-version` uses them. The tables describe Kafka; plogd/features.py defines the features of a
plog broker. Source: Kafka 4.3 Feature, MetadataVersion and the versions of each feature; KIP-1022.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from plog.error_base import PlogError
from plog.metadata_versions import METADATA_VERSIONS

METADATA_VERSION: Final = "metadata.version"
FIRST_RELEASE: Final = 7
"""The oldest level of metadata.version that Kafka 4 supports: 3.3-IV3."""
LAST_RELEASE: Final = 30
"""The newest level of metadata.version in Kafka 4.3: 4.3-IV0."""


class FeatureLevel(NamedTuple):
    """A level of a feature."""

    level: int
    release: int
    """The first level of metadata.version for which this level is the default."""
    needs: Mapping[str, int] = {}
    """The levels of other features that this level requires."""


FEATURES: Final[Mapping[str, tuple[FeatureLevel, ...]]] = {
    # KIP-853: the controllers of a quorum can change.
    "kraft.version": (FeatureLevel(0, FIRST_RELEASE), FeatureLevel(1, 21)),
    # Level 1 makes the records of the transaction coordinator flexible, and level 2 enables
    # KIP-890. Both came with the same release, so level 2 is the default there.
    "transaction.version": (
        FeatureLevel(0, FIRST_RELEASE),
        FeatureLevel(1, 24),
        FeatureLevel(2, 24),
    ),
    "group.version": (FeatureLevel(0, FIRST_RELEASE), FeatureLevel(1, 22)),  # KIP-848.
    # KIP-966. The sets are stored in new fields of KRaft records, hence the dependency.
    "eligible.leader.replicas.version": (
        FeatureLevel(0, FIRST_RELEASE),
        FeatureLevel(1, 26, {METADATA_VERSION: 23}),
    ),
    "share.version": (FeatureLevel(0, FIRST_RELEASE), FeatureLevel(1, 28)),  # KIP-932.
    "streams.version": (FeatureLevel(0, FIRST_RELEASE), FeatureLevel(1, 29)),  # KIP-1071.
}
"""The levels of all features except metadata.version, in the order of Kafka's tools."""


class UnknownFeature(PlogError):
    """An unknown release, feature or level; the message lists the known ones."""


def release_level(release: str) -> int:
    """Return the metadata.version level of a release. Raises UnknownFeature.

    Without an internal version ("-IV1"), the name stands for the release's last internal version.

    >>> release_level("3.9-IV0"), release_level("4.0"), release_level("4.0.1")
    (21, 25, 25)
    """
    # Patch releases have no levels of their own.
    short = ".".join(release.split(".")[:2])
    # The search starts at the newest level, to find a release's last internal version first.
    for level in range(LAST_RELEASE, FIRST_RELEASE - 1, -1):
        name = METADATA_VERSIONS[level]
        if short in (name, name.partition("-")[0]):
            return level
    raise UnknownFeature(
        f"Unknown release version '{release}'. Supported versions are: "
        f"{METADATA_VERSIONS[FIRST_RELEASE]} to {METADATA_VERSIONS[LAST_RELEASE]}"
    )


def default_levels(release: int) -> dict[str, int]:
    """Return the default level of every feature in a release, metadata.version first.

    `release` is a metadata.version level.
    """
    levels = {METADATA_VERSION: release}
    for name, known in FEATURES.items():
        # Level 0 of each feature belongs to the first release, so the maximum always exists.
        levels[name] = max(each.level for each in known if each.release <= release)
    return levels


def needed_levels(feature: str, level: int) -> Mapping[str, int]:
    """Return the levels of other features that a level requires. Raises UnknownFeature."""
    if feature == METADATA_VERSION:
        if not FIRST_RELEASE <= level <= LAST_RELEASE:
            raise UnknownFeature(f"Unknown metadata.version {level}")
        # As in Kafka, other features depend on metadata.version, but not the reverse.
        return {}
    if feature not in FEATURES:
        names = ", ".join((METADATA_VERSION, *FEATURES))
        raise UnknownFeature(f"Unknown feature: {feature}. Known features: {names}")
    for known in FEATURES[feature]:
        if known.level == level:
            return known.needs
    levels = ", ".join(str(each.level) for each in FEATURES[feature])
    raise UnknownFeature(
        f"Feature level {level} is not supported for feature {feature}. Supported levels: {levels}"
    )
