"""The way from a test to its broker in another process: a socket that only those two hold.

The test's end is `ControlClient`, made with the pair before the process starts; the broker's end is
inherited, and read by control_server.py. One JSON object a message, kept apart by the kernel::

    {"id": 7, "command": "hook_hits", "arguments": {"number": 1}}
    {"id": 7, "result": 3}     {"id": 8, "error": "there is no request 'Produces'...", "code": null}

`code` is Kafka's where the error is one of Kafka's. When the test's end is gone, so is the test,
and the broker ends.
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


class ChannelClosed(Exception):
    """The broker has ended."""


class ControlClient:
    """The test's end. Any thread; one command at a time."""

    def __init__(self) -> None:
        self._ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        """`theirs` is for the child, as an inherited descriptor; close it when the child has it."""
        self._lock = threading.Lock()
        self._last_id = 0

    def ask(self, command: str, arguments: dict[str, Any], timeout_s: float) -> Any:
        """The outcome of a command.

        Raises ValueError or KafkaError if it is wrong, TimeoutError, or ChannelClosed.
        """
        # One that waits may take its time: whoever stops the broker does not wait for it.
        if not self._lock.acquire(timeout=timeout_s):
            raise TimeoutError(f"{command}: another command takes more than {timeout_s:g} s")
        try:
            self._last_id += 1
            message = {"id": self._last_id, "command": command, "arguments": arguments}
            try:
                self._ours.send(json.dumps(message).encode())
                answer = self._receive(self._last_id, command, timeout_s)
            except TimeoutError:
                raise
            except OSError as error:  # Lost, or closed by another thread.
                raise ChannelClosed(f"{command}: {error}") from error
        finally:
            self._lock.release()
        if "error" not in answer:
            return answer["result"]
        if answer["code"] is None:
            raise ValueError(answer["error"])
        raise error_from_code(answer["code"], answer["error"])

    def close(self) -> None:
        """Let go of both ends; who waits for an answer hears of it."""
        with contextlib.suppress(OSError):
            self._ours.shutdown(socket.SHUT_RDWR)
        self._ours.close()
        self.theirs.close()

    def _receive(self, number: int, command: str, timeout_s: float) -> dict[str, Any]:
        deadline_s = time.monotonic() + timeout_s
        while True:
            self._ours.settimeout(max(0.001, deadline_s - time.monotonic()))
            try:
                data = self._ours.recv(MESSAGE_BYTES_MAX)
            except TimeoutError:
                raise TimeoutError(
                    f"{command}: the broker has not done it in {timeout_s:g} s"
                ) from None
            if not data:
                raise ChannelClosed(f"{command}: the broker has ended")
            answer: dict[str, Any] = json.loads(data)
            # Of an earlier one nobody waits for the answer any more.
            if answer["id"] == number:
                with contextlib.suppress(OSError):
                    self._ours.settimeout(None)
                return answer
