"""Messages with a value in every field, for the tests of this package.

A codec that omits a field, or uses it in the wrong version, fails only if the field does not have
its default. Values are random from a given seed, so a failing case can be repeated.
"""

from __future__ import annotations

import random
from typing import Any, TypeVar

import pytest

from plog.wire.internal.group_records import GROUP_MESSAGES
from plog.wire.internal.kraft_records import KRAFT_RECORDS
from plog.wire.internal.metadata_records import METADATA_RECORDS
from plog.wire.internal.newer_group_records import NEWER_GROUP_MESSAGES
from plog.wire.internal.raft_records import RAFT_RECORDS
from plog.wire.internal.remote_log_records import REMOTE_LOG_RECORDS
from plog.wire.internal.share_records import SHARE_MESSAGES
from plog.wire.internal.transaction_records import TRANSACTION_MESSAGES
from plog.wire.messages import APIS
from plog.wire.schema import Message, Struct
from plog.wire.structs import Array, Blob, Field, Fixed, Nested, Text, WireType

AnyStruct = TypeVar("AnyStruct", bound=Struct)

API_MESSAGES: tuple[type[Message], ...] = tuple(
    message for api in APIS for message in (api.request, api.response)
)
MESSAGES = (
    *API_MESSAGES,
    *METADATA_RECORDS,
    *KRAFT_RECORDS,
    *RAFT_RECORDS.values(),
    *GROUP_MESSAGES,
    *NEWER_GROUP_MESSAGES,
    *TRANSACTION_MESSAGES,
    *REMOTE_LOG_RECORDS,
    *SHARE_MESSAGES,
)


def every_version(messages: tuple[type[Message], ...]) -> pytest.MarkDecorator:
    """Parametrize a test with each version of each message."""
    return pytest.mark.parametrize(
        ("message_type", "version"),
        [
            pytest.param(message, version, id=f"{message.__name__}-v{version}")
            for message in messages
            for version in range(message.min_version, message.max_version + 1)
        ],
    )


def filled(
    struct: type[AnyStruct], version: int, seed: int, *, nulls: bool = False, long: bool = True
) -> AnyStruct:
    """Return a `struct` in which no field of `version` has its default value.

    Args:
        struct: The type to fill.
        version: Fields that this version lacks keep their defaults.
        seed: The seed of the random values.
        nulls: Whether nullable fields are null instead.
        long: Whether some values are longer than a one-byte varint can count.
    """
    return _Filler(random.Random(seed), version, nulls, long).struct(struct)


class _Filler:
    def __init__(self, chance: random.Random, version: int, nulls: bool, long: bool) -> None:
        self._chance = chance
        self._version = version
        self._nulls = nulls
        self._long = long

    def struct(self, struct: type[AnyStruct]) -> AnyStruct:
        present = (field for field in struct.fields if field.versions.has(self._version))
        return struct(**{field.name: self._field(field) for field in present})

    def _field(self, field: Field) -> Any:
        if self._nulls and field.is_nullable(self._version):
            return None
        if "error_code" in field.name:
            return self._chance.randint(1, 90)  # The oracle only accepts known error codes.
        if field.name == "log_append_time_ms":
            return 1000 * self._chance.randint(1, 1 << 35)  # The oracle rounds to whole seconds.
        if field.name in ("retention_time_ms", "session_lifetime_ms"):
            return self._chance.randint(1, 1 << 40)  # The oracle does not support longer durations.
        while (value := self._value(field.type)) == field.default:
            pass
        return value

    def _value(self, kind: WireType) -> Any:
        match kind:
            case Fixed():
                return self._fixed(kind)
            case Text():
                alphabet = "topic-0 é日🦆"
                return "".join(self._chance.choices(alphabet, k=self._length(5, 70)))
            case Blob():
                return self._chance.randbytes(self._length(9, 300))
            case Array(element):
                longest = 3 if isinstance(element, Nested) else 150
                return [self._value(element) for _ in range(self._length(2, longest))]
            case Nested(struct):
                return self.struct(struct)

    def _length(self, usual: int, longest: int) -> int:
        return self._chance.choice((1, usual, longest if self._long else usual))

    def _fixed(self, kind: Fixed) -> Any:
        if kind.code == "?":
            return self._chance.choice((True, False))
        if kind.code == "d":
            return self._chance.uniform(-1e9, 1e9)
        if kind.code == "16s":
            return self._chance.randbytes(16)
        bits = 8 * kind.size
        if kind.code.isupper():
            return self._chance.randrange(1 << bits)
        return self._chance.randrange(-(1 << (bits - 1)), 1 << (bits - 1))
