"""Code generator for encoders: functions that convert a message of one version into bytes.

An encoder returns a list of parts in wire order. The parts are bytes, except for records, which
remain the same objects, so the encoder never copies a batch. A field that does not exist in the
version is skipped if it is ignorable or has its default value. Otherwise, the encoder raises
UnsupportedVersion, because information would be lost.

A bounded encoder returns None if the arrays have more elements than allowed. A sliced encoder is a
generator: it yields the list of parts after a given number of elements, and the caller empties the
list. An array can be any sized iterable (lazy_array.py).

Names in the generated code: ``message`` is the input, ``parts`` the output, ``x`` the current
value, ``b`` its bytes, ``n`` its length, ``left`` the number of elements left in the slice.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from struct import pack
from typing import Any

from plog.errors import UnsupportedVersion
from plog.wire.generated_source import Source
from plog.wire.primitives import (
    SHORT_VARINTS,
    Part,
    encode_string_length,
    encode_varint,
    records_size,
)
from plog.wire.structs import Array, Blob, Field, Fixed, Nested, Struct, Text, WireType

Encoder = Callable[[Any], list[Part]]
BoundedEncoder = Callable[[Any, int], list[Part] | None]
"""A function that takes the message and the maximum number of elements."""
SlicedEncoder = Callable[[Any, int], Generator[list[Part], None, list[Part]]]
"""A generator function that takes the message and the number of elements in a slice."""

_INT8, _INT16, _INT32 = Fixed("b", 1, 0), Fixed("h", 2, 0), Fixed("i", 4, 0)
_NO_TAGGED_FIELDS = Fixed("x", 1, 0)
"""A pad byte: struct packs it as zero, the number of tagged fields, without a value."""


def compile_encoder(struct: type[Struct], version: int, *, flexible: bool) -> Encoder:
    """Return a version's encoder; flexible versions have compact lengths and tagged fields."""
    return _EncoderWriter(version, flexible).compile(struct, "encoder")


def compile_bounded_encoder(
    struct: type[Struct], version: int, *, flexible: bool
) -> BoundedEncoder:
    """Return an encoder that returns None for a message with too many elements."""
    return _EncoderWriter(version, flexible, "return None").compile(struct, "bounded encoder")


def compile_sliced_encoder(struct: type[Struct], version: int, *, flexible: bool) -> SlicedEncoder:
    """Return an encoder that is a generator and yields after each slice."""
    return _EncoderWriter(version, flexible, "yield parts").compile(struct, "sliced encoder")


def _unsupported(what: str, version: int) -> UnsupportedVersion:
    return UnsupportedVersion(f"{what} is set, but version {version} does not have this field")


