"""plog/cli/features.py at a whole broker."""

from __future__ import annotations

import json

import pytest

from plog.cli.features import configure, level_text
from plog.metadata_versions import METADATA_VERSIONS
from plogd.features import METADATA_VERSION_LEVEL, METADATA_VERSION_NAME
from tests.unit.cli.conftest import CliSite, Run


@pytest.fixture
def features(site: CliSite) -> Run:
    """The tool."""
    return site.tool(configure)


def test_levels_are_told_by_name(features: Run) -> None:
    [line] = features("describe").lines
    assert line.split() == [
        "Feature:", "metadata.version", "SupportedMinVersion:", "3.5-IV2",
        "SupportedMaxVersion:", "3.5-IV2", "FinalizedVersionLevel:", "3.5-IV2", "Epoch:", "0",
    ]  # fmt: skip
    [feature] = json.loads(features("--json", "describe").out)["features"]
    assert feature["finalized"] == METADATA_VERSION_LEVEL


def test_the_names_of_levels_are_those_of_the_broker() -> None:
    assert METADATA_VERSIONS[METADATA_VERSION_LEVEL] == METADATA_VERSION_NAME
    assert METADATA_VERSIONS[1] == "3.0-IV1"
    assert METADATA_VERSIONS[30] == "4.3-IV0"
    assert level_text("metadata.version", 99) == "UNKNOWN [99]"
    assert level_text("metadata.version", 0) == "0"


def test_a_level_that_is_there_may_be_asked_for(features: Run) -> None:
    done = features("upgrade", "--metadata", "3.5-IV2")
    assert (done.code, done.out) == (0, "metadata.version was upgraded to 11.\n")
    tried = features("upgrade", "--feature", "metadata.version=11", "--dry-run")
    assert tried.out == "metadata.version can be upgraded to 11.\n"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("upgrade --feature group.version=1", "Could not upgrade group.version to 1. "),
        ("downgrade --metadata 3.3-IV3 --dry-run", "Can not downgrade metadata.version to 7. "),
        ("disable --feature group.version --unsafe", "Could not disable group.version. "),
    ],
)
def test_a_level_that_is_refused_is_told(features: Run, line: str, told: str) -> None:
    ended = features(*line.split())
    assert ended.code == 1
    assert ended.out.startswith(told)
    assert ended.err == "plog: 1 out of 1 operation(s) failed.\n"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("upgrade", "cannot upgrade: no feature given"),
        ("upgrade --metadata 9.9-IV9", "unknown metadata version 9.9-IV9"),
        ("upgrade --feature a=1 --feature a=2", "given more than once"),
        ("upgrade --feature a=x", "the level must be a whole number"),
        ("upgrade --feature a", "is not name=value"),
        ("", "TOOL"),
    ],
)
def test_what_makes_no_sense_is_one_line(features: Run, line: str, told: str) -> None:
    ended = features(*line.split())
    assert ended.code == 1
    assert told in ended.err
    assert len(ended.err.splitlines()) == 1


def test_all_levels_of_a_release_are_asked_for(features: Run) -> None:
    done = features("upgrade", "--release-version", "3.5-IV2", "--dry-run")
    assert (done.code, done.lines) == (0, ["metadata.version can be upgraded to 11."])
    newer = features("upgrade", "--release-version", "4.0")
    assert newer.code == 1
    assert [line.split(".")[0] for line in newer.lines] == [
        "Could not upgrade group", "Could not upgrade kraft", "Could not upgrade metadata",
        "Could not upgrade transaction",
    ]  # fmt: skip
    # Downwards level 0 is meant, too.
    older = features("downgrade", "--release-version", "3.9", "--dry-run")
    assert "Can not downgrade group.version to 0. " in older.out


def test_what_a_release_brings_is_told_without_asking_anybody(site: CliSite) -> None:
    told = site.ended(configure, ["version-mapping", "--release-version", "3.9"])
    assert told.lines == [
        "metadata.version=21 (3.9)", "kraft.version=1", "transaction.version=0",
        "group.version=0", "eligible.leader.replicas.version=0", "share.version=0",
        "streams.version=0",
    ]  # fmt: skip
    latest = json.loads(site.ended(configure, ["--json", "version-mapping"]).out)
    assert latest["release_version"] == "4.3-IV0"
    assert latest["levels"]["metadata.version"] == 30
    unknown = site.ended(configure, ["version-mapping", "--release-version", "3.0"])
    assert unknown.code == 1
    assert unknown.err == (
        "plog: Unknown release version '3.0'. Supported versions are: 3.3-IV3 to 4.3-IV0\n"
    )


def test_what_a_level_needs_is_told(site: CliSite) -> None:
    feature = "eligible.leader.replicas.version=1"
    line = f"feature-dependencies --feature {feature} --feature metadata.version=21"
    assert site.ended(configure, line.split()).lines == [
        f"{feature} requires:",
        "    metadata.version=23 (4.0-IV1)",
        "metadata.version=21 (3.9-IV0) has no dependencies.",
    ]
    [needs] = json.loads(site.ended(configure, ["--json", *line.split()[:3]]).out)
    assert needs["needs"] == {"metadata.version": 23}


@pytest.mark.parametrize(
    ("feature", "told"),
    [
        ("metadata.version=1", "Unknown metadata.version 1"),
        ("foo=1", "Unknown feature: foo"),
        ("group.version=7", "Feature level 7 is not supported for feature group.version"),
        ("group.version=x", "the level must be a whole number"),
        ("group.version", "is not name=value"),
    ],
)
def test_a_level_there_is_not_has_no_needs(site: CliSite, feature: str, told: str) -> None:
    ended = site.ended(configure, ["feature-dependencies", "--feature", feature])
    assert ended.code == 1
    assert told in ended.err


def test_a_release_means_all_features(features: Run) -> None:
    both = features("upgrade", "--release-version", "4.0", "--feature", "group.version=1")
    assert (both.code, both.out) == (1, "")
    assert "do not name others" in both.err
