"""One request to two brokers, and a comparison of their responses field by field.

The responses are decoded by kio, which has its own protocol definitions, so that an error in plog's
message tables cannot go unnoticed. Fields that necessarily differ (addresses, ids, times) are
compared by kind: both null, or both of one type.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Any, TypeAlias
from uuid import UUID

import kio.index
import kio.serial

from plog.wire.header import RequestHeader, decode_response_header, encode_request
from plog.wire.schema import ApiMessage
from plogd.security.unenforced_rules import NOT_ENFORCED

BY_KIND = frozenset(
    {
        "broker_epoch",
        "cluster_id",
        "documentation",
        "finalized_features_epoch",
        "host",
        "port",
        "producer_id",
        "session_id",
        "throttle_time",
        "topic_id",
    }
)
"""Fields that differ between any two brokers."""

UNORDERED = frozenset({"api_keys", "configs", "partition_responses"})
"""Lists that Kafka returns in hash order."""

Request: TypeAlias = ApiMessage | Callable[["Side"], ApiMessage]
"""The request: the same for both brokers, or built from earlier responses of a side."""


@dataclass(slots=True)
class Side:
    """One of the two brokers."""

    name: str
    address: str
    told: dict[str, Any] = field(default_factory=dict)
    """Values of earlier responses that tests need again: ids, epochs."""
    _correlation_id: int = 0

    def connect(self) -> Connection:
        """Open a separate connection, for requests that must not wait for each other."""
        host, _, port = self.address.rpartition(":")
        return Connection(socket.create_connection((host, int(port)), 30))

    def ask(self, request: Request, version: int) -> Any:
        """Return the response as plain values, decoded by kio."""
        connection = self.connect()
        try:
            message = request if isinstance(request, ApiMessage) else request(self)
            connection.send(message, version)
            return connection.receive()
        finally:
            connection.close()


class Connection:
    """Sends requests and receives responses, in order."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._asked: list[tuple[int, int]] = []

    def send(self, message: ApiMessage, version: int) -> None:
        """Send a request without waiting."""
        header = RequestHeader(message.api_key, version, len(self._asked) + 1, "side-by-side")
        self._asked.append((message.api_key, version))
        self._socket.sendall(encode_request(header, message))

    def receive(self) -> Any:
        """Return the response to the oldest unanswered request."""
        api_key, version = self._asked.pop(0)
        frame = self._exactly(int.from_bytes(self._exactly(4), "big"))
        _, position = decode_response_header(frame, api_key, version)
        entity_type = kio.index.load_response_schema(api_key, version)
        entity, size = kio.serial.entity_reader(entity_type)(frame[position:], 0)
        assert size == len(frame) - position, "bytes after the response"
        return plain(entity)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            received = self._socket.recv(size - len(data))
            assert received, "closed by the broker"
            data += received
        return data

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def plain(value: Any) -> Any:
    """Return kio's entity as dictionaries, lists and numbers."""
    match value:
        case tuple():
            return [plain(item) for item in value]
        case IntEnum():
            return int(value)
        case _ if hasattr(value, "__version__"):
            return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
        case _:
            return value


@dataclass(frozen=True, slots=True)
class Pair:
    """plog and Apache Kafka."""

    ours: Side
    kafka: Side

    def ask(self, request: Request, version: int) -> tuple[Any, Any]:
        """Return both responses, plog's first."""
        return self.ours.ask(request, version), self.kafka.ask(request, version)

    def same(
        self,
        request: Request,
        version: int,
        *,
        by_kind: Collection[str] = (),
        ignoring: Collection[str] = (),
        unordered: Collection[str] = (),
    ) -> Any:
        """Send a request to both, assert that the responses are equal, and return plog's.

        Args:
            by_kind: additional fields to compare by kind only.
            ignoring: fields not to compare; the test explains why.
            unordered: lists whose order has no meaning.
        """
        ours, kafkas = self.ask(request, version)
        compare = Comparison(
            by_kind=BY_KIND | set(by_kind),
            ignoring=frozenset(ignoring),
            unordered=UNORDERED | set(unordered),
        )
        found = list(compare.differences(ours, kafkas))
        assert not found, "\n".join(["plog's response differs from Kafka's:", *found])
        return ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The fields that a comparison treats specially; sets of names."""

    by_kind: Collection[str] = BY_KIND
    ignoring: Collection[str] = ()
    unordered: Collection[str] = UNORDERED

    def differences(self, ours: Any, kafkas: Any, path: str = "") -> Iterator[str]:
        """A line for each place where the two trees differ.

        >>> list(Comparison().differences({"a": [1, 2], "port": 1}, {"a": [1, 3], "port": 2}))
        ['a[1]: 2, not 3']
        """
        name = path.rpartition(".")[2]
        if name in self.by_kind and not isinstance(ours, list | dict):
            if _kind(ours) != _kind(kafkas):
                yield f"{path}: {ours!r}, which differs in kind from {kafkas!r}"
        elif isinstance(ours, dict) and isinstance(kafkas, dict):
            yield from self._in_struct(ours, kafkas, path)
        elif isinstance(ours, list) and isinstance(kafkas, list):
            yield from self._in_list(ours, kafkas, path)
        elif ours != kafkas:
            yield f"{path}: {ours!r}, not {kafkas!r}"

    def _in_struct(self, ours: Any, kafkas: Any, path: str) -> Iterator[str]:
        for name in ours | kafkas:
            if name in self.ignoring:
                continue
            # Error messages are not standardized, and plog may return one where Kafka does not.
            if name == "error_message" and ours[name] and ours.get("error_code", -1):
                continue
            if name == "error_message" and ours[name] == NOT_ENFORCED:  # Kafka enforces them.
                continue
            inner = f"{path}.{name}" if path else name
            yield from self.differences(ours.get(name), kafkas.get(name), inner)

    def _in_list(self, ours: list[Any], kafkas: list[Any], path: str) -> Iterator[str]:
        if path.rpartition(".")[2] in self.unordered:
            ours, kafkas = sorted(ours, key=self._order), sorted(kafkas, key=self._order)
        if len(ours) != len(kafkas):
            yield f"{path}: {len(ours)} entries {ours!r}, not {len(kafkas)} {kafkas!r}"
            return
        for index, (one, other) in enumerate(zip(ours, kafkas, strict=True)):
            yield from self.differences(one, other, f"{path}[{index}]")

    def _order(self, value: Any) -> str:
        """Return a sort key that excludes the fields that may differ."""
        if isinstance(value, list):
            return repr(sorted(map(self._order, value)))
        if not isinstance(value, dict):
            return repr(value)
        left_out = {*self.by_kind, *self.ignoring}
        return repr({x: self._order(inner) for x, inner in value.items() if x not in left_out})


def _kind(value: Any) -> str:
    """Return null or the type; times and ids have null values of their own."""
    if value is None or (isinstance(value, int) and value == -1):
        return "null"
    match value:
        case UUID():
            return "id"
        case datetime():
            return "time"
        case timedelta():
            return "duration"
        case _:
            return type(value).__name__
