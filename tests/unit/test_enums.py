"""Numbers of the protocol: each has one name, whoever speaks of it."""

from __future__ import annotations

import pytest

from plog.client.admin.values import ConfigType
from plog.enums import AlterOperation, ConfigResourceType, WireEnum
from plog.settings import SettingType

KINDS = WireEnum.__subclasses__()


@pytest.mark.parametrize("kind", KINDS)
def test_a_number_nobody_knows_is_told_from_all_others(kind: type[WireEnum]) -> None:
    assert kind(99) is kind["UNKNOWN"]
    assert not kind(99).is_known
    assert [one.is_known for one in kind if one.name != "UNKNOWN"] == [True] * (len(kind) - 1)


def test_what_is_no_number_is_none_of_them() -> None:
    with pytest.raises(ValueError, match="x"):
        ConfigResourceType("x")
    assert AlterOperation(-7) is AlterOperation.UNKNOWN


def test_a_setting_has_one_of_the_types_that_a_broker_tells() -> None:
    told = {kind.name: kind.value for kind in ConfigType if kind.is_known}
    assert told == {kind.name: kind.value for kind in SettingType}
