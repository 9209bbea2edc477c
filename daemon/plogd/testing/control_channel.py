"""The channel between a test and its broker process: a socket pair that only these two hold.

`ControlClient` creates the pair before the process starts and keeps the test's end; the broker
inherits the other end, which control_server.py reads. Each packet is one JSON object::

    {"id": 7, "command": "hook_hits", "arguments": {"number": 1}}
    {"id": 7, "result": 3}     {"id": 8, "error": "unknown request 'Produces'...", "code": null}

`code` is Kafka's error code if the error has one. The broker stops when the test's end is closed,
because this means that the test has ended.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from typing import Any

from plog.errors import error_from_code

MESSAGE_BYTES_MAX = 1 << 16
"""Size of the buffer for one packet; SOCK_SEQPACKET would truncate a larger packet."""


class ChannelClosed(Exception):
    """Raised when the broker has ended."""


class ControlClient:
    """The test's end of the channel. May be used in any thread, for one command at a time."""

    def __init__(self) -> None:
        # SOCK_SEQPACKET keeps the boundaries of messages.
        self._ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        """The child inherits `theirs`; close it in this process after the child has started."""
        # One command at a time, because `_receive` discards the responses to all others.
        self._lock = threading.Lock()
        self._last_id = 0

    def ask(self, command: str, arguments: dict[str, Any], timeout_s: float) -> Any:
        """Run a command and return its result.

        Raises:
            ValueError, KafkaError: the command failed.
            TimeoutError: the broker did not respond in time, or another command is running.
            ChannelClosed: the broker has ended.
        """
        # The lock has a timeout, so that stopping the broker does not wait for a slow command.
        if not self._lock.acquire(timeout=timeout_s):
            raise TimeoutError(f"{command}: another command took longer than {timeout_s:g} s")
        try:
            self._last_id += 1
            message = {"id": self._last_id, "command": command, "arguments": arguments}
            try:
                self._ours.send(json.dumps(message).encode())
                answer = self._receive(self._last_id, command, timeout_s)
            # TimeoutError is an OSError, but the channel remains usable after it.
            except TimeoutError:
                raise
            except OSError as error:  # The broker ended, or another thread closed this end.
                raise ChannelClosed(f"{command}: {error}") from error
        finally:
            self._lock.release()
        if "error" not in answer:
            return answer["result"]
        if answer["code"] is None:
            raise ValueError(answer["error"])
        raise error_from_code(answer["code"], answer["error"])

    def close(self) -> None:
        """Close both ends; a command in progress fails with ChannelClosed."""
        # Without this shutdown, a thread that waits in recv would not notice the close.
        with contextlib.suppress(OSError):
            self._ours.shutdown(socket.SHUT_RDWR)
        self._ours.close()
        self.theirs.close()

    def _receive(self, number: int, command: str, timeout_s: float) -> dict[str, Any]:
        deadline_s = time.monotonic() + timeout_s
        while True:
            # Not 0, because that makes a socket non-blocking.
            self._ours.settimeout(max(0.001, deadline_s - time.monotonic()))
            try:
                data = self._ours.recv(MESSAGE_BYTES_MAX)
            except TimeoutError:
                raise TimeoutError(
                    f"{command}: the broker did not respond within {timeout_s:g} s"
                ) from None
            if not data:
                raise ChannelClosed(f"{command}: the broker has ended")
            answer: dict[str, Any] = json.loads(data)
            # A response with another id belongs to an earlier command, which has timed out.
            if answer["id"] == number:
                with contextlib.suppress(OSError):  # Another thread may have closed this end.
                    # The timeout of a socket also applies to send.
                    self._ours.settimeout(None)
                return answer
