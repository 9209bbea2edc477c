"""Numbers of the protocol: each has one name in all modules."""

from __future__ import annotations

import pytest

from plog.client.admin.values import ConfigType
from plog.enums import AlterOperation, ConfigResourceType, WireEnum
from plog.settings import SettingType

KINDS = WireEnum.__subclasses__()


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_number_differs_from_all_known_ones(kind: type[WireEnum]) -> None:
    assert kind(99) is kind["UNKNOWN"]
    assert not kind(99).is_known
    assert [one.is_known for one in kind if one.name != "UNKNOWN"] == [True] * (len(kind) - 1)


def test_other_types_are_not_members() -> None:
    with pytest.raises(ValueError, match="x"):
        ConfigResourceType("x")
    assert AlterOperation(-7) is AlterOperation.UNKNOWN


def test_setting_type_is_one_that_brokers_return() -> None:
    names = {kind.name: kind.value for kind in ConfigType if kind.is_known}
    assert names == {kind.name: kind.value for kind in SettingType}
