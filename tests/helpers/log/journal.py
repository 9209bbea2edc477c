"""A socket in place of systemd's journal, which parses the entries that it receives.

The format is that of https://systemd.io/JOURNAL_NATIVE_PROTOCOL, written down here a second time so
that an error in plogd/journal.py cannot go unnoticed.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile

_DATAGRAM_BYTES_MAX = 1 << 20

Entry = dict[str, list[str]]
"""The values of each field."""


class JournalSocket:
    """The receiving end of the native protocol; `path` is its address."""

    def __init__(self) -> None:
        # A directory with a short path: the path of a unix socket is limited to 108 bytes.
        self._directory = tempfile.TemporaryDirectory(prefix="plog-")
        self.path = os.path.join(self._directory.name, "socket")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._socket.setblocking(False)
        self.files = 0
        """The number of entries that arrived as files in memory."""

    def close(self) -> None:
        """Close the socket and remove its directory."""
        self._socket.close()
        self._directory.cleanup()

    def entries(self) -> list[Entry]:
        """Return the entries that have arrived since the last call."""
        found = []
        while True:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._socket, _DATAGRAM_BYTES_MAX, 1)
            except BlockingIOError:
                return found
            found.append(parse_entry(self._content(descriptors[0]) if descriptors else data))

    def _content(self, descriptor: int) -> bytes:
        """Return the content of a sealed file; the journal rejects others."""
        self.files += 1
        with open(descriptor, "rb") as file:
            seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
            assert seals & fcntl.F_SEAL_SHRINK
            assert seals & fcntl.F_SEAL_GROW
            assert seals & fcntl.F_SEAL_WRITE
            assert seals & fcntl.F_SEAL_SEAL
            file.seek(0)
            return file.read()


def parse_entry(data: bytes) -> Entry:
    """Return the fields of one entry. Raises ValueError if it is invalid."""
    entry: Entry = {}
    while data:
        line, newline, rest = data.partition(b"\n")
        if not newline:
            raise ValueError(f"{line!r} does not end with a line feed")
        name, equals, value = line.partition(b"=")
        if not equals:
            size = int.from_bytes(rest[:8], "little")
            value, rest = rest[8 : 8 + size], rest[8 + size :]
            if len(value) != size or rest[:1] != b"\n":
                raise ValueError(f"{name!r} does not have {size} bytes and a line feed")
            rest = rest[1:]
        entry.setdefault(name.decode("ascii"), []).append(value.decode())
        data = rest
    return entry
