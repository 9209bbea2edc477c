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
        ("upgrade", "name at least one feature to upgrade"),
        ("upgrade --metadata 9.9-IV9", "there is no metadata version 9.9-IV9"),
        ("upgrade --feature a=1 --feature a=2", "named more than once"),
        ("upgrade --feature a=x", "a level is a whole number"),
        ("upgrade --feature a", "is not name=value"),
        ("", "TOOL"),
    ],
)
def test_what_makes_no_sense_is_one_line(features: Run, line: str, told: str) -> None:
    ended = features(*line.split())
    assert ended.code == 1
    assert told in ended.err
    assert len(ended.err.splitlines()) == 1
