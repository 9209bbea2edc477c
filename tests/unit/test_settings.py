"""plog/settings.py: parsing, validating and printing values."""

from __future__ import annotations

import dataclasses

import pytest

from plog.settings import LONG_MAX, Setting, SettingType, Value, nearest_name, setting, settings_of


def row(type: SettingType, **rest: object) -> Setting:
    return Setting(name="a.b", type=type, default=None, doc="", **rest)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("type", "text", "value"),
    [
        (SettingType.BOOLEAN, " TRUE ", True),
        (SettingType.BOOLEAN, "false", False),
        (SettingType.INT, " +7", 7),
        (SettingType.SHORT, "-32768", -32768),
        (SettingType.LONG, "9223372036854775807", LONG_MAX),
        (SettingType.DOUBLE, ".5", 0.5),
        (SettingType.DOUBLE, "1e3", 1000.0),
        (SettingType.STRING, " x ", "x"),
        (SettingType.LIST, "", ()),
        (SettingType.LIST, " a , b", ("a", "b")),
    ],
)
def test_value_is_parsed_by_type(type: SettingType, text: str, value: Value) -> None:
    assert row(type).parse(text) == value


@pytest.mark.parametrize(
    ("type", "text"),
    [
        (SettingType.BOOLEAN, "yes"),
        (SettingType.BOOLEAN, ""),
        (SettingType.INT, ""),
        (SettingType.INT, "1_000"),
        (SettingType.INT, "1.0"),
        (SettingType.INT, "٣"),
        (SettingType.INT, "2147483648"),
        (SettingType.SHORT, "32768"),
        (SettingType.LONG, "9223372036854775808"),
        (SettingType.DOUBLE, "nan"),
        (SettingType.DOUBLE, "1_0"),
        (SettingType.LIST, "a,,b"),
        (SettingType.LIST, "a,a"),
    ],
)
def test_value_of_another_type_is_rejected(type: SettingType, text: str) -> None:
    with pytest.raises(ValueError):
        row(type).parse(text)


def test_error_contains_allowed_values_and_unit() -> None:
    with pytest.raises(ValueError, match=r"too small; allowed: -1, or 1 to 9 \(ms\)"):
        row(SettingType.INT, at_least=1, at_most=9, also=(-1,), unit="ms").parse("0")
    with pytest.raises(ValueError, match=r"too large; allowed: at most 9$"):
        row(SettingType.INT, at_most=9).parse("10")
    with pytest.raises(ValueError, match="not one of the allowed values; allowed: x, y"):
        row(SettingType.STRING, one_of=("x", "y")).parse("X")
    with pytest.raises(ValueError, match="allowed: any of x, y"):
        row(SettingType.LIST, one_of=("x", "y")).parse("x,z")


def test_also_allows_values_outside_bounds() -> None:
    assert row(SettingType.INT, at_least=1, also=(-1,)).parse("-1") == -1


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, None), (True, "true"), (7, "7"), (0.5, "0.5"), ((), ""), (("a", "b"), "a,b")],
)
def test_value_is_printed_as_kafka_does(value: Value, text: str | None) -> None:
    assert row(SettingType.STRING).format(value) == text


def test_password_is_never_shown() -> None:
    assert row(SettingType.PASSWORD).shown("secret") is None
    assert row(SettingType.PASSWORD).sensitive


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    flag: bool = setting("flag", True, "")
    size_bytes: int = setting("size.bytes", 1, "")
    ratio: float = setting("ratio", 0.5, "")
    name: str = setting("name", "x", "")
    names: tuple[str, ...] = setting("names", (), "")
    not_a_setting: int = 3


def test_type_is_inferred_from_default() -> None:
    assert [(name, row.type.name) for name, row in settings_of(Table).items()] == [
        ("flag", "BOOLEAN"),
        ("size.bytes", "INT"),
        ("ratio", "DOUBLE"),
        ("name", "STRING"),
        ("names", "LIST"),
    ]
    assert Table().size_bytes == 1


def test_default_of_none_requires_type() -> None:
    with pytest.raises(TypeError):
        setting("a", None, "")


def test_nearest_name_is_none_for_unrelated_name() -> None:
    assert nearest_name("colour", ["log.dirs", "listeners"]) is None
