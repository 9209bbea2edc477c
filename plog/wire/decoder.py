"""Code generator for decoders: functions that convert bytes into a message of one version.

The generated code does not trust its input. It compares each length with the remaining bytes, and
each count with the minimum size of its elements, so that no allocation exceeds the input.
Reading past the end raises `struct.error` or `IndexError`; `Message.decode` converts both, and
errors from invalid UTF-8, to WireError. Records are not copied; they stay views of the input.

A bounded decoder also limits the total number of array elements, at every depth, and tagged fields.
An element can take a single byte on the wire but several hundred bytes as an object. Small requests
cannot contain many elements, so only large requests need a bounded decoder.

A sliced decoder is a bounded decoder in the form of a generator. It yields after a given number of
elements. Because the connection does not keep the original bytes, the caller then sends a copy of
the input, with which the decoder continues.

Names in the generated code: ``data`` is the input, ``end`` its length, ``p`` the position, ``n``
the last length or count, ``e`` the end of the current value, ``left`` the number of elements that
a bounded decoder still accepts, ``slice_left`` the number of elements left in the slice.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from struct import unpack_from
from typing import Any

from plog.wire.generated_source import Source
from plog.wire.primitives import (
    MAX_STRING_BYTES,
    WireError,
    decode_varint,
    skip_counted_fields,
    skip_tagged_fields,
)
from plog.wire.structs import Array, Blob, Field, Fixed, Nested, Struct, Text, WireType

Decoder = Callable[[memoryview], tuple[Any, int]]
"""A function that returns the decoded struct, and the position after it."""
BoundedDecoder = Callable[[memoryview, int], tuple[Any, int]]
"""A decoder whose second argument is the maximum number of elements."""
SlicedDecoder = Callable[[memoryview, int, int], Generator[None, memoryview, tuple[Any, int]]]
"""A bounded decoder whose third argument is the number of elements in a slice."""

_INT8, _INT16, _INT32 = Fixed("b", 1, 0), Fixed("h", 2, 0), Fixed("i", 4, 0)
# Nearly all varints have one byte, so the first byte is read together with the values of the run.
# decode_varint reads a longer varint again from its start.
_VARINT_START = Fixed("B", 1, 0)


def compile_decoder(struct: type[Struct], version: int, *, flexible: bool) -> Decoder:
    """Return a version's decoder; flexible versions have compact lengths and tagged fields."""
    return _compile(_DecoderWriter(version, flexible, bounded=False), struct, "decoder")


def compile_bounded_decoder(
    struct: type[Struct], version: int, *, flexible: bool
) -> BoundedDecoder:
    """Return a decoder that raises TooManyElements; see `compile_decoder`."""
    return _compile(_DecoderWriter(version, flexible, bounded=True), struct, "bounded decoder")


def compile_sliced_decoder(struct: type[Struct], version: int, *, flexible: bool) -> SlicedDecoder:
    """Return a bounded decoder that is a generator and yields after each slice.

    It must not be used for messages with records, because these would remain views of the first
    input.
    """
    writer = _DecoderWriter(version, flexible, bounded=True, sliced=True)
    return _compile(writer, struct, "sliced decoder")


def _compile(writer: _DecoderWriter, struct: type[Struct], what: str) -> Callable[..., Any]:
    writer.write_struct(struct, "message")
    writer.source.line("return message, p")
    if writer.is_sliced:  # The yield makes it a generator, even if the message has no array.
        writer.source.line("yield")
    return writer.source.compile(f"{what} of {struct.__name__} version {writer.version}")


class TooManyElements(WireError):
    """The arrays of a message together have more elements than allowed."""

    def __init__(self) -> None:
        super().__init__("the message has too many elements")


# Errors are built by functions, so that the generated code of each version stays short.
def _bad_length(what: str, length: int, left: int) -> WireError:
    if length < 0:
        return WireError(f"{what} has a length of {length}")
    return WireError(f"{what} has a length of {length}, but only {left} bytes are left")


def _too_long(what: str, length: int) -> WireError:
    return WireError(f"{what} is {length} bytes long; at most {MAX_STRING_BYTES} are allowed")


