"""Requests to a ZooKeeper server that kazoo has no call for, or whose watches are not kazoo's.

Pure: a `Request` holds the bytes behind its header, and how its answer is read. It has the
attributes kazoo's connection asks of a request, in 2.8 as in 2.11; client.py sends it.

Source: ZooKeeper 3.8 zookeeper.jute, ZooDefs.OpCode, CreateMode, AddWatchMode, WatcherType. In
jute all numbers are big-endian; a ustring and a buffer have their length in front (-1: null), a
vector the number of its records.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from plog.cli.zookeeper.text_format import Acl, Stat

T = TypeVar("T")

_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_EVENT: Final = struct.Struct(">ii")
_STAT: Final = struct.Struct(">qqqqiiiqiiq")
_EXISTS, _GET_DATA, _GET_CHILDREN_2 = 3, 4, 12
_RECONFIG, _REMOVE_WATCHES = 16, 18
_SET_WATCHES, _GET_EPHEMERALS, _GET_ALL_CHILDREN_NUMBER = 101, 103, 104
_SET_WATCHES_2, _ADD_WATCH, _WHO_AM_I = 105, 106, 107
# Type of the request and flags of CreateMode, by the letters of the options.
_CREATE: Final = {
    "": (1, 0),
    "e": (1, 1),
    "s": (1, 2),
    "es": (1, 3),
    "c": (19, 4),
    "t": (21, 5),
    "st": (21, 6),
}
_WATCHER_TYPES: Final = {"c": 1, "d": 2, "a": 3}
_EVENT_TYPES: Final = {
    1: "NodeCreated",
    2: "NodeDeleted",
    3: "NodeDataChanged",
    4: "NodeChildrenChanged",
}


class Request(Generic[T]):
    """A request as kazoo's connection takes one: it encodes itself, and decodes its answer."""

    def __init__(self, kind: int, body: bytes, decode: Callable[[_Answer], T]) -> None:
        self.type = kind
        self._body = body
        self._decode = decode
        self.on_answer: Callable[[], None] = _nothing
        """Called before the answer is decoded, in the thread that reads it; not for a refusal."""

    def serialize(self) -> bytes:
        """The request behind its header."""
        return self._body

    def deserialize(self, data: bytes, position: int) -> T:
        """What the answer says that begins at `position`."""
        self.on_answer()
        return self._decode(_Answer(data, position))


class _Answer:
    """The bytes of an answer, read from front to back."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._position = position

    def numbers(self, layout: struct.Struct) -> tuple[int, ...]:
        """The next numbers."""
        numbers = layout.unpack_from(self._data, self._position)
        self._position += layout.size
        return numbers

    def number(self) -> int:
        """The next 32-bit number."""
        return self.numbers(_INT)[0]

    def buffer(self) -> bytes | None:
        """The next bytes."""
        size_bytes = self.number()
        if size_bytes < 0:
            return None
        start = self._position
        self._position += size_bytes
        return bytes(self._data[start : self._position])

    def text(self) -> str:
        """The next text; null is an empty one."""
        return (self.buffer() or b"").decode(errors="replace")

    def texts(self, each: int = 1) -> list[str]:
        """The next vector, of records that are `each` texts long; null is an empty one."""
        return [self.text() for _ in range(max(self.number(), 0) * each)]

    def stat(self) -> Stat:
        """The next statistics."""
        return Stat(*self.numbers(_STAT))

    def content(self) -> tuple[bytes | None, Stat]:
        """The next data, and the statistics behind it."""
        return self.buffer(), self.stat()

    def children(self) -> tuple[list[str], Stat]:
        """The next names, and the statistics behind them."""
        return self.texts(), self.stat()

    def pairs(self) -> list[tuple[str, str]]:
        """The next vector, of records that are two texts."""
        texts = self.texts(2)
        return list(zip(texts[::2], texts[1::2], strict=True))


# -- what is asked; paths are the server's -------------------------------------------------------


def get_data(path: str, *, watch: bool = False) -> Request[tuple[bytes | None, Stat]]:
    """A znode's data and statistics."""
    return Request(_GET_DATA, _text(path) + bytes([watch]), _Answer.content)


