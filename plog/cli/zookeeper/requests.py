"""ZooKeeper requests that kazoo does not support, or whose watches plog tracks itself.

Pure: a `Request` contains the bytes after the request header, and decodes the response. It has the
attributes that kazoo's connection requires, in versions 2.8 to 2.11; client.py sends it.

Requests are encoded in jute: numbers are big-endian, strings and buffers are preceded by their
length (-1 means null), and vectors are preceded by the number of records. Source: ZooKeeper 3.8
zookeeper.jute, ZooDefs.OpCode, CreateMode, AddWatchMode, WatcherType.
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
_STAT: Final = struct.Struct(">qqqqiiiqiiq")  # In the order of the fields of `Stat`.
_EXISTS, _GET_DATA, _GET_CHILDREN_2 = 3, 4, 12
_RECONFIG, _REMOVE_WATCHES = 16, 18
_SET_WATCHES, _GET_EPHEMERALS, _GET_ALL_CHILDREN_NUMBER = 101, 103, 104
_SET_WATCHES_2, _ADD_WATCH, _WHO_AM_I = 105, 106, 107
# The request type and the flags of CreateMode, keyed by option letters.
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
# Servers send no events for watches that are removed: the client reports these itself.
_EVENT_TYPES: Final = {
    1: "NodeCreated",
    2: "NodeDeleted",
    3: "NodeDataChanged",
    4: "NodeChildrenChanged",
}


class Request(Generic[T]):
    """A request that kazoo's connection can send, with a decoder for its response."""

    def __init__(self, kind: int, body: bytes, decode: Callable[[_Response], T]) -> None:
        self.type = kind
        self._body = body
        self._decode = decode
        self.on_response: Callable[[], None] = _do_nothing
        """Called on the reading thread before the response is decoded; not called for an error."""

    def serialize(self) -> bytes:
        """Return the request without its header."""
        return self._body

    def deserialize(self, data: bytes, position: int) -> T:
        """Decode the response that starts at `position`."""
        self.on_response()
        return self._decode(_Response(data, position))


class _Response:
    """The bytes of a response, and the position of the next field."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._position = position

    def numbers(self, layout: struct.Struct) -> tuple[int, ...]:
        """Read the numbers of `layout`."""
        numbers = layout.unpack_from(self._data, self._position)
        self._position += layout.size
        return numbers

    def number(self) -> int:
        """Read a 32-bit number."""
        return self.numbers(_INT)[0]

    def buffer(self) -> bytes | None:
        """Read a buffer; None if it is null."""
        size_bytes = self.number()
        # ZooKeeper distinguishes null from empty data.
        if size_bytes < 0:
            return None
        start = self._position
        self._position += size_bytes
        return bytes(self._data[start : self._position])

    def text(self) -> str:
        """Read a string; null becomes an empty string."""
        # Java writes strings as UTF-8, but a damaged name must not end the shell.
        return (self.buffer() or b"").decode(errors="replace")

    def texts(self, per_record: int = 1) -> list[str]:
        """Read a vector of records with `per_record` strings each; null becomes an empty list."""
        return [self.text() for _ in range(max(self.number(), 0) * per_record)]

    def stat(self) -> Stat:
        """Read a znode's statistics."""
        return Stat(*self.numbers(_STAT))

    def content(self) -> tuple[bytes | None, Stat]:
        """Read a znode's data and statistics."""
        return self.buffer(), self.stat()

    def children(self) -> tuple[list[str], Stat]:
        """Read the names of a znode's children, and its statistics."""
        return self.texts(), self.stat()

    def pairs(self) -> list[tuple[str, str]]:
        """Read a vector of records with two strings."""
        texts = self.texts(2)
        return list(zip(texts[::2], texts[1::2], strict=True))


# -- requests; paths include the chroot ----------------------------------------------------------


def get_data(path: str, *, watch: bool = False) -> Request[tuple[bytes | None, Stat]]:
    """Return a request for the data and statistics of a znode."""
    return Request(_GET_DATA, _text(path) + bytes([watch]), _Response.content)


