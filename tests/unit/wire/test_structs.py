"""plog/wire/structs.py: defaults, equality and repr of declared structs."""

from __future__ import annotations

import pytest

from plog.types import ZERO_UUID
from plog.wire.structs import Struct, Versions, field, int16, int32, uuid


class Point(Struct):
    """A nested struct."""

    x: int32 = field()
    y: int32 = field(default=-1)


class Shape(Struct):
    """One field of each type with its own default."""

    name: str = field()
    topic_id: uuid = field("2+")
    corners: list[Point] = field()
    centre: Point = field("3+", tag=0)
    label: str | None = field(nullable="1+")
    note: str | None = field("1-3", default=None)
    data: bytes = field()
    is_open: bool = field(default=True)
    size: int16 = field()


class Nothing(Struct):
    """A struct without fields, like some responses."""


def test_every_field_has_a_default() -> None:
    shape = Shape()
    assert (shape.name, shape.topic_id, shape.corners) == ("", ZERO_UUID, [])
    assert (shape.centre, shape.label, shape.note) == (Point(x=0, y=-1), "", None)
    assert (shape.data, shape.is_open, shape.size) == (b"", True, 0)


def test_mutable_defaults_are_not_shared() -> None:
    changed = Shape()
    changed.corners.append(Point())
    changed.centre.x = 7
    assert Shape().corners == []
    assert Shape().centre.x == 0


def test_structs_with_equal_types_and_values_are_equal() -> None:
    assert Shape(corners=[Point(x=1)]) == Shape(corners=[Point(x=1)])
    assert Shape(corners=[Point(x=1)]) != Shape(corners=[Point(x=2)])
    assert Nothing() == Nothing()
    assert Point() != Nothing()


def test_repr_omits_default_values() -> None:
    shape = Shape(name="box", corners=[Point(x=3)])
    assert repr(shape) == "Shape(name='box', corners=[Point(x=3)])"
    assert repr(Nothing()) == "Nothing()"


def test_undeclared_field_is_rejected() -> None:
    with pytest.raises(TypeError, match="title"):
        Shape(title="box")  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Shape().title = "box"  # type: ignore[attr-defined]


def test_values_are_keyword_only() -> None:
    with pytest.raises(TypeError, match="positional"):
        Point(1, 2)  # type: ignore[call-arg]


def test_field_is_nullable_in_declared_versions() -> None:
    fields = {item.name: item for item in Shape.fields}
    assert [fields["label"].is_nullable(version) for version in range(3)] == [False, True, True]
    assert [fields["note"].is_nullable(version) for version in (0, 1, 3, 4)] == [
        False,
        True,
        True,
        False,
    ]
    assert not fields["name"].is_nullable(0)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("0+", (0, 32767), ()), ("3-5", (3, 4, 5), (2, 6)), ("7", (7,), (6, 8)), ("none", (), (0, 1))],
)
def test_versions_are_parsed_in_kafkas_notation(
    text: str, inside: tuple[int, ...], outside: tuple[int, ...]
) -> None:
    versions = Versions.parse(text)
    assert all(versions.has(version) for version in inside)
    assert not any(versions.has(version) for version in outside)
