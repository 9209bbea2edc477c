"""The broker's end of control_channel.py: does the commands of the test that started it.

Made by controlled_main.py alone. Reactor thread only.
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
    """Reads commands from `end`; stops `reactor`, Any as in service.py, when the test has gone."""

    def __init__(self, end: socket.socket, controls: Controls, reactor: Any) -> None:
        end.setblocking(False)
        self._end = end
        self._controls = controls
        self._reactor = reactor
        reactor.addReader(self)

    def fileno(self) -> int:
        """The descriptor to watch."""
        return self._end.fileno()

    def logPrefix(self) -> str:
        """What Twisted calls us in its log."""
        return "test"

    def doRead(self) -> None:
        """A command has come, or the test has gone."""
        try:
            data = self._end.recv(MESSAGE_BYTES_MAX)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self._reactor.removeReader(self)
            self._reactor.stop()
            return
        message = json.loads(data)
        number = message["id"]
        self._controls.do(message["command"], message["arguments"]).then(
            lambda result: self._tell({"id": number, "result": result}),
            lambda error: self._tell(_told(number, error)),
        )

    def connectionLost(self, reason: Failure) -> None:
        """The reactor stops."""
        self._end.close()

    def _tell(self, answer: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # The test has gone: doRead hears of it.
            self._end.send(json.dumps(answer).encode())


def _told(number: int, error: Exception) -> dict[str, Any]:
    if isinstance(error, KafkaError):
        return {"id": number, "error": error.message, "code": int(error.code)}
    text = str(error) if isinstance(error, ValueError) else repr(error)
    return {"id": number, "error": text, "code": None}
