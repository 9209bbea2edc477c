"""plog/enums.py: enums of the protocol."""

from __future__ import annotations

import pytest

from plog.client.admin.values import ConfigType
from plog.enums import AlterOperation, ConfigResourceType, WireEnum
from plog.settings import SettingType

KINDS = WireEnum.__subclasses__()


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_number_becomes_unknown(kind: type[WireEnum]) -> None:
    assert kind(99) is kind["UNKNOWN"]
    assert not kind(99).is_known
    assert [one.is_known for one in kind if one.name != "UNKNOWN"] == [True] * (len(kind) - 1)


def test_value_that_is_not_a_number_is_rejected() -> None:
    with pytest.raises(ValueError, match="x"):
        ConfigResourceType("x")
    assert AlterOperation(-7) is AlterOperation.UNKNOWN


def test_setting_types_are_those_of_describe_configs() -> None:
    described = {kind.name: kind.value for kind in ConfigType if kind.is_known}
    assert described == {kind.name: kind.value for kind in SettingType}
