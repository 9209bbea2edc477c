"""`Writer`: a producer in a thread, for tests in which something happens while a client writes."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, Message, Producer

from tests.cluster.clients import Broker
from tests.helpers.eventually import TIMEOUT_S, eventually

_MORE = 5


class Writer:
    """Writes the values 0, 1, … with acks=all until the end of its ``with`` block.

    A record is sent when the one before has been acknowledged. The first error ends the writer, and
    `wait` and the end of the block raise it.
    """

    def __init__(self, broker: Broker, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "enable.idempotence": True,
                "message.timeout.ms": int(TIMEOUT_S * 1000),
                # A leader that does not respond must not delay the test.
                "socket.timeout.ms": 5000,
                "reconnect.backoff.max.ms": 500,
                # It would report every broker that does not run.
                "log_level": 0,
            }
        )
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._errors: list[KafkaError] = []
        self.written: list[bytes] = []
        """The acknowledged values."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_stopped.set()
        self._thread.join(2 * TIMEOUT_S)
        if error is None:
            assert not self._thread.is_alive()
            self._check()

    def wait(self) -> None:
        """Wait until more records have been acknowledged."""
        count = len(self.written) + _MORE

        def has_written() -> bool:
            self._check()
            return len(self.written) >= count

        eventually(has_written, "more acknowledged records")

    def _check(self) -> None:
        assert self._errors == []

    def _run(self) -> None:
        while not self._is_stopped.is_set() and not self._errors:
            value = b"%d" % len(self.written)
            self._producer.produce(self._topic, value, partition=0, on_delivery=self._delivered)
            self._producer.flush()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.written.append(message.value())
        else:
            self._errors.append(error)
