"""Base classes for message declarations, and all other names that declarations import.

    class MetadataRequest(ApiMessage, api_key=ApiKey.METADATA, versions="0-13", flexible="9+"):
        topics: list[MetadataRequestTopic] | None = field(nullable="1+")

    MetadataRequest.decode(data, 12).topics

The declarations are in messages/ and internal/; structs.py describes their syntax. The functions
that encode or decode a version are generated on first use, which takes about a millisecond.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import Any, ClassVar, Self

from plog.errors import UnsupportedVersion
from plog.wire.decoder import (
    BoundedDecoder,
    Decoder,
    SlicedDecoder,
    TooManyElements,
    compile_bounded_decoder,
    compile_decoder,
    compile_sliced_decoder,
)
from plog.wire.encoder import (
    BoundedEncoder,
    Encoder,
    SlicedEncoder,
    compile_bounded_encoder,
    compile_encoder,
    compile_sliced_encoder,
)
from plog.wire.primitives import Buffer, Part, Passthrough, WireError
from plog.wire.structs import (
    Records,
    Struct,
    Versions,
    field,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint16,
    uint32,
    uuid,
)

__all__ = [
    "ApiMessage",
    "Buffer",
    "Message",
    "Part",
    "Passthrough",
    "Records",
    "Struct",
    "TooManyElements",
    "WireError",
    "field",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint16",
    "uint32",
    "uuid",
]


class Message(Struct):
    """A struct with versions, which can be encoded and decoded on its own."""

    min_version: ClassVar[int]
    max_version: ClassVar[int]
    flexible_from: ClassVar[int]
    """The first version with compact lengths and tagged fields, or a number above all versions."""

    _decoders: ClassVar[dict[int, Decoder]]
    _bounded_decoders: ClassVar[dict[int, BoundedDecoder]]
    _sliced_decoders: ClassVar[dict[int, SlicedDecoder]]
    _encoders: ClassVar[dict[int, Encoder]]
    _bounded_encoders: ClassVar[dict[int, BoundedEncoder]]
    _sliced_encoders: ClassVar[dict[int, SlicedEncoder]]

    def __init_subclass__(cls, *, versions: str = "none", flexible: str = "none") -> None:
        super().__init_subclass__()
        # Without versions, min_version is above max_version, so every version is unsupported.
        cls.min_version, cls.max_version = Versions.parse(versions)
        cls.flexible_from = Versions.parse(flexible).first
        # Each class needs its own dictionaries: with those of a base class, a message could be
        # decoded by the function of another message.
        cls._decoders = {}
        cls._bounded_decoders = {}
        cls._sliced_decoders = {}
        cls._encoders = {}
        cls._bounded_encoders = {}
        cls._sliced_encoders = {}

    @classmethod
    def decode(cls, data: Buffer, version: int) -> Self:
        """Return the message at the start of `data`; bytes after it are ignored.

        Records are views of `data`. Raises WireError, or UnsupportedVersion for an unknown version.
        """
        return cls.decode_prefix(data, version)[0]

    @classmethod
    def decode_prefix(cls, data: Buffer, version: int) -> tuple[Self, int]:
        """Return the message at the start of `data`, and its size in bytes; see `decode`."""
        decoder = cls._decoders.get(version)
        if decoder is None:
            decoder = cls._compile_decoder(version)
        try:
            # Slices of a view are not copies, unlike slices of bytes.
            return decoder(memoryview(data))
        # Only exceptions that invalid bytes can cause: any other exception is a bug in the
        # generator.
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise cls._unreadable(version, error) from error

    @classmethod
    def decode_bounded(cls, data: Buffer, version: int, max_elements: int) -> Self:
        """Return the message at the start of `data`, as `decode` does.

        Raises TooManyElements if all arrays together have more than `max_elements`. If `data` has
        fewer than `max_elements` bytes, `decode` is equally safe, and faster.
        """
        decoder = cls._bounded_decoders.get(version)
        if decoder is None:
            flexible = cls._is_flexible(version)
            decoder = compile_bounded_decoder(cls, version, flexible=flexible)
            cls._bounded_decoders[version] = decoder
        try:
            message: Self = decoder(memoryview(data), max_elements)[0]
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise cls._unreadable(version, error) from error
        return message

    @classmethod
    def decode_in_slices(
        cls, data: Buffer, version: int, max_elements: int, slice_size: int
    ) -> Generator[None, Buffer, Self]:
        """Decode as `decode_bounded` does, in a generator that yields after `slice_size` elements.

        The generator uses `data` until the first yield, and then the copy that ``send`` passes.
        """
        decoder = cls._sliced_decoders.get(version)
        if decoder is None:
            flexible = cls._is_flexible(version)
            decoder = compile_sliced_decoder(cls, version, flexible=flexible)
            cls._sliced_decoders[version] = decoder
        try:
            decoding = decoder(memoryview(data), max_elements, slice_size)
            message: Self = (yield from decoding)[0]
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise cls._unreadable(version, error) from error
        return message

    @classmethod
    def _unreadable(cls, version: int, error: Exception) -> WireError:
        return WireError(f"cannot decode {cls.__name__} version {version}: {error}")

    def encode(self, version: int) -> bytes:
        """Return the message as bytes.

        Raises WireError if the message cannot be encoded, for example because its records are a
        Passthrough. Raises UnsupportedVersion if `version` is unknown, or if it lacks a field that
        is set and not ignorable.
        """
        # join accepts memoryviews, but raises TypeError for a Passthrough, which is not in memory.
        try:
            return b"".join(self._encode(version))  # type: ignore[arg-type]  # checked by join
        except TypeError as error:
            name = type(self).__name__
            raise WireError(f"cannot encode {name}: not all parts are bytes: {error}") from error

    def encode_parts(self, version: int) -> list[Part]:
        """Return the message as a list of byte strings; records stay unchanged objects."""
        return _joined(self._encode(version))

    def encode_bounded(self, version: int, max_elements: int) -> list[Part] | None:
        """Return the message in parts, or None if its arrays together exceed `max_elements`."""
        encoder = self._bounded_encoders.get(version)
        if encoder is None:
            flexible = self._is_flexible(version)
            encoder = compile_bounded_encoder(type(self), version, flexible=flexible)
            self._bounded_encoders[version] = encoder
        try:
            parts = encoder(self, max_elements)
        except (struct.error, TypeError, AttributeError, UnicodeEncodeError) as error:
            raise self._unwritable(version, error) from error
        # None is not an error: the caller encodes a large message again, in slices.
        return None if parts is None else _joined(parts)

    def encode_in_slices(self, version: int, slice_size: int) -> Generator[int, None, list[Part]]:
        """Encode as `encode_parts` does, in a generator that yields after `slice_size` elements.

        The generator yields the size of the parts so far, so that the caller can stop if the
        message is too large.
        """
        encoder = self._sliced_encoders.get(version)
        if encoder is None:
            flexible = self._is_flexible(version)
            encoder = compile_sliced_encoder(type(self), version, flexible=flexible)
            self._sliced_encoders[version] = encoder
        finished: list[Part] = []
        nbytes = 0
        try:
            encoding = encoder(self, slice_size)
            while True:
                try:
                    parts = next(encoding)
                except StopIteration as end:
                    return finished + _joined(end.value)
                joined = _joined(parts)
                parts.clear()  # The encoder continues to append to this list.
                finished += joined
                # Records do not count toward plog.response.max.bytes (docs/security.md).
                nbytes += sum(len(part) for part in joined if isinstance(part, bytes))
                yield nbytes
        except (struct.error, TypeError, AttributeError, UnicodeEncodeError) as error:
            raise self._unwritable(version, error) from error

    def _encode(self, version: int) -> list[Part]:
        encoder = self._encoders.get(version)
        if encoder is None:
            encoder = self._compile_encoder(version)
        try:
            return encoder(self)
        # The generated code does not check values. Values of the wrong type raise TypeError or
        # AttributeError, numbers out of range raise struct.error, and surrogates raise
        # UnicodeEncodeError.
        except (struct.error, TypeError, AttributeError, UnicodeEncodeError) as error:
            raise self._unwritable(version, error) from error

    def _unwritable(self, version: int, error: Exception) -> WireError:
        return WireError(f"cannot encode {type(self).__name__} version {version}: {error}")

    @classmethod
    def _compile_decoder(cls, version: int) -> Decoder:
        # No lock is needed: at worst, two threads compile equal functions, and one is kept.
        flexible = cls._is_flexible(version)
        decoder = cls._decoders[version] = compile_decoder(cls, version, flexible=flexible)
        return decoder

    @classmethod
    def _compile_encoder(cls, version: int) -> Encoder:
        flexible = cls._is_flexible(version)
        encoder = cls._encoders[version] = compile_encoder(cls, version, flexible=flexible)
        return encoder

    @classmethod
    def _is_flexible(cls, version: int) -> bool:
        # Checked only when a function is compiled, so later calls for a version need no check.
        if not cls.min_version <= version <= cls.max_version:
            known = f"{cls.min_version} to {cls.max_version}"
            raise UnsupportedVersion(f"{cls.__name__} supports versions {known}, not {version}")
        return version >= cls.flexible_from


class ApiMessage(Message):
    """A request or a response in Kafka's protocol."""

    api_key: ClassVar[int]

    def __init_subclass__(cls, *, api_key: int = -1, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.api_key = int(api_key)


def _joined(parts: list[Part]) -> list[Part]:
    """Return `parts` with adjacent bytes joined and records unchanged."""
    # An encoder yields a part for each field, and the transport handles every part separately.
    joined: list[Part] = []
    run: list[bytes] = []
    for part in parts:
        if isinstance(part, bytes):
            run.append(part)
        else:  # Records. `run` is not empty, because their length always precedes them.
            joined += (b"".join(run), part)
            run.clear()
    if run:
        joined.append(b"".join(run))
    return joined