def exists(path: str, *, watch: bool = False) -> Request[Stat]:
    """A znode's statistics. kazoo answers None, and decodes nothing, where there is none."""
    return Request(_EXISTS, _text(path) + bytes([watch]), _Answer.stat)


def get_children(path: str, *, watch: bool = False) -> Request[tuple[list[str], Stat]]:
    """The names of a znode's children, and its statistics."""
    return Request(_GET_CHILDREN_2, _text(path) + bytes([watch]), _Answer.children)


def create(
    path: str, data: bytes | None, acls: Sequence[Acl], mode: str, ttl_ms: int
) -> Request[str]:
    """Create a znode; its path. `mode` is made of the options' letters: e, s, c, t."""
    kind, flags = _CREATE[mode]
    body = [_text(path), _buffer(data), _INT.pack(len(acls))]
    for acl in acls:
        body += [_INT.pack(acl.permissions), _text(acl.scheme), _text(acl.id)]
    body.append(_INT.pack(flags))
    if kind == _CREATE["t"][0]:
        body.append(_LONG.pack(ttl_ms))
    return Request(kind, b"".join(body), _Answer.text)


def get_ephemerals(path: str) -> Request[list[str]]:
    """Paths of this session's ephemeral znodes at and below a path."""
    return Request(_GET_EPHEMERALS, _text(path), _Answer.texts)


def get_all_children_number(path: str) -> Request[int]:
    """How many znodes are below a path."""
    return Request(_GET_ALL_CHILDREN_NUMBER, _text(path), _Answer.number)


def who_am_i() -> Request[list[tuple[str, str]]]:
    """Scheme and user of all that the session is logged in as."""
    return Request(_WHO_AM_I, b"", _Answer.pairs)


def reconfig(
    joining: str | None, leaving: str | None, members: str | None, version: int
) -> Request[tuple[bytes | None, Stat]]:
    """Change the ensemble; its configuration from then on."""
    body = [_text(joining), _text(leaving), _text(members), _LONG.pack(version)]
    return Request(_RECONFIG, b"".join(body), _Answer.content)


def add_watch(path: str, *, recursive: bool) -> Request[None]:
    """Watch a path until that is revoked, and what is below it if `recursive`."""
    return Request(_ADD_WATCH, _text(path) + _INT.pack(recursive), _no_answer)


def remove_watches(path: str, kind: str) -> Request[None]:
    """Revoke the session's watches of a path; `kind` is the option: c, d or a."""
    body = _text(path) + _INT.pack(_WATCHER_TYPES[kind])
    return Request(_REMOVE_WATCHES, body, _no_answer)


def set_watches(zxid: int, *paths: Sequence[str]) -> Request[None]:
    """Watch again over a new connection, and hear what was missed since `zxid`.

    `paths` are five: data, of what was not there, children, persistent, persistent and recursive.
    """
    once, persistent = paths[:3], paths[3:]
    body = [_LONG.pack(zxid), *map(_vector, once)]
    if not any(persistent):
        return Request(_SET_WATCHES, b"".join(body), _no_answer)
    return Request(_SET_WATCHES_2, b"".join([*body, *map(_vector, persistent)]), _no_answer)


def read_event(data: bytes, position: int) -> tuple[str | None, str]:
    """Type, None for one that is not known, and path of a watch that fired."""
    answer = _Answer(data, position)
    kind, _state = answer.numbers(_EVENT)
    return _EVENT_TYPES.get(kind), answer.text()


def _buffer(data: bytes | None) -> bytes:
    return _INT.pack(-1) if data is None else _INT.pack(len(data)) + data


def _text(text: str | None) -> bytes:
    return _buffer(None if text is None else text.encode())


def _vector(texts: Sequence[str]) -> bytes:
    return _INT.pack(len(texts)) + b"".join(map(_text, texts))


def _no_answer(_: _Answer) -> None:
    """An answer that says nothing but that it worked."""


def _nothing() -> None:
    pass
