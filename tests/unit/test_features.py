"""Updates of feature levels: which are accepted, and why others are refused."""

from __future__ import annotations

import pytest

from plog.enums import UpgradeType
from plog.errors import InvalidUpdateVersion
from plogd.features import METADATA_VERSION, SUPPORTED, check_update

FINALIZED = {METADATA_VERSION: 11}


@pytest.mark.parametrize("upgrade_type", [kind for kind in UpgradeType if kind.is_known])
def test_current_level_is_accepted(upgrade_type: int) -> None:
    check_update(METADATA_VERSION, 11, upgrade_type, FINALIZED)


@pytest.mark.parametrize(
    ("feature", "level", "upgrade_type", "why"),
    [
        (METADATA_VERSION, 12, 1, "supports levels 11 to 11"),
        (METADATA_VERSION, 10, 2, "supports levels 11 to 11"),
        (METADATA_VERSION, 0, 3, "supports levels 11 to 11"),
        (METADATA_VERSION, -1, 1, "supports levels 11 to 11"),
        (METADATA_VERSION, 11, 0, "unknown upgrade type 0"),
        (METADATA_VERSION, 11, 4, "unknown upgrade type 4"),
        ("transaction.version", 2, 1, "does not support the feature"),
        ("", 1, 1, "does not support the feature"),
    ],
)
def test_other_levels_are_refused(feature: str, level: int, upgrade_type: int, why: str) -> None:
    with pytest.raises(InvalidUpdateVersion, match=why):
        check_update(feature, level, upgrade_type, FINALIZED)


def test_supported_level_is_refused_when_it_is_not_current() -> None:
    with pytest.raises(InvalidUpdateVersion, match="is 10 and changes only with the broker"):
        check_update(METADATA_VERSION, 11, 1, {METADATA_VERSION: 10})


def test_unimplemented_features_are_not_supported() -> None:
    assert list(SUPPORTED) == [METADATA_VERSION]
