"""The subcommands ``version-mapping`` and ``feature-dependencies``, which run without a cluster.

They belong to both ``plog features`` and ``plog storage``. Source: Kafka 4.3 FeatureCommand,
StorageTool.
"""

from __future__ import annotations

import argparse

from plog.cli.options import UsageError, key_value
from plog.cli.output import Table, show
from plog.metadata_versions import METADATA_VERSIONS
from plog.release_features import (
    FIRST_RELEASE,
    LAST_RELEASE,
    METADATA_VERSION,
    default_levels,
    needed_levels,
    release_level,
)


def configure_version_mapping(parser: argparse.ArgumentParser) -> None:
    """Print the feature levels of an Apache Kafka release."""
    parser.add_argument(
        "--release-version",
        "-r",
        default=METADATA_VERSIONS[LAST_RELEASE],
        metavar="RELEASE",
        help=f"release {METADATA_VERSIONS[FIRST_RELEASE]} or later, such as 4.0"
        " (default: %(default)s)",
    )
    parser.set_defaults(run=run_version_mapping)


def configure_feature_dependencies(parser: argparse.ArgumentParser) -> None:
    """Print the features that a level of an Apache Kafka feature depends on."""
    parser.add_argument(
        "--feature",
        "-f",
        action="append",
        required=True,
        type=key_value,
        metavar="NAME=LEVEL",
        help="feature and its level; may be repeated",
    )
    parser.set_defaults(run=run_feature_dependencies)


def run_version_mapping(arguments: argparse.Namespace) -> int:
    """Print the feature levels of a release. Raises UnknownFeature."""
    release = arguments.release_version
    levels = default_levels(release_level(release))
    show(
        lambda: (
            f"{name}={level} ({release})" if name == METADATA_VERSION else f"{name}={level}"
            for name, level in levels.items()
        ),
        lambda: [Table(("FEATURE", "LEVEL"), [(n, str(level)) for n, level in levels.items()])],
        lambda: {"release_version": release, "levels": levels},
        # `plog storage` does not have this option.
        as_json=getattr(arguments, "json", False),
    )
    return 0


def run_feature_dependencies(arguments: argparse.Namespace) -> int:
    """Print the dependencies of each level. Raises UnknownFeature or UsageError."""
    requested = [(name, level_of(name, text)) for name, text in arguments.feature]
    # All levels are looked up before the first line is printed, so that an unknown one is the only
    # output.
    needs = [(name, level, dict(needed_levels(name, level))) for name, level in requested]
    show(
        lambda: (line for name, level, needed in needs for line in _lines(name, level, needed)),
        lambda: [
            Table(
                ("FEATURE", "REQUIRES"),
                [
                    (
                        named_level(name, level),
                        " ".join(named_level(*each) for each in some.items()),
                    )
                    for name, level, some in needs
                ],
            )
        ],
        lambda: [{"feature": name, "level": level, "needs": some} for name, level, some in needs],
        as_json=getattr(arguments, "json", False),
    )
    return 0


def _lines(name: str, level: int, needed: dict[str, int]) -> list[str]:
    if not needed:
        return [f"{named_level(name, level)} has no dependencies."]
    return [
        f"{name}={level} requires:",
        *(f"    {named_level(*each)}" for each in needed.items()),
    ]


def named_level(feature: str, level: int) -> str:
    """Return text with a feature, its level and the level's name, if it has one.

    >>> named_level("metadata.version", 21), named_level("group.version", 1)
    ('metadata.version=21 (3.9-IV0)', 'group.version=1')
    """
    text = f"{feature}={level}"
    return f"{text} ({METADATA_VERSIONS[level]})" if feature == METADATA_VERSION else text


def level_of(feature: str, text: str) -> int:
    """Parse the level of a feature. Raises UsageError."""
    # int() would also accept signs, underscores and the digits of other scripts.
    if not (text.isascii() and text.isdecimal()):
        raise UsageError(f"{feature}={text}: the level must be a whole number")
    return int(text)
