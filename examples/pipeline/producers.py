"""`Producers`: an audited producer for each simulated web server."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from examples.pipeline.traffic import SERVERS, Message
from plog import Producer


class Producers:
    """The producers; leaving the ``with`` block sends what is left, and their last reports."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._producers = {
            name: audited_producer(bootstrap_servers, name, linger_ms=20) for name in SERVERS
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for producer in self._producers.values():
            producer.close()

    def send(self, messages: Iterable[Message]) -> None:
        """Pass messages to their producers, which send them in the background."""
        for message in messages:
            self._producers[message.producer].send(
                message.topic, message.value, message.key, timestamp=message.at_ms
            )

    def flush(self) -> None:
        """Wait until all messages are acknowledged."""
        for producer in self._producers.values():
            producer.flush()


def audited_producer(bootstrap_servers: str, name: str, **settings: Any) -> Producer:
    """Return a producer that reports its records under a name."""
    return Producer(
        bootstrap_servers=bootstrap_servers,
        plog_audit_enable=True,
        plog_audit_producer=name,
        **settings,
    )