class _DecoderWriter:
    """Writes the source code of one decoder, field by field.

    Values of constant size accumulate in `_run` until a value of another kind follows, so that a
    single unpack reads all of them, including the next length.
    """

    def __init__(
        self, version: int, flexible: bool, *, bounded: bool, sliced: bool = False
    ) -> None:
        self.version = version
        self._flexible = flexible
        self._bounded = bounded
        self.is_sliced = sliced
        self._run: list[tuple[str, Fixed]] = []
        arguments = ["data"] + ["left"] * bounded + ["slice_size"] * sliced
        self.source = Source(
            f"decode({', '.join(arguments)})",
            new=object.__new__,  # Without `__init__`: the code assigns every field itself.
            unpack_from=unpack_from,
            decode_varint=decode_varint,
            skip_counted_fields=skip_counted_fields,
            skip_tagged_fields=skip_tagged_fields,
            bad_length=_bad_length,
            too_long=_too_long,
            TooManyElements=TooManyElements,
            WireError=WireError,
        )
        self.source.line("end = len(data)")
        self.source.line("p = 0")
        if sliced:
            self.source.line("slice_left = slice_size")

    def write_struct(self, struct: type[Struct], target: str) -> None:
        """Write code that reads a struct into a new object named `target`."""
        self.source.line(f"{target} = new({self.source.constant(struct)})")
        tagged: list[Field] = []
        for field in struct.fields:
            present = field.versions.has(self.version)
            # A tagged field may be missing in the bytes, so it first gets its default.
            if not present or field.tag is not None:
                self.source.line(f"{target}.{field.name} = {self._default(field)}")
            if present and field.tag is not None:
                tagged.append(field)
            elif present:
                self._write_field(struct, field, target)
        if self._flexible:
            self._write_tagged_fields(struct, tagged, target)
        self._flush()

    def _default(self, field: Field) -> str:
        if not field.has_fresh_default:
            return self.source.constant(field.default)
        if isinstance(field.type, Nested):
            return f"{self.source.constant(field.type.struct)}()"
        # Each message gets its own list; otherwise, messages could change each other's default.
        return "[]"

    def _write_field(self, struct: type[Struct], field: Field, target: str) -> None:
        what = f"{struct.__name__}.{field.name}"
        nullable = field.is_nullable(self.version)
        self._write_value(field.type, f"{target}.{field.name}", what, nullable=nullable)

    def _write_value(self, kind: WireType, target: str, what: str, *, nullable: bool) -> None:
        match kind:
            case Fixed():
                self._run.append((target, kind))
            case Nested():
                self._write_nested(kind, target, nullable=nullable)
            case Text() | Blob():
                self._write_length(_INT16 if isinstance(kind, Text) else _INT32)
                self._write_null_or(target, nullable, lambda: self._write_slice(kind, target, what))
            case Array():
                self._write_length(_INT32)
                self._write_null_or(
                    target, nullable, lambda: self._write_elements(kind, target, what)
                )

    def _write_length(self, classic: Fixed) -> None:
        """Write code that reads a length into ``n``; -1 is null."""
        self._run.append(("n", _VARINT_START if self._flexible else classic))
        self._flush()
        if self._flexible:
            with self.source.block("if n > 127:"):
                self.source.line("n, p = decode_varint(data, p - 1)")
            self.source.line("n -= 1")

    def _write_null_or(self, target: str, nullable: bool, write: Callable[[], None]) -> None:
        # A null in a field that cannot be null fails the length check in `write`.
        if not nullable:
            write()
            return
        with self.source.block("if n < 0:"):
            self.source.line(f"{target} = None")
        with self.source.block("else:"):
            write()
            # Otherwise, the pending values of this branch would also be read for a null.
            self._flush()

    def _write_slice(self, kind: Text | Blob, target: str, what: str) -> None:
        self.source.line("e = p + n")
        # Without the check, Python would silently end the slice at `end`, and a negative length
        # would move the position back.
        with self.source.block("if not p <= e <= end:"):
            self.source.line(f"raise bad_length({what!r}, n, end - p)")
        if isinstance(kind, Text):
            # Kafka's limit. A response that repeats a longer string could not be encoded.
            if self._flexible:
                with self.source.block(f"if n > {MAX_STRING_BYTES}:"):
                    self.source.line(f"raise too_long({what!r}, n)")
            self.source.line(f"{target} = str(data[p:e], 'utf-8')")
        # Records can be megabytes, so they stay a view. Other bytes are copied: the buffer that
        # contains the request is used again for the next one (docs/decisions/0004).
        elif kind.is_records:
            self.source.line(f"{target} = data[p:e]")
        else:
            self.source.line(f"{target} = bytes(data[p:e])")
        self.source.line("p = e")

    def _write_elements(self, kind: Array, target: str, what: str) -> None:
        element = kind.element
        # Checked before the list is created: a request of a few bytes can contain a count of two
        # billion.
        with self.source.block(f"if not 0 <= n * {self._least_size(element)} <= end - p:"):
            self.source.line(f"raise bad_length({what!r}, n, end - p)")
        self._write_count()
        # Not for UUIDs: struct would read the count before 16s as part of the string's length.
        if isinstance(element, Fixed) and element.size <= 8:
            self.source.line(f"{target} = list(unpack_from(f'>{{n}}{element.code}', data, p))")
            self.source.line(f"p += n * {element.size}")
            return
        items, item = self.source.name("items"), self.source.name("item")
        self.source.line(f"{target} = {items} = []")
        with self.source.block("for _ in range(n):"):
            self._write_pause()
            self._write_value(element, item, what, nullable=False)
            self._flush()
            self.source.line(f"{items}.append({item})")

    def _write_count(self) -> None:
        """Write code that counts ``n`` more elements."""
        if self._bounded:
            self.source.line("left -= n")
            with self.source.block("if left < 0:"):
                self.source.line("raise TooManyElements")

    def _write_pause(self) -> None:
        """Write code that yields before the next element if the slice is used up."""
        if self.is_sliced:
            self.source.line("slice_left -= 1")
            with self.source.block("if slice_left < 0:"):
                self.source.line("data = yield")
                self.source.line("slice_left = slice_size")

    def _write_nested(self, kind: Nested, target: str, *, nullable: bool) -> None:
        if nullable:
            self._run.append(("n", _INT8))  # 1 before a struct, -1 for null.
        self._flush()
        nested = self.source.name("nested")

        def write() -> None:
            self.write_struct(kind.struct, nested)
            self.source.line(f"{target} = {nested}")

        self._write_null_or(target, nullable, write)

    def _write_tagged_fields(self, struct: type[Struct], fields: list[Field], target: str) -> None:
        # Nearly all structs have no tagged fields, which is encoded as a single zero byte.
        self._run.append(("n", _VARINT_START))
        self._flush()
        with self.source.block("if n:"):
            if not fields and not self._bounded:
                # The byte in `n` may be only the start of the count, so the function reads it
                # again.
                self.source.line("p = skip_tagged_fields(data, p - 1)")
                return
            tag, tag_end = self.source.name("tag"), self.source.name("tag_end")
            self.source.line("n, p = decode_varint(data, p - 1)")
            # A tagged field takes as little as two bytes, so a request can contain millions of
            # them.
            self._write_count()
            if not fields and not self.is_sliced:
                self.source.line("p = skip_counted_fields(data, p, n)")
                return
            # A sliced decoder also yields between unknown fields: a request can have thousands.
            with self.source.block("for _ in range(n):"):
                self._write_pause()
                self.source.line(f"{tag}, p = decode_varint(data, p)")
                self.source.line("n, p = decode_varint(data, p)")
                # The end of an unknown field may exceed the data. Then the next varint raises an
                # IndexError, or the check after the last field fails.
                self.source.line(f"{tag_end} = p + n")
                for field in fields:
                    with self.source.block(f"if {tag} == {field.tag}:"):
                        self._write_field(struct, field, target)
                        self._flush()
                        # New fields get new tags (KIP-482), so the size of a known field matches
                        # its value.
                        with self.source.block(f"if p != {tag_end}:"):
                            problem = f"{struct.__name__}.{field.name} does not fill its tag"
                            self.source.line(f"raise WireError({problem!r})")
                self.source.line(f"p = {tag_end}")
            with self.source.block("if p > end:"):
                what = f"tagged fields of {struct.__name__}"
                self.source.line(f"raise bad_length({what!r}, n, end - p)")

    def _flush(self) -> None:
        """Write code that reads the accumulated values."""
        if not self._run:
            return
        targets = [target for target, _ in self._run]
        codes = "".join(kind.code for _, kind in self._run)
        if codes == "B":  # Indexing is faster than a call to unpack.
            self.source.line(f"{targets[0]} = data[p]")
        else:
            unpack = self.source.packing(codes, "unpack_from")
            self.source.line(f"{', '.join(targets)}, = {unpack}(data, p)")
        self.source.line(f"p += {sum(kind.size for _, kind in self._run)}")
        self._run.clear()

    def _least_size(self, kind: WireType) -> int:
        """Return the minimum size of a value on the wire in bytes, at least one."""
        match kind:
            case Fixed():
                return kind.size
            case Text():
                return 1 if self._flexible else 2
            case Blob() | Array():
                return 1 if self._flexible else 4
            case Nested():
                # Without tagged fields, because a struct need not contain them.
                present = (
                    field
                    for field in kind.struct.fields
                    if field.versions.has(self.version) and field.tag is None
                )
                size = sum(
                    # A lower bound: a null struct takes one byte, and a null string one or two.
                    1 if field.is_nullable(self.version) else self._least_size(field.type)
                    for field in present
                )
                # At least 1, because a size of 0 would allow any number of elements.
                return max(1, size + self._flexible)
