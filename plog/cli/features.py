"""``plog features``: describe and change the feature levels of a cluster.

As in Kafka's tool, levels of ``metadata.version`` are printed by name. Source: Kafka 4.3
FeatureCommand, MetadataVersion.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from plog.cli.admin_client import run_admin
from plog.cli.feature_dependencies import (
    configure_feature_dependencies,
    configure_version_mapping,
    level_of,
)
from plog.cli.options import (
    UsageError,
    add_bootstrap_controller_option,
    add_bootstrap_option,
    add_command_config_option,
    key_value,
)
from plog.cli.output import Table, print_json, show
from plog.cli.parser import add_examples, first_line
from plog.client.admin.brokers import (
    BrokerAdmin,
    FeatureMetadata,
    FeatureUpdate,
)
from plog.client.network.cluster import Cluster
from plog.enums import UpgradeType
from plog.errors import KafkaError, PlogError
from plog.metadata_versions import METADATA_VERSIONS
from plog.release_features import METADATA_VERSION, UnknownFeature, default_levels, release_level


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe a cluster's features and change their levels."""
    # As in Kafka's tool, these options come before the subcommand.
    add_bootstrap_option(parser, required=False)
    add_bootstrap_controller_option(parser)
    add_command_config_option(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    tools = parser.add_subparsers(title="tools", metavar="TOOL", required=True)
    for name, configure_tool in (
        ("describe", configure_describe),
        ("upgrade", configure_upgrade),
        ("downgrade", configure_downgrade),
        ("disable", configure_disable),
        ("version-mapping", configure_version_mapping),
        ("feature-dependencies", configure_feature_dependencies),
    ):
        summary = first_line(configure_tool.__doc__)
        configure_tool(tools.add_parser(name, help=summary, description=summary))
    add_examples(
        parser,
        ("show the current levels", "plog features --bootstrap-server localhost:9092 describe"),
        ("show the levels for a release", "plog features version-mapping --release-version 4.0"),
    )


def configure_describe(parser: argparse.ArgumentParser) -> None:
    """Describe the levels of features."""
    # Brokers of different versions support different levels (KIP-1160).
    parser.add_argument(
        "--node-id", type=int, metavar="BROKER", help="id of the broker to query (default: any)"
    )
    parser.set_defaults(
        run=lambda arguments: run_admin(arguments, lambda c: describe(c, arguments))
    )


def configure_upgrade(parser: argparse.ArgumentParser) -> None:
    """Upgrade features to higher levels."""
    _add_update_options(parser)
    parser.set_defaults(run=lambda arguments: run_update("upgrade", arguments))


def configure_downgrade(parser: argparse.ArgumentParser) -> None:
    """Downgrade features to lower levels."""
    _add_update_options(parser)
    _add_unsafe(parser)
    parser.set_defaults(run=lambda arguments: run_update("downgrade", arguments))


def configure_disable(parser: argparse.ArgumentParser) -> None:
    """Disable features, which sets their level to 0."""
    parser.add_argument(
        "--feature",
        action="append",
        default=[],
        metavar="NAME",
        help="feature to disable; may be repeated",
    )
    _add_unsafe(parser)
    _add_dry_run(parser)
    parser.set_defaults(run=lambda arguments: run_update("disable", arguments))


def _add_update_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--metadata",
        metavar="VERSION",
        help="level of metadata.version, by name, such as 3.5-IV2",
    )
    parser.add_argument(
        "--release-version",
        metavar="RELEASE",
        help="set all features to the levels that 'version-mapping' prints for this release",
    )
    parser.add_argument(
        "--feature",
        action="append",
        default=[],
        type=key_value,
        metavar="NAME=LEVEL",
        help="feature and its new level; may be repeated",
    )
    _add_dry_run(parser)


def _add_unsafe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--unsafe", action="store_true", help="proceed even if metadata may be lost permanently"
    )


def _add_dry_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="validate without changing anything")


def level_text(feature: str, level: int) -> str:
    """Return the name of a level, or the number of a level without a name.

    >>> level_text("metadata.version", 11), level_text("group.version", 1)
    ('3.5-IV2', '1')
    """
    if feature != METADATA_VERSION:
        return str(level)
    # Level 0, which has no name, means that the feature is disabled.
    return METADATA_VERSIONS.get(level, f"UNKNOWN [{level}]") if level else "0"


