"""Log events as entries in systemd's journal, with fields for the topic, partition and client.

`context_fields` maps the named fields of a log event to the fields of an entry, so that
``journalctl PLOG_TOPIC=clicks`` finds every line about a topic. `encode_entry` and `JournalSender`
implement the protocol of https://systemd.io/JOURNAL_NATIVE_PROTOCOL. logging.py builds the entries.

The reactor never waits for the journal. An entry that the journal's socket does not accept becomes
a line on standard error. If standard error does not accept it either, the number of lost entries is
logged later.
"""

from __future__ import annotations

import array
import errno
import fcntl
import os
import select
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from plog.types import TopicPartition
from plogd.connection_context import ConnectionContext

NATIVE_SOCKET = "/run/systemd/journal/socket"

Field = tuple[str, str]

IDENTIFIER: Field = ("SYSLOG_IDENTIFIER", "plog-broker")
"""The value that ``journalctl -t`` selects; by default, it would depend on the command."""
VALUES_MAX = 200
"""Maximum number of context fields in an entry, for events that concern thousands of partitions."""
_WRITE_BYTES_MAX = 4096
"""Number of bytes that a writable pipe or socket accepts without blocking; see pipe(7)."""
# The errors that sendto raises for an entry that exceeds the socket's buffer.
_TOO_LARGE = (errno.EMSGSIZE, errno.ENOBUFS)
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


def _of_topic(value: object) -> Iterator[Field]:
    if isinstance(value, str):
        yield "PLOG_TOPIC", value


def _of_partition(value: object) -> Iterator[Field]:
    if isinstance(value, TopicPartition):
        yield "PLOG_TOPIC", value.topic
        yield "PLOG_PARTITION", str(value.partition)


def _of_partitions(value: Iterable[object]) -> Iterator[Field]:
    for each in value:
        yield from _of_partition(each)


def _of_client(value: object) -> Iterator[Field]:
    if isinstance(value, ConnectionContext):
        yield "PLOG_CLIENT_ADDRESS", value.client_address[0]
        if value.client_id:
            yield "PLOG_CLIENT", value.client_id
    elif isinstance(value, str):
        yield "PLOG_CLIENT_ADDRESS", value


_OF_EVENT: Mapping[str, Callable[[Any], Iterator[Field]]] = {
    "topic": _of_topic,  # A name.
    "topic_partition": _of_partition,  # A TopicPartition.
    "topic_partitions": _of_partitions,  # A list, if the text shows only some of them.
    "client": _of_client,  # A ConnectionContext, or an IP address.
}


def context_fields(event: Mapping[str, Any]) -> list[Field]:
    """Return the fields for the subjects of a log event, each value once.

    >>> context_fields({"topic_partition": TopicPartition("clicks", 3), "offset": 5})
    [('PLOG_TOPIC', 'clicks'), ('PLOG_PARTITION', '3')]
    """
    fields: dict[Field, None] = {}
    for name, of_value in _OF_EVENT.items():
        if name in event:
            for field in of_value(event[name]):
                if len(fields) >= VALUES_MAX:
                    return list(fields)
                fields[field] = None
    return list(fields)


def encode_entry(fields: Iterable[Field]) -> bytes:
    """Return an entry in the native protocol. A name may occur several times.

    >>> encode_entry([("PRIORITY", "6"), ("MESSAGE", "a\\nb")])
    b'PRIORITY=6\\nMESSAGE\\n\\x03\\x00\\x00\\x00\\x00\\x00\\x00\\x00a\\nb\\n'
    """
    parts: list[bytes] = []
    for name, text in fields:
        # A path may contain bytes that are not UTF-8, which Python keeps as lone surrogates.
        value = text.encode(errors="backslashreplace")
        if b"\n" in value:
            size = len(value).to_bytes(8, "little")
            parts += [name.encode(), b"\n", size, value, b"\n"]
        else:
            parts += [name.encode(), b"=", value, b"\n"]
    return b"".join(parts)


class JournalSender:
    """Sends entries to the journal's socket at `path`, without waiting."""

    def __init__(self, path: str) -> None:
        self._path = path
        # The socket is not connected: each send looks up the path, and so reaches a journal that
        # has restarted.
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def send(self, entry: bytes) -> bool:
        """Send an entry; return False if the journal is missing, restarting or full."""
        try:
            self._socket.sendto(entry, self._path)
        except OSError as error:
            return error.errno in _TOO_LARGE and self._send_file(entry)
        return True

    def _send_file(self, entry: bytes) -> bool:
        """Send an entry that is too large for a datagram as a file in memory."""
        try:
            descriptor = os.memfd_create("plog-journal", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            with open(descriptor, "wb", buffering=0) as file:
                rest = memoryview(entry)
                while rest:
                    rest = rest[file.write(rest) :]
                # The journal accepts only sealed files, which cannot change while it reads them.
                fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))
                self._socket.sendmsg([], [rights], 0, self._path)
        except OSError:
            return False
        return True


class JournalWriter:
    """Writes entries to the journal's socket or, if that fails, as lines to `descriptor`."""

    def __init__(self, sender: JournalSender, descriptor: int) -> None:
        self._sender = sender
        self._descriptor = descriptor
        self._lost = 0

    def write(self, fields: Sequence[Field], lines: str) -> None:
        """Write one entry; `lines` is its text with the prefixes that standard error needs."""
        # Written first, so that the line appears where the entries are missing.
        if self._lost and not self._write_loss():
            self._lost += 1
            return
        if not self._write(fields, lines):
            self._lost += 1

    def _write_loss(self) -> bool:
        text = f"lost {self._lost} log events: the journal did not accept them in time"
        fields = [("MESSAGE", text), ("PRIORITY", "4"), ("PLOG_MODULE", __name__)]
        if not self._write([*fields, IDENTIFIER], f"<4>{__name__}: {text}\n"):
            return False
        self._lost = 0
        return True

    def _write(self, fields: Sequence[Field], lines: str) -> bool:
        return self._sender.send(encode_entry(fields)) or self._write_lines(lines)

    def _write_lines(self, lines: str) -> bool:
        """Write to the descriptor unless that would block."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        rest = lines.encode(errors="backslashreplace")
        try:
            while rest:
                if not poll.poll(0):
                    return False
                # Not through sys.stderr, which would keep the bytes of a failed write.
                rest = rest[os.write(self._descriptor, rest[:_WRITE_BYTES_MAX]) :]
        except OSError:
            return False
        return True
