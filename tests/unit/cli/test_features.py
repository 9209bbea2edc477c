"""plog/cli/features.py against a simulated broker."""

from __future__ import annotations

import json

import pytest

from plog.cli.features import configure, level_text
from plog.metadata_versions import METADATA_VERSIONS
from plogd.features import METADATA_VERSION_LEVEL, METADATA_VERSION_NAME
from tests.unit.cli.conftest import CliSite, Run


@pytest.fixture
def features(site: CliSite) -> Run:
    """The tool, connected to a broker."""
    return site.tool(configure)


def test_describe_prints_levels_by_name(features: Run) -> None:
    [line] = features("describe").lines
    assert line.split() == [
        "Feature:", "metadata.version", "SupportedMinVersion:", "3.5-IV2",
        "SupportedMaxVersion:", "3.5-IV2", "FinalizedVersionLevel:", "3.5-IV2", "Epoch:", "0",
    ]  # fmt: skip
    [feature] = json.loads(features("--json", "describe").out)["features"]
    assert feature["finalized"] == METADATA_VERSION_LEVEL


def test_level_names_match_the_broker() -> None:
    assert METADATA_VERSIONS[METADATA_VERSION_LEVEL] == METADATA_VERSION_NAME
    assert METADATA_VERSIONS[1] == "3.0-IV1"
    assert METADATA_VERSIONS[30] == "4.3-IV0"
    assert level_text("metadata.version", 99) == "UNKNOWN [99]"
    assert level_text("metadata.version", 0) == "0"


def test_upgrade_to_the_current_level_succeeds(features: Run) -> None:
    done = features("upgrade", "--metadata", "3.5-IV2")
    assert (done.code, done.out) == (0, "metadata.version was upgraded to 11.\n")
    dry_run = features("upgrade", "--feature", "metadata.version=11", "--dry-run")
    assert dry_run.out == "metadata.version can be upgraded to 11.\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("upgrade --feature group.version=1", "Could not upgrade group.version to 1. "),
        ("downgrade --metadata 3.3-IV3 --dry-run", "Can not downgrade metadata.version to 7. "),
        ("disable --feature group.version --unsafe", "Could not disable group.version. "),
    ],
)
def test_failed_change_is_printed(features: Run, line: str, message: str) -> None:
    result = features(*line.split())
    assert result.code == 1
    assert result.out.startswith(message)
    assert result.err == "plog: 1 out of 1 operation(s) failed.\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("upgrade", "cannot upgrade: no feature specified"),
        ("upgrade --metadata 9.9-IV9", "unknown metadata version 9.9-IV9"),
        ("upgrade --feature a=1 --feature a=2", "specified more than once"),
        ("upgrade --feature a=x", "the level must be a whole number"),
        ("upgrade --feature a", "is not name=value"),
        ("", "TOOL"),
    ],
)
def test_usage_error_is_one_line(features: Run, line: str, message: str) -> None:
    result = features(*line.split())
    assert result.code == 1
    assert message in result.err
    assert len(result.err.splitlines()) == 1


def test_release_version_changes_all_features(features: Run) -> None:
    done = features("upgrade", "--release-version", "3.5-IV2", "--dry-run")
    assert (done.code, done.lines) == (0, ["metadata.version can be upgraded to 11."])
    newer = features("upgrade", "--release-version", "4.0")
    assert newer.code == 1
    assert [line.split(".")[0] for line in newer.lines] == [
        "Could not upgrade group", "Could not upgrade kraft", "Could not upgrade metadata",
        "Could not upgrade transaction",
    ]  # fmt: skip
    # A downgrade includes level 0.
    older = features("downgrade", "--release-version", "3.9", "--dry-run")
    assert "Can not downgrade group.version to 0. " in older.out


def test_version_mapping_is_printed_without_a_broker(site: CliSite) -> None:
    mapping = site.run_line(configure, ["version-mapping", "--release-version", "3.9"])
    assert mapping.lines == [
        "metadata.version=21 (3.9)", "kraft.version=1", "transaction.version=0",
        "group.version=0", "eligible.leader.replicas.version=0", "share.version=0",
        "streams.version=0",
    ]  # fmt: skip
    latest = json.loads(site.run_line(configure, ["--json", "version-mapping"]).out)
    assert latest["release_version"] == "4.3-IV0"
    assert latest["levels"]["metadata.version"] == 30
    unknown = site.run_line(configure, ["version-mapping", "--release-version", "3.0"])
    assert unknown.code == 1
    assert unknown.err == (
        "plog: Unknown release version '3.0'. Supported versions are: 3.3-IV3 to 4.3-IV0\n"
    )


def test_feature_dependencies_are_printed(site: CliSite) -> None:
    feature = "eligible.leader.replicas.version=1"
    line = f"feature-dependencies --feature {feature} --feature metadata.version=21"
    assert site.run_line(configure, line.split()).lines == [
        f"{feature} requires:",
        "    metadata.version=23 (4.0-IV1)",
        "metadata.version=21 (3.9-IV0) has no dependencies.",
    ]
    [dependencies] = json.loads(site.run_line(configure, ["--json", *line.split()[:3]]).out)
    assert dependencies["needs"] == {"metadata.version": 23}


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        ("metadata.version=1", "Unknown metadata.version 1"),
        ("foo=1", "Unknown feature: foo"),
        ("group.version=7", "Feature level 7 is not supported for feature group.version"),
        ("group.version=x", "the level must be a whole number"),
        ("group.version", "is not name=value"),
    ],
)
def test_unknown_feature_level_is_an_error(site: CliSite, feature: str, message: str) -> None:
    result = site.run_line(configure, ["feature-dependencies", "--feature", feature])
    assert result.code == 1
    assert message in result.err


def test_release_version_excludes_single_features(features: Run) -> None:
    both = features("upgrade", "--release-version", "4.0", "--feature", "group.version=1")
    assert (both.code, both.out) == (1, "")
    assert "omit --feature and --metadata" in both.err