class _EncoderWriter:
    """Writes the source code of one encoder, field by field.

    Values of constant size accumulate in `_run` until a value of another kind follows, so that a
    single pack writes all of them. `_add` is the name of the current list's append method: each
    tagged field is encoded into a separate list, because its size precedes it.
    """

    def __init__(self, version: int, flexible: bool, after_slice: str | None = None) -> None:
        self._version = version
        self._flexible = flexible
        self._after_slice = after_slice
        """The statement to run when the slice is used up."""
        self._run: list[tuple[str, Fixed]] = []
        self._add = "add"
        self.source = Source(
            "encode(message, slice_size)" if after_slice else "encode(message)",
            pack=pack,
            SHORT_VARINTS=SHORT_VARINTS,
            encode_varint=encode_varint,
            encode_string_length=encode_string_length,
            records_size=records_size,
            unsupported=_unsupported,
        )
        self.source.line("parts = []")
        self.source.line("add = parts.append")
        if after_slice:
            self.source.line("left = slice_size")

    def compile(self, struct: type[Struct], what: str) -> Callable[..., Any]:
        """Return the compiled function."""
        self.write_struct(struct, "message")
        self.source.line("return parts")
        if what.startswith("sliced"):  # The yield makes it a generator, even without arrays.
            self.source.line("yield")
        return self.source.compile(f"{what} of {struct.__name__} version {self._version}")

    def write_struct(self, struct: type[Struct], value: str) -> None:
        """Write code that encodes the struct in the expression `value`."""
        tagged: list[Field] = []
        for field in struct.fields:
            if not field.versions.has(self._version):
                self._refuse_unless_default(struct, field, value)
            elif field.tag is not None:
                tagged.append(field)
            else:
                self._write_field(field, f"{value}.{field.name}")
        if self._flexible:
            self._write_tagged_fields(tagged, value)
        self._flush()

    # The code generated by Kafka's MessageDataGenerator throws UnsupportedVersionException here.
    def _refuse_unless_default(self, struct: type[Struct], field: Field, value: str) -> None:
        if field.ignorable:
            return
        with self.source.block(f"if {self._differs(field, f'{value}.{field.name}')}:"):
            what = f"{struct.__name__}.{field.name}"
            self.source.line(f"raise unsupported({what!r}, {self._version})")

    def _differs(self, field: Field, value: str) -> str:
        """Return an expression that is true if the field's value is not the default."""
        if field.default is None:
            return f"{value} is not None"
        match field.type:
            case Nested(struct):
                # Compared field by field: `Struct.__eq__` would loop over the fields of each
                # message.
                parts = (self._differs(inner, f"{value}.{inner.name}") for inner in struct.fields)
                differs = " or ".join(parts)
                null = f"{value} is None or " if field.can_be_null else ""
                return f"({null}{differs})"
            case _:
                return f"{value} != {self.source.constant(field.default)}"

    def _write_field(self, field: Field, value: str) -> None:
        self._write_value(field.type, value, nullable=field.is_nullable(self._version))

    def _write_value(self, kind: WireType, value: str, *, nullable: bool) -> None:
        match kind:
            case Fixed():
                self._run.append((value, kind))
            case Nested():
                self._write_nested(kind, value, nullable=nullable)
            case Text() | Blob():
                self._write_bytes(kind, value, nullable=nullable)
            case Array():
                self._write_array(kind, value, nullable=nullable)

    def _write_bytes(self, kind: Text | Blob, value: str, *, nullable: bool) -> None:
        as_bytes = "x.encode()" if isinstance(kind, Text) else "x"
        is_records = isinstance(kind, Blob) and kind.is_records
        size = "records_size(b)" if is_records else "len(b)"
        self.source.line(f"x = {value}")
        if nullable:
            # A null has an empty part, so that both cases share the code that follows.
            with self.source.block("if x is None:"):
                self.source.line("b = b''; n = -1")
            with self.source.block("else:"):
                self.source.line(f"b = {as_bytes}; n = {size}")
        else:
            self.source.line(f"b = {as_bytes}; n = {size}")
        self._write_length(kind)
        self.source.line(f"{self._add}(b)")

    def _write_length(self, kind: WireType) -> None:
        """Write code that encodes ``n`` as the length of a value of this kind; -1 is null."""
        if not self._flexible:
            # A string that is too long does not fit in an int16, which pack reports as an error.
            self._run.append(("n", _INT16 if isinstance(kind, Text) else _INT32))
            self._flush()
            return
        self._flush()
        # A compact length is one higher than its value, because 0 is null (KIP-482).
        longer = "encode_string_length(n)" if isinstance(kind, Text) else "encode_varint(n + 1)"
        self.source.line(f"{self._add}(SHORT_VARINTS[n + 1] if n < 127 else {longer})")

    def _write_array(self, kind: Array, value: str, *, nullable: bool) -> None:
        items = self.source.name("items")
        self.source.line(f"{items} = {value}")
        if nullable:
            self.source.line(f"n = -1 if {items} is None else len({items})")
        else:
            self.source.line(f"n = len({items})")
        self._write_length(kind)
        some = f"{items} or ()" if nullable else items
        element = kind.element
        # Not for UUIDs: struct would read the count before 16s as part of the string's length.
        if isinstance(element, Fixed) and element.size <= 8:
            # Also skips null, for which `n` is -1.
            with self.source.block(f"if {items}:"):
                self.source.line(f"{self._add}(pack(f'>{{n}}{element.code}', *{items}))")
            return
        item = self.source.name("item")
        # Only these elements count toward a slice: a whole array of numbers is packed in one call.
        with self.source.block(f"for {item} in {some}:"):
            if self._after_slice:
                self.source.line("left -= 1")
                with self.source.block("if left < 0:"):
                    self.source.line(self._after_slice)
                    self.source.line("left = slice_size")
            self._write_value(element, item, nullable=False)
            self._flush()

    def _write_nested(self, kind: Nested, value: str, *, nullable: bool) -> None:
        nested = self.source.name("nested")
        if not nullable:
            # A local variable is faster than a chain of attributes, and each field of the struct
            # uses it.
            self.source.line(f"{nested} = {value}")
            self.write_struct(kind.struct, nested)
            return
        self._flush()
        self.source.line(f"{nested} = {value}")
        with self.source.block(f"if {nested} is None:"):
            self.source.line(f"{self._add}(b'\\xff')")  # -1 as an int8; 1 precedes a struct.
        with self.source.block("else:"):
            self._run.append(("1", _INT8))
            self.write_struct(kind.struct, nested)

    def _write_tagged_fields(self, fields: list[Field], value: str) -> None:
        if not fields:
            self._run.append(("", _NO_TAGGED_FIELDS))
            return
        self._flush()
        tags = self.source.name("tags")
        self.source.line(f"{tags} = []")
        # KIP-482 requires ascending tags.
        for field in sorted(fields, key=lambda item: item.tag or 0):
            # A missing tag means the default, so a field with the default value is not sent.
            with self.source.block(f"if {self._differs(field, f'{value}.{field.name}')}:"):
                self._write_tagged_field(field, f"{value}.{field.name}", tags)
        with self.source.block(f"if {tags}:"):
            # Each field adds three parts: tag, size and value.
            self.source.line(f"{self._add}(encode_varint(len({tags}) // 3))")
            self.source.line(f"{self._add}(b''.join({tags}))")
        with self.source.block("else:"):
            self.source.line(f"{self._add}(b'\\0')")

    def _write_tagged_field(self, field: Field, value: str, tags: str) -> None:
        outer, body = self._add, self.source.name("body")
        self.source.line(f"{body} = []")
        self._add = f"{body}.append"
        self._write_field(field, value)
        self._flush()  # Flush while `_add` still names this field's list.
        self._add = outer
        self.source.line(f"b = b''.join({body})")
        tag = self.source.constant(encode_varint(field.tag or 0))
        self.source.line(f"{tags} += ({tag}, encode_varint(len(b)), b)")

    def _flush(self) -> None:
        """Write code that encodes the accumulated values."""
        if not self._run:
            return
        values = [value for value, _ in self._run if value]
        codes = "".join(kind.code for _, kind in self._run)
        if values:
            self.source.line(
                f"{self._add}({self.source.packing(codes, 'pack')}({', '.join(values)}))"
            )
        else:  # Only pad bytes, whose value is constant.
            self.source.line(f"{self._add}({bytes(len(codes))!r})")
        self._run.clear()