async def describe(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Print the supported and finalized levels of each feature."""
    features = await BrokerAdmin(cluster).describe_features(arguments.node_id)
    epoch = "-" if features.finalized_epoch is None else features.finalized_epoch
    rows = _rows(features)
    show(
        lambda: (
            f"Feature: {name:<42}SupportedMinVersion: {low:<17}SupportedMaxVersion: {high:<17}"
            f"FinalizedVersionLevel: {level:<17}Epoch: {epoch}"
            for name, low, high, level in rows
        ),
        lambda: [Table(("FEATURE", "SUPPORTED FROM", "TO", "FINALIZED"), rows)],
        lambda: {
            "epoch": features.finalized_epoch,
            "features": [
                {
                    "feature": name,
                    "supported_min": served.lowest,
                    "supported_max": served.highest,
                    "finalized": _finalized(features, name),
                }
                for name, served in features.supported.items()
            ],
        },
        as_json=arguments.json,
    )
    return 0


def _rows(features: FeatureMetadata) -> list[tuple[str, str, str, str]]:
    return [
        (
            name,
            level_text(name, served.lowest),
            level_text(name, served.highest),
            level_text(name, _finalized(features, name)),
        )
        for name, served in sorted(features.supported.items())
    ]


def _finalized(features: FeatureMetadata, name: str) -> int:
    # A feature without a finalized level is disabled, which is level 0.
    level = features.finalized.get(name)
    return level.highest if level else 0


def run_update(verb: str, arguments: argparse.Namespace) -> int:
    """Change levels; with ``--dry-run``, only validate the change."""
    levels = requested_levels(verb, arguments)
    if verb == "upgrade":
        # An upgrade is never unsafe: a level that is lower than the current one is an error.
        kind = UpgradeType.UPGRADE
    else:
        # The controller refuses a safe downgrade that would lose metadata (KIP-778).
        kind = UpgradeType.UNSAFE_DOWNGRADE if arguments.unsafe else UpgradeType.SAFE_DOWNGRADE
    updates = {name: FeatureUpdate(level, kind) for name, level in levels.items()}
    return run_admin(arguments, lambda cluster: update(cluster, verb, updates, arguments))


def requested_levels(verb: str, arguments: argparse.Namespace) -> dict[str, int]:
    """Return the levels that the options request. Raises UsageError."""
    if verb == "disable":
        # The protocol does not have a separate request: setting level 0 disables a feature.
        given = [(name, "0") for name in arguments.feature]
    elif arguments.release_version is not None:
        if arguments.metadata is not None or arguments.feature:
            raise UsageError("--release-version sets all features: omit --feature and --metadata")
        return _levels_of_release(verb, arguments.release_version)
    else:
        given = list(arguments.feature)
        if arguments.metadata is not None:
            # As text, like the values of --feature, so that the loop below finds a repetition
            # there.
            given.append((METADATA_VERSION, str(_metadata_level(arguments.metadata))))
    if not given:
        raise UsageError(f"cannot {verb}: no feature specified; use --feature")
    levels: dict[str, int] = {}
    for name, text in given:
        # A dictionary would silently keep one of the levels. Kafka's tool rejects them, too.
        if name in levels:
            raise UsageError(f"feature {name} is specified more than once")
        levels[name] = level_of(name, text)
    return levels


def _levels_of_release(verb: str, release: str) -> dict[str, int]:
    """Return a release's levels; an upgrade omits features at level 0."""
    levels = default_levels(release_level(release))
    # A broker that does not know a feature rejects the request, even if the level is 0.
    return {name: level for name, level in levels.items() if level or verb != "upgrade"}


def _metadata_level(version: str) -> int:
    # The text is a level, such as 3.5-IV1, or a release, such as 3.5, which means its last level.
    by_name = {name: level for level, name in METADATA_VERSIONS.items()}
    if version in by_name:
        return by_name[version]
    try:
        return release_level(version)
    except UnknownFeature:
        raise UsageError(
            f"unknown metadata version {version}; use one of "
            # Levels are consecutive from 1, so their number is also the latest level.
            f"{METADATA_VERSIONS[1]} to {METADATA_VERSIONS[len(METADATA_VERSIONS)]}"
        ) from None


async def update(
    cluster: Cluster, verb: str, updates: Mapping[str, FeatureUpdate], arguments: argparse.Namespace
) -> int:
    """Change levels and print each feature's result. Raises PlogError if a change failed."""
    dry_run = arguments.dry_run
    done = await BrokerAdmin(cluster).update_features(updates, validate_only=dry_run)
    if arguments.json:
        print_json(
            [
                {"feature": name, "error": x.message if isinstance(x, KafkaError) else None}
                for name, x in done.items()
            ]
        )
    else:
        for name in sorted(done):
            print(_result_line(verb, name, updates[name].level, done[name], dry_run))
    # As in Kafka's tool, the error comes after the results of all features.
    if done.errors:
        raise PlogError(f"{len(done.errors)} out of {len(updates)} operation(s) failed.")
    return 0


def _result_line(
    verb: str, name: str, level: int, outcome: KafkaError | None, dry_run: bool
) -> str:
    if isinstance(outcome, KafkaError):
        change = f"disable {name}" if verb == "disable" else f"{verb} {name} to {level}"
        return f"{'Can' if dry_run else 'Could'} not {change}. {outcome.message}"
    result = "disabled." if verb == "disable" else f"{verb}d to {level}."
    return f"{name} {'can be' if dry_run else 'was'} {result}"
