"""The broker's end of the channel in control_channel.py, which runs the test's commands.

Created only by controlled_main.py. Reactor thread only.
"""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any

from twisted.internet.interfaces import IReadDescriptor
from twisted.python.failure import Failure
from zope.interface import implementer

from plog.errors import KafkaError
from plogd.testing.control_channel import MESSAGE_BYTES_MAX
from plogd.testing.controls import Controls


@implementer(IReadDescriptor)
class ControlServer:
    """Runs commands from `end`, and stops `reactor` when the test closes its end.

    `reactor` is typed as Any, as in service.py.
    """

    def __init__(self, end: socket.socket, controls: Controls, reactor: Any) -> None:
        # A descriptor that epoll reports as readable may still block, which would stop the broker.
        end.setblocking(False)
        self._end = end
        self._controls = controls
        self._reactor = reactor
        reactor.addReader(self)

    def fileno(self) -> int:
        """Return the descriptor of the socket."""
        return self._end.fileno()

    def logPrefix(self) -> str:
        """Return the name for Twisted's log lines."""
        return "test"

    def doRead(self) -> None:
        """Run a command, or stop the reactor if the test has closed its end."""
        try:
            data = self._end.recv(MESSAGE_BYTES_MAX)
        except BlockingIOError:
            return
        # The test has ended without reading its last response.
        except ConnectionError:
            data = b""
        if not data:
            # The end of a stream stays readable, so doRead would be called again and again.
            self._reactor.removeReader(self)
            self._reactor.stop()
            return
        message = json.loads(data)
        number = message["id"]
        self._controls.do(message["command"], message["arguments"]).then(
            lambda result: self._send({"id": number, "result": result}),
            lambda error: self._send(_error_message(number, error)),
        )

    def connectionLost(self, reason: Failure) -> None:
        """Close the socket when the reactor stops."""
        self._end.close()

    def _send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # The test has closed its end, which doRead handles.
            self._end.send(json.dumps(message).encode())


def _error_message(number: int, error: Exception) -> dict[str, Any]:
    if isinstance(error, KafkaError):
        return {"id": number, "error": error.message, "code": int(error.code)}
    # An unexpected exception may have no text, but it always has a type.
    text = str(error) if isinstance(error, ValueError) else repr(error)
    return {"id": number, "error": text, "code": None}
