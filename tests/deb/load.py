"""``python -m tests.deb.load SERVER TOPIC``: produce numbered messages until SIGTERM, and connect.

Each message is sent 5 ms after the one before it has been acknowledged, or 25 ms after it has been
sent. A thread opens a connection every 20 ms, sends a request and waits for the response. The
first line says that the load is ready for signals. SIGUSR1 prints a line when a message that is
sent later is acknowledged. The last line is a JSON object: the numbers of the acknowledged
messages, the longest time between two acknowledgements, the connections, and how many of them were
refused or got no response.
"""

from __future__ import annotations

import json
import signal
import socket
import struct
import sys
import threading
import time

from confluent_kafka import KafkaError, Message, Producer

_INTERVAL_S = 0.02
_PAUSE_S = 0.005
"""Without a pause, the load and the broker would need a core, and delay the upgrade."""
_RESPONSE_TIMEOUT_S = 60.0
_API_VERSIONS = struct.pack(">hhih", 18, 0, 1, -1)


class Acknowledgements:
    """The numbers of acknowledged messages, and the longest gap between two of them."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.longest_gap_s = 0.0
        self.announce_from: int | None = None
        self._last_s: float | None = None

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        """Record the outcome of a message."""
        if error is not None:
            raise SystemExit(f"a message was not delivered: {error}")
        now = time.monotonic()
        if self._last_s is not None:
            self.longest_gap_s = max(self.longest_gap_s, now - self._last_s)
        self._last_s = now
        value = message.value()
        assert isinstance(value, bytes)
        number = int(value)
        self.numbers.append(number)
        if self.announce_from is not None and number >= self.announce_from:
            self.announce_from = None
            print("acknowledged", flush=True)


class Connections:
    """A thread that connects, asks for the API versions, and disconnects, until it is stopped."""

    def __init__(self, server: str) -> None:
        host, _, port = server.rpartition(":")
        self._address = (host, int(port))
        self.total = 0
        self.refused = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """Stop after the connection in progress."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(_INTERVAL_S):
            self.total += 1
            try:
                with socket.create_connection(self._address, _RESPONSE_TIMEOUT_S) as connection:
                    connection.sendall(struct.pack(">i", len(_API_VERSIONS)) + _API_VERSIONS)
                    if not connection.recv(4):
                        self.refused += 1
            except OSError:
                self.refused += 1


def main() -> None:
    """Run the load."""
    server, topic = sys.argv[1:]
    acknowledgements = Acknowledgements()
    producer = Producer(
        {
            "bootstrap.servers": server,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 0,
            "message.timeout.ms": 300_000,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
        }
    )
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    sent = 0

    def announce(*_: object) -> None:
        acknowledgements.announce_from = sent

    signal.signal(signal.SIGUSR1, announce)
    print("ready", flush=True)
    connections = Connections(server)
    try:
        while not stopped.wait(_PAUSE_S):
            producer.produce(topic, str(sent).encode(), on_delivery=acknowledgements.delivered)
            sent += 1
            producer.poll(_INTERVAL_S)
        assert producer.flush(_RESPONSE_TIMEOUT_S) == 0
    finally:
        connections.stop()
    result = {
        "acknowledged": acknowledgements.numbers,
        "longest_gap_s": acknowledgements.longest_gap_s,
        "connections": connections.total,
        "refused": connections.refused,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
