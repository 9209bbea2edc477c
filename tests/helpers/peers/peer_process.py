"""A real broker whose `Peers` obey the lines on standard input.

    python -m tests.helpers.peers.peer_process [OPTIONS OF plog-broker]

`PeerProcess` starts it. Each line is a JSON object: ``addresses`` sets the addresses of the other
brokers, ``ask`` sends a request, ``modules`` asks for the modules that were imported since the
broker has served requests. Each answer is a JSON object with the same ``number``.
"""

from __future__ import annotations

import base64
import json
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

from plog.wire.messages import API_BY_KEY
from plog.wire.schema import ApiMessage

_PORT = re.compile(r":(\d+)(?:,|$)")
_TIMEOUT_S = 30.0


class PeerProcess:
    """A broker process of a test; `options` are those of plog-broker."""

    def __init__(self, *options: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.helpers.peers.peer_process", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log: list[str] = []
        self._listening = threading.Event()
        self._ports: list[int] = []
        self._number = 0
        self._answers: dict[int, Any] = {}
        self._lines: SimpleQueue[str] = SimpleQueue()
        """The lines of the broker's answers; an empty line at the end."""
        threading.Thread(target=self._read_log, daemon=True).start()
        threading.Thread(target=self._read_answers, daemon=True).start()

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.log.append(line)
            if "listening on " in line:
                self._ports = [int(port) for port in _PORT.findall(line.rstrip())]
                self._listening.set()

    def _read_answers(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def port(self, listener: int = 0) -> int:
        """Return the port of a listener, given its position, once it is open."""
        assert self._listening.wait(_TIMEOUT_S), "".join(self.log)
        return self._ports[listener]

    def use_addresses(self, addresses: dict[int, tuple[str, int]]) -> None:
        """Set the addresses of the other brokers."""
        self.answer(self._send("addresses", {str(key): value for key, value in addresses.items()}))

    def modules(self) -> list[str]:
        """Return the modules that were imported since the broker has served requests."""
        found: list[str] = self.answer(self._send("modules", None))["modules"]
        return found

    def start_ask(
        self, broker_id: int, request: ApiMessage, version: int, lane: str = "control"
    ) -> int:
        """Send a request to a broker; return the number of its answer. Versions are negotiated."""
        body = base64.b64encode(request.encode(version)).decode()
        asked = {
            "broker": broker_id,
            "key": request.api_key,
            "version": version,
            "body": body,
            "lane": lane,
        }
        return self._send("ask", asked)

    def ask(self, broker_id: int, request: ApiMessage, version: int, lane: str = "control") -> Any:
        """Return the response, decoded, or the name of the exception."""
        answer = self.answer(self.start_ask(broker_id, request, version, lane))
        return self.response(answer, request, version)

    def response(self, answer: Any, request: ApiMessage, version: int) -> Any:
        """Return the response in an answer, or the name of the exception."""
        if "error" in answer:
            return answer["error"]
        response = API_BY_KEY[request.api_key].response
        return response.decode(base64.b64decode(answer["body"]), version)

    def _send(self, command: str, argument: object) -> int:
        assert self._process.stdin is not None
        self._number += 1
        line = json.dumps({"number": self._number, command: argument})
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._number

    def answer(self, number: int) -> Any:
        """Wait for an answer."""
        while number not in self._answers:
            line = self._lines.get(timeout=_TIMEOUT_S)
            assert line, "".join(self.log)
            answer = json.loads(line)
            self._answers[answer["number"]] = answer
        return self._answers.pop(number)

    def kill(self) -> None:
        """End the process as by a crash."""
        self._process.kill()
        self._process.wait(_TIMEOUT_S)

    def stop(self) -> int:
        """Stop the broker; return its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self.kill()


def options_of(broker_id: int, directory: Path, *settings: str) -> list[str]:
    """Return the options of a broker on free ports."""
    all_settings = (
        f"node.id={broker_id}",
        f"log.dirs={directory}",
        "plog.http.port=0",
        *settings,
    )
    return [text for setting in all_settings for text in ("--override", setting)]


# -- in the broker's process -------------------------------------------------------------------


def _main() -> int:
    from twisted.internet import stdio
    from twisted.protocols.basic import LineReceiver

    from plogd import __main__ as command
    from plogd.net.peer_connections import peers_on
    from plogd.service import BrokerService
    from plogd.tap import Options

    class Commands(LineReceiver):
        delimiter = b"\n"
        MAX_LENGTH = 1 << 26

        def __init__(self, service: BrokerService, reactor: Any) -> None:
            self._addresses: dict[int, tuple[str, int]] = {}
            self._peers = peers_on(reactor, service.broker, self._addresses.get)
            self._modules: set[str] = set()

        def lineReceived(self, line: bytes) -> None:
            self._modules = self._modules or set(sys.modules)
            command = json.loads(line)
            number = command["number"]
            if "addresses" in command:
                for broker_id, (host, port) in command["addresses"].items():
                    self._addresses[int(broker_id)] = (host, port)
                self._answer(number)
            elif "modules" in command:
                self._answer(number, modules=sorted(set(sys.modules) - self._modules))
            else:
                self._ask(number, **command["ask"])

        def _ask(
            self, number: int, *, broker: int, key: int, version: int, body: str, lane: str
        ) -> None:
            request = API_BY_KEY[key].request.decode(base64.b64decode(body), version)

            def succeeded(response: ApiMessage) -> None:
                data = base64.b64encode(response.encode(version)).decode()
                self._answer(number, body=data)

            def has_failed(error: Exception) -> None:
                self._answer(number, error=type(error).__name__, text=str(error))

            self._peers.ask(broker, request, lane).then(succeeded, has_failed)

        def _answer(self, number: int, **fields: object) -> None:
            self.sendLine(json.dumps({"number": number, **fields}).encode())

    def make_service(options: Options, reactor: Any) -> BrokerService:
        service = command._make_service(options, reactor)
        reactor.callWhenRunning(lambda: stdio.StandardIO(Commands(service, reactor)))
        return service

    return command.run(sys.argv[1:], command._install_reactor, make_service)


if __name__ == "__main__":
    sys.exit(_main())
