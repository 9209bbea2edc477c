"""ServerTransport: unexpected errors close a single connection."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from plogd.net.output_queue import OutputQueue
from tests.helpers.net_parts import METADATA, RefusingEpoll, frame, response
from tests.unit.net.test_transport import make_broker, pump

__all__ = ["make_broker", "pump"]


def test_error_while_sending_closes_the_connection(
    make_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of the response may be lost, so nothing may follow it."""

    def fail(*_: object) -> None:
        raise MemoryError

    broker = make_broker()
    client, other = broker.connect(), broker.connect()
    with monkeypatch.context() as patched:
        patched.setattr(OutputQueue, "flush", fail)
        client.sendall(frame(METADATA, "a"))
        broker.until(lambda: len(broker.shared) == 1)
    other.sendall(frame(METADATA, "b"))
    broker.exchange(other, response("b"))


def test_connection_that_the_kernel_does_not_watch_is_closed(
    make_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make_broker()
    other = broker.connect()
    poller = broker.listeners._poller
    with monkeypatch.context() as patched:
        patched.setattr(poller, "_epoll", RefusingEpoll(poller._epoll, "register", errno.ENOSPC))
        broker.end_of_stream(broker.connect())
    assert (len(broker.shared), broker.shared.closed) == (1, 1)
    other.sendall(frame(METADATA, "b"))
    broker.exchange(other, response("b"))