def exists(path: str, *, watch: bool = False) -> Request[Stat]:
    """Return a request for the statistics of a znode."""
    # If the znode does not exist, kazoo returns None without calling `deserialize`. It recognizes
    # this request by its type.
    return Request(_EXISTS, _text(path) + bytes([watch]), _Response.stat)


def get_children(path: str, *, watch: bool = False) -> Request[tuple[list[str], Stat]]:
    """Return a request for the names of a znode's children, and its statistics."""
    return Request(_GET_CHILDREN_2, _text(path) + bytes([watch]), _Response.children)


def create(
    path: str, data: bytes | None, acls: Sequence[Acl], mode: str, ttl_ms: int
) -> Request[str]:
    """Return a request to create a znode; `mode` consists of the option letters e, s, c, t."""
    kind, flags = _CREATE[mode]
    body = [_text(path), _buffer(data), _INT.pack(len(acls))]
    for acl in acls:
        body += [_INT.pack(acl.permissions), _text(acl.scheme), _text(acl.id)]
    body.append(_INT.pack(flags))
    # Only requests of type createTTL have this field.
    if kind == _CREATE["t"][0]:
        body.append(_LONG.pack(ttl_ms))
    return Request(kind, b"".join(body), _Response.text)


def get_ephemerals(path: str) -> Request[list[str]]:
    """Return a request for the paths of the session's ephemeral znodes at and below `path`."""
    return Request(_GET_EPHEMERALS, _text(path), _Response.texts)


def get_all_children_number(path: str) -> Request[int]:
    """Return a request for the number of znodes below `path`."""
    return Request(_GET_ALL_CHILDREN_NUMBER, _text(path), _Response.number)


def who_am_i() -> Request[list[tuple[str, str]]]:
    """Return a request for the scheme and user of each identity of the session."""
    return Request(_WHO_AM_I, b"", _Response.pairs)


def reconfig(
    joining: str | None, leaving: str | None, members: str | None, version: int
) -> Request[tuple[bytes | None, Stat]]:
    """Return a request to change the ensemble; the response contains the new configuration."""
    body = [_text(joining), _text(leaving), _text(members), _LONG.pack(version)]
    return Request(_RECONFIG, b"".join(body), _Response.content)


def add_watch(path: str, *, recursive: bool) -> Request[None]:
    """Return a request to set a persistent watch on `path` and, if `recursive`, the tree below."""
    return Request(_ADD_WATCH, _text(path) + _INT.pack(recursive), _decode_empty)


def remove_watches(path: str, kind: str) -> Request[None]:
    """Return a request to remove the session's watches on `path`.

    `kind` is c (children), d (data) or a (any).
    """
    body = _text(path) + _INT.pack(_WATCHER_TYPES[kind])
    return Request(_REMOVE_WATCHES, body, _decode_empty)


def set_watches(zxid: int, *paths: Sequence[str]) -> Request[None]:
    """Return a request to restore watches on a new connection.

    The server sends the events that the client has missed since `zxid`. `paths` are five lists, for
    the kinds data, absent, children, persistent and recursive.
    """
    once, persistent = paths[:3], paths[3:]
    # Servers before 3.6 support neither persistent watches nor the request that restores them.
    body = [_LONG.pack(zxid), *map(_vector, once)]
    if not any(persistent):
        return Request(_SET_WATCHES, b"".join(body), _decode_empty)
    return Request(_SET_WATCHES_2, b"".join([*body, *map(_vector, persistent)]), _decode_empty)


def read_event(data: bytes, position: int) -> tuple[str | None, str]:
    """Return the type of a watch event (None if it is unknown) and its path."""
    response = _Response(data, position)
    kind, _state = response.numbers(_EVENT)
    return _EVENT_TYPES.get(kind), response.text()


def _buffer(data: bytes | None) -> bytes:
    return _INT.pack(-1) if data is None else _INT.pack(len(data)) + data


def _text(text: str | None) -> bytes:
    return _buffer(None if text is None else text.encode())


def _vector(texts: Sequence[str]) -> bytes:
    return _INT.pack(len(texts)) + b"".join(map(_text, texts))


def _decode_empty(_: _Response) -> None:
    """Decode a response without a body."""


def _do_nothing() -> None:
    pass
