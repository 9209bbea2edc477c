"""Levels of features: what may be asked for, and why not."""

from __future__ import annotations

import pytest

from plog.enums import UpgradeType
from plog.errors import InvalidUpdateVersion
from plogd.features import METADATA_VERSION, SUPPORTED, check_update

FINALIZED = {METADATA_VERSION: 11}


@pytest.mark.parametrize("upgrade_type", [kind for kind in UpgradeType if kind.is_known])
def test_the_level_that_is_there_may_be_asked_for(upgrade_type: int) -> None:
    check_update(METADATA_VERSION, 11, upgrade_type, FINALIZED)


@pytest.mark.parametrize(
    ("feature", "level", "upgrade_type", "why"),
    [
        (METADATA_VERSION, 12, 1, "supports levels 11 to 11"),
        (METADATA_VERSION, 10, 2, "supports levels 11 to 11"),
        (METADATA_VERSION, 0, 3, "supports levels 11 to 11"),
        (METADATA_VERSION, -1, 1, "supports levels 11 to 11"),
        (METADATA_VERSION, 11, 0, "no upgrade type 0"),
        (METADATA_VERSION, 11, 4, "no upgrade type 4"),
        ("transaction.version", 2, 1, "no such feature"),
        ("", 1, 1, "no such feature"),
    ],
)
def test_any_other_is_refused(feature: str, level: int, upgrade_type: int, why: str) -> None:
    with pytest.raises(InvalidUpdateVersion, match=why):
        check_update(feature, level, upgrade_type, FINALIZED)


def test_a_supported_level_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidUpdateVersion, match="with the broker's own version, and is 10"):
        check_update(METADATA_VERSION, 11, 1, {METADATA_VERSION: 10})


def test_features_clients_would_rely_on_are_not_promised() -> None:
    assert list(SUPPORTED) == [METADATA_VERSION]
