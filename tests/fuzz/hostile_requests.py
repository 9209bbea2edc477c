"""A generator of valid requests that are as expensive as a client can make them.

A request is built from the declarations in plog/wire/messages: one of its arrays gets very many
elements, every other array one. Its `Shape` decides whether the elements repeat each other, name
things that exist, or name things that do not. The name of a field determines its value, so that
a request passes its handler's checks and reaches the work after them. The same arguments produce
the same request.

The things that exist are created by `tests/fuzz/hostile_world.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from plog.types import Uuid
from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage
from plog.wire.structs import Array, Blob, Field, Fixed, Nested, Struct, Text, WireType
from tests.helpers.sim.sim_time import START_MS

ArrayPath = tuple[str, ...]
"""The fields that lead from a message to one of its arrays."""

MAX_STRING_BYTES = 32_767
MAX_REQUEST_BYTES = 8 << 20
_INT32_MAX = (1 << 31) - 1


class Shape(IntEnum):
    """How the elements of the large array relate to each other and to what exists."""

    SAME = 0
    """One existing thing, named repeatedly."""
    KNOWN = 1
    """Existing things in turn, until all are named."""
    UNKNOWN = 2
    """A different missing thing in each element."""
    MIXED = 3
    """Existing and missing things alternate."""
    LONGEST = 4
    """Different missing things whose names have the maximum length."""
    ABSENT = 5
    """No array: null where the version allows it, which often means everything; or empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The names and ids of existing things, for use in requests."""

    topics: Sequence[str]
    topic_ids: Sequence[Uuid]
    """The ids of `topics`, in the same order."""
    produce_topics: int
    """How many of the first topics have settings that treat batches differently."""
    partitions: int
    """The partitions of the first topic."""
    groups: Sequence[str]
    members: Sequence[str]
    users: Sequence[str]
    config_names: Sequence[str]
    new_topics: Sequence[str] = ("new",)
    protocols: Sequence[str] = ("range",)
    quota_keys: Sequence[str] = ("producer_byte_rate", "consumer_byte_rate")
    records: Sequence[bytes]
    """Batches to produce: small ones, and compressed ones that expand a lot."""


def array_paths(struct: type[Struct], version: int) -> list[ArrayPath]:
    """Return every array of a message in this version, outer ones first.

    >>> from plog.wire.messages.metadata import MetadataRequest
    >>> array_paths(MetadataRequest, 9)
    [('topics',)]
    """
    return list(_array_paths(struct, version, ()))


def _array_paths(struct: type[Struct], version: int, path: ArrayPath) -> Iterator[ArrayPath]:
    for item in struct.fields:
        if not item.versions.has(version):
            continue
        kind = item.type
        if isinstance(kind, Array):
            yield (*path, item.name)
            kind = kind.element
        if isinstance(kind, Nested):
            yield from _array_paths(kind.struct, version, (*path, item.name))


def hostile_request(
    message: type[ApiMessage],
    version: int,
    path: ArrayPath,
    *,
    count: int,
    shape: Shape,
    seed: int,
    known: Known,
) -> ApiMessage:
    """Return a request whose array at `path` has `count` elements of `shape`, or as many as fit.

    `seed` determines the values that all elements share, such as types, flags and waits.
    """
    return _Writer(version, path, count, shape, random.Random(seed), known).message(message)


class _Writer:
    def __init__(
        self,
        version: int,
        path: ArrayPath,
        count: int,
        shape: Shape,
        chance: random.Random,
        known: Known,
    ) -> None:
        self._version = version
        self._path = path
        self._count = count
        self._shape = shape
        self._known = known
        self._choices: dict[str, Any] = {}
        self._chance = chance
        self._first_topic = 0
        self._fields: dict[type[Any], list[Field]] = {}

    def message(self, message: type[ApiMessage]) -> ApiMessage:
        """Return the whole request."""
        if message.api_key == ApiKey.PRODUCE:
            self._first_topic = self._chance.randrange(self._known.produce_topics)
            records = self._choose("records", self._known.records)
            self._count = min(self._count, MAX_REQUEST_BYTES // len(records))
        if self._shape is Shape.LONGEST:
            self._count = min(self._count, MAX_REQUEST_BYTES // MAX_STRING_BYTES)
        return self.struct(message, (), 0)  # type: ignore[no-any-return]

    def struct(self, struct: type[Any], path: ArrayPath, index: int) -> Any:
        """Return a struct with the names of element `index`."""
        present = self._fields.get(struct)
        if present is None:
            present = [item for item in struct.fields if item.versions.has(self._version)]
            self._fields[struct] = present
        return struct(
            **{
                item.name: self._value(item, item.type, struct.__name__, (*path, item.name), index)
                for item in present
            }
        )

    def _value(self, item: Field, kind: WireType, owner: str, path: ArrayPath, index: int) -> Any:
        match kind:
            case Array(element):
                return self._array(item, element, owner, path, index)
            case Nested(struct):
                if kind is item.type and item.is_nullable(self._version):
                    return None  # A cursor would skip the elements before it.
                return self.struct(struct, path, index)
            case Text():
                return self._text(item, owner, index)
            case Blob():
                return self._blob(item)
            case Fixed():
                return self._number(item, kind, index)

    def _array(
        self, item: Field, element: WireType, owner: str, path: ArrayPath, index: int
    ) -> list[Any] | None:
        if path != self._path:
            return [self._value(item, element, owner, path, index)]
        if self._shape is Shape.ABSENT:
            return None if item.is_nullable(self._version) else []
        if self._shape is Shape.SAME:
            return [self._value(item, element, owner, path, 0)] * self._count
        return [self._value(item, element, owner, path, number) for number in range(self._count)]

    # -- what exists and what does not --------------------------------------------------------

    def _named(
        self, known: Sequence[Any], missing: Callable[[int], Any], index: int, first: int = 0
    ) -> Any:
        match self._shape:
            case Shape.SAME | Shape.ABSENT:
                return known[first]
            case Shape.KNOWN:
                return known[(first + index) % len(known)]
            case Shape.MIXED if index % 2 == 0:
                return known[(first + index // 2) % len(known)]
        return missing(index)

    def _missing(self, index: int) -> str:
        name = f"missing-{index}"
        return name.ljust(MAX_STRING_BYTES, "x") if self._shape is Shape.LONGEST else name

    def _text(self, item: Field, owner: str, index: int) -> str | None:
        name, known = item.name, self._known
        if name in _ONE_TEXT:
            return self._choose(name, _ONE_TEXT[name])
        pool = _POOLS.get(f"{owner}.{name}") or _POOLS.get(name)
        if pool is not None:
            first = self._first_topic if pool == "topics" else 0
            return self._named(getattr(known, pool), self._missing, index, first)
        if item.is_nullable(self._version):
            return None
        return self._named(["x"], self._missing, index)

    def _number(self, item: Field, kind: Fixed, index: int) -> Any:
        name = item.name
        if name == "topic_id":
            return self._named(self._known.topic_ids, _missing_id, index, self._first_topic)
        if name in _PARTITION_FIELDS:
            partitions = range(self._known.partitions)
            return self._named(partitions, lambda n: 1_000_000 + n, index)
        if name in _CHOICES:
            return self._choose(name, _CHOICES[name])
        if kind.code == "?":
            return self._choose(name, (False, True))
        return item.default

    def _blob(self, item: Field) -> bytes | None:
        if item.name == "records":
            return self._choose("records", self._known.records)  # type: ignore[no-any-return]
        return b"x" * 32  # As long as a salted password of SCRAM-SHA-256.

    def _choose(self, name: str, choices: Sequence[Any]) -> Any:
        """Return one of `choices`, the same in the whole request."""
        if name not in self._choices:
            self._choices[name] = self._chance.choice(choices)
        return self._choices[name]


def _missing_id(index: int) -> Uuid:
    return (index + 1).to_bytes(16, "big")


_POOLS = {
    **dict.fromkeys(
        ("topic", "topic_name", "topic_names", "resource_name", "resource_name_filter"), "topics"
    ),
    **dict.fromkeys(("group_id", "groups", "groups_names", "key", "coordinator_keys"), "groups"),
    **dict.fromkeys(("entity_name", "match"), "users"),
    "member_id": "members",
    "configuration_keys": "config_names",
    "name": "topics",
    "AlterableConfig.name": "config_names",
    "CreatableTopic.name": "new_topics",
    "CreatableTopicConfig.name": "config_names",
    "IncrementalAlterableConfig.name": "config_names",
    "JoinGroupRequestProtocol.name": "protocols",
    "OpData.key": "quota_keys",
    "ScramCredentialDeletion.name": "users",
    "ScramCredentialUpsertion.name": "users",
    "UserName.name": "users",
}
"""The attribute of `Known` that a text field names, by the field or by its struct and the field."""

_ONE_TEXT: dict[str, Sequence[str | None]] = {
    "transactional_id": (None,),
    "group_instance_id": (None,),
    "protocol_type": ("consumer",),
    "entity_type": ("user", "client-id"),
    "principal": ("User:alice", "User:*"),
    "principal_filter": (None, "User:alice"),
    "host": ("*",),
    "host_filter": (None, "*"),
    "value": ("1000000",),
    "feature": ("metadata.version", "missing.feature"),
    "committed_metadata": ("", "m" * 500),
    "states_filter": ("Stable", "stable", "Nonsense"),
    "types_filter": ("classic", "consumer"),
}
"""Texts that are the same in all elements; one of these by chance."""

_PARTITION_FIELDS = frozenset(
    ("partition", "partitions", "partition_index", "partition_indexes", "index")
)

_CHOICES: dict[str, Sequence[int | float]] = {
    "acks": (1, -1, 0),
    "allow_auto_topic_creation": (False,),
    "broker_ids": (1,),
    "config_operation": (0, 1, 2),
    "count": (_INT32_MAX, 600),
    "fetch_offset": (0,),
    "generation_id": (-1, 1),
    "generation_id_or_member_epoch": (-1,),
    "isolation_level": (0, 1),
    "iterations": (4096,),
    "key_type": (0,),
    "match_type": (0, 1, 2),
    "max_bytes": (1, 55 << 20),
    "max_version_level": (1, 25),
    "max_wait_ms": (0, 60_000),
    "mechanism": (1,),
    "member_epoch": (-1,),
    "min_bytes": (1, 1 << 30),
    "num_partitions": (1, -1),
    "offset": (-1, 0),
    "operation": (2, 3),
    "partition_max_bytes": (100, 1 << 20),
    "pattern_type_filter": (1, 3),
    "permission_type": (2, 3),
    "producer_id": (-1,),
    "producer_epoch": (-1,),
    "rebalance_timeout_ms": (60_000,),
    "replicas": (1,),
    "replication_factor": (1,),
    "resource_pattern_type": (3, 4),
    "resource_type": (2, 4),
    "resource_type_filter": (1, 2),
    "resource_types": (2, 4, 32),
    "response_partition_limit": (_INT32_MAX, 1),
    "session_epoch": (-1, 0),
    "session_id": (0,),
    "session_timeout_ms": (30_000,),
    "timeout_ms": (10_000,),
    "timestamp": (-1, -2, -3, START_MS),
    "upgrade_type": (1, 2),
    "value": (1000.0,),
}
"""Numbers that are the same in all elements; one of these by chance. All others have defaults."""
