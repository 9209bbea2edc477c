"""Language for declaring the structs of Kafka's protocol and the versions of their fields.

A struct is a class whose attributes are its fields, in wire order. Annotations determine the types
on the wire, and `field` sets the versions:

    class TopicProduceData(Struct):
        name: str = field("0-12", ignorable=True)
        topic_id: uuid = field("13+", ignorable=True)
        partition_data: list[PartitionProduceData] = field()

The type of a nested struct is its class. ``list`` is an array, and ``| None`` makes a field
nullable. Every field has a default, so `TopicProduceData()` is a valid value. Instances have slots,
`==` and a repr without default values. encoder.py and decoder.py generate code from
`Struct.fields`. Source: Kafka 4.3's message definitions, with the semantics of its generator.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import (
    Annotated,
    Any,
    NamedTuple,
    TypeAlias,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from plog.types import ZERO_UUID, Uuid
from plog.wire.primitives import Part

LAST_VERSION = 0x7FFF
"""The end of an open range, such as "3+"; no message has a version this large."""


class Versions(NamedTuple):
    """A range of versions, including both ends; empty if `first` is above `last`."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Parse a range in Kafka's notation.

        >>> Versions.parse("3+"), Versions.parse("0-12").last, Versions.parse("7").last
        (Versions(first=3, last=32767), 12, 7)
        """
        if text == "none":
            # An empty range, whose first version is above all versions that a request can contain.
            return cls(LAST_VERSION + 1, LAST_VERSION)
        first, separator, last = text.rstrip("+").partition("-")
        if text.endswith("+"):
            return cls(int(first), LAST_VERSION)
        return cls(int(first), int(last) if separator else int(first))

    def has(self, version: int) -> bool:
        """Return whether `version` is in the range."""
        return self.first <= version <= self.last


@dataclass(frozen=True, slots=True)
class Fixed:
    """A type of constant size; `code` is its code in the struct module."""

    code: str
    size: int
    default: int | float | bytes


@dataclass(frozen=True, slots=True)
class Text:
    """A UTF-8 string, preceded by its length."""


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes, preceded by their length. Records are neither copied nor parsed."""

    is_records: bool = False


@dataclass(frozen=True, slots=True)
class Array:
    """Elements of one type, preceded by their count."""

    element: WireType


@dataclass(frozen=True, slots=True)
class Nested:
    """A struct that is the value of a field or an array element."""

    struct: type[Struct]


WireType: TypeAlias = Fixed | Text | Blob | Array | Nested

int8: TypeAlias = Annotated[int, Fixed("b", 1, 0)]
int16: TypeAlias = Annotated[int, Fixed("h", 2, 0)]
uint16: TypeAlias = Annotated[int, Fixed("H", 2, 0)]
int32: TypeAlias = Annotated[int, Fixed("i", 4, 0)]
uint32: TypeAlias = Annotated[int, Fixed("I", 4, 0)]
int64: TypeAlias = Annotated[int, Fixed("q", 8, 0)]
float64: TypeAlias = Annotated[float, Fixed("d", 8, 0.0)]
uuid: TypeAlias = Annotated[Uuid, Fixed("16s", 16, ZERO_UUID)]
Records: TypeAlias = Annotated[Part, Blob(is_records=True)]
"""Record batches: decoding returns a memoryview; encoding also accepts bytes or a Passthrough."""

# These Python types have only one form on the wire, so they need no alias.
_PLAIN_TYPES: dict[Any, WireType] = {
    bool: Fixed("?", 1, False),
    str: Text(),
    bytes: Blob(),
}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct, as the code generators use it."""

    name: str
    type: WireType
    versions: Versions
    nullable: Versions
    tag: int | None
    default: Any
    ignorable: bool

    @property
    def has_fresh_default(self) -> bool:
        """Whether each instance needs its own default, because the value is mutable."""
        return self.default is not None and isinstance(self.type, Array | Nested)

    @property
    def can_be_null(self) -> bool:
        """Whether the field is nullable in any version."""
        return self.nullable.first <= self.nullable.last

    def is_nullable(self, version: int) -> bool:
        """Return whether the field is nullable in this version."""
        return self.nullable.has(version)


_UNSET: Any = object()
"""The default for arguments that were not given."""


@dataclass(frozen=True, slots=True)
class _Declaration:
    versions: str
    nullable: str | None
    tag: int | None
    default: Any
    ignorable: bool


def field(
    versions: str = "0+",
    *,
    nullable: str | None = None,
    tag: int | None = None,
    default: Any = _UNSET,
    ignorable: bool = False,
) -> Any:
    """Declare a field.

    Args:
        versions: Versions that have the field: "3+", "0-12", "7". As in Kafka's definitions, the
            range can include versions that the message no longer has.
        nullable: Versions in which a ``| None`` field can be null, if not in all its versions.
        tag: Number of a tagged field (KIP-482).
        default: Value in versions that lack the field; zero or empty if not given.
        ignorable: Whether encoding a version that lacks the field drops its value. By default,
            encoding fails if the value is not the default.
    """
    # Declared to return Any, so that type checkers accept it as an attribute's default.
    return _Declaration(versions, nullable, tag, default, ignorable)


def _wire_type(hint: Any) -> tuple[WireType, bool]:
    """Return the wire type of an annotation, and whether it allows None."""
    # ``X | None`` is a UnionType if X is a class, and a Union if X is one of the aliases above.
    if get_origin(hint) in (Union, types.UnionType):
        (inner,) = (choice for choice in get_args(hint) if choice is not types.NoneType)
        return _wire_type(inner)[0], True
    if get_origin(hint) is Annotated:
        marker = hint.__metadata__[0]
        assert isinstance(marker, Fixed | Blob)
        return marker, False
    if get_origin(hint) is list:
        return Array(_wire_type(get_args(hint)[0])[0]), False
    if isinstance(hint, type) and issubclass(hint, Struct):
        return Nested(hint), False
    return _PLAIN_TYPES[hint], False


def _default_of(wire_type: WireType) -> Any:
    match wire_type:
        case Fixed():
            return wire_type.default
        case Text():
            return ""
        case Blob():
            # As in Kafka, records are null by default.
            return None if wire_type.is_records else b""
        case Array():
            return []
        case Nested():
            return wire_type.struct()


def _resolve(name: str, declaration: _Declaration, hint: Any) -> Field:
    wire_type, allows_none = _wire_type(hint)
    versions = Versions.parse(declaration.versions)
    nullable = Versions.parse("none")
    if allows_none:
        nullable = Versions.parse(declaration.nullable or declaration.versions)
    default = declaration.default
    return Field(
        name=name,
        type=wire_type,
        versions=versions,
        nullable=nullable,
        tag=declaration.tag,
        default=_default_of(wire_type) if default is _UNSET else default,
        ignorable=declaration.ignorable,
    )


def _compile_init(fields: tuple[Field, ...]) -> Callable[..., None]:
    """Return an `__init__` with a keyword for each field."""
    # Generated code is five times as fast as a loop over the fields.
    namespace: dict[str, Any] = {"_UNSET": _UNSET}
    parameters, statements = [], ["pass"]  # Needed if the struct has no fields.
    for item in fields:
        value = item.name
        if item.has_fresh_default:
            # Python evaluates defaults once, so all instances would share the same list or struct.
            parameters.append(f"{item.name}=_UNSET")
            fresh = "[]"
            if isinstance(item.type, Nested):
                namespace[f"_new_{item.name}"] = item.type.struct
                fresh = f"_new_{item.name}()"
            value = f"{fresh} if {item.name} is _UNSET else {item.name}"
        else:
            namespace[f"_default_{item.name}"] = item.default
            parameters.append(f"{item.name}=_default_{item.name}")
        statements.append(f"self.{item.name} = {value}")
    signature = ", ".join(["self", *(["*"] if parameters else []), *parameters])
    body = "\n    ".join(statements)
    exec(f"def __init__({signature}):\n    {body}", namespace)  # noqa: S102 - our own tables
    init: Callable[..., None] = namespace["__init__"]
    return init


# field_specifiers deliberately omits `field`: a type checker would otherwise treat a field without
# default= as a required argument, but in Kafka all fields have a default.
@dataclass_transform(kw_only_default=True)
class StructType(type):
    """The metaclass of structs, which turns declared fields into slots and an `__init__`."""

    _declared: dict[str, _Declaration] = {}
    _fields: tuple[Field, ...] | None = ()

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> StructType:
        declared = {key: x for key, x in namespace.items() if isinstance(x, _Declaration)}
        # The declarations are removed, because a class attribute must not have a slot's name.
        rest = {key: x for key, x in namespace.items() if key not in declared}
        # Fields are resolved, and the `__init__` is compiled, at the first use of a struct: a
        # broker imports all messages but uses few, and preparing all of them took a tenth of its
        # startup time.
        if declared:
            rest |= {"_declared": declared, "_fields": None, "__init__": _first_init}
        return super().__new__(cls, name, bases, rest | {"__slots__": tuple(declared)}, **options)

    @property
    def fields(cls) -> tuple[Field, ...]:
        """The declared fields, in wire order."""
        if cls._fields is None:
            # Annotations are strings here, and without the extras, int16 and int32 would both be
            # int.
            hints = get_type_hints(cls, include_extras=True)
            cls._fields = tuple(_resolve(key, x, hints[key]) for key, x in cls._declared.items())
        return cls._fields


def _first_init(self: Struct, **values: Any) -> None:
    """Compile the struct's real `__init__`, which replaces this function, and call it."""
    struct = type(self)
    struct.__init__ = _compile_init(struct.fields)  # type: ignore[method-assign]  # made by exec
    struct.__init__(self, **values)


class Struct(metaclass=StructType):
    """A group of fields. Instances are mutable and therefore not hashable."""

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, x.name) == getattr(other, x.name) for x in type(self).fields)

    def __repr__(self) -> str:
        # Most fields have their default, and would hide the few that differ.
        values = ((item, getattr(self, item.name)) for item in type(self).fields)
        shown = (f"{item.name}={value!r}" for item, value in values if value != item.default)
        return f"{type(self).__name__}({', '.join(shown)})"
