"""Jobs of a client run in threads and report their outcome to the reactor."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from queue import Queue
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from plog.client.errors import ConnectionFailed
from plog.client.network.ports import Cancelled
from plog.client.network.twisted_network import TwistedNetwork


class Reactor(Clock):
    """A clock with a queue of calls from threads."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.from_threads: Queue[Callable[[], object]] = Queue()

    def callFromThread(self, function: Callable[..., object], *arguments: Any) -> None:
        self.from_threads.put(partial(function, *arguments))

    def run_next(self) -> None:
        self.from_threads.get(timeout=60)()


@pytest.fixture
def reactor() -> Reactor:
    return Reactor()


@pytest.fixture
def network(reactor: Reactor) -> TwistedNetwork:
    return TwistedNetwork(reactor)


def outcome_of(deferred: Deferred[Any]) -> list[Any]:
    outcomes: list[Any] = []
    deferred.addBoth(outcomes.append)
    return outcomes


def test_job_thread_does_not_delay_exit(reactor: Reactor, network: TwistedNetwork) -> None:
    outcomes = outcome_of(network.job(threading.current_thread))
    reactor.run_next()
    [thread] = outcomes
    assert thread is not threading.current_thread()
    assert thread.daemon


def test_job_exception_is_raised_at_the_await(reactor: Reactor, network: TwistedNetwork) -> None:
    outcomes = outcome_of(network.job(lambda: 1 // 0))
    reactor.run_next()
    assert isinstance(outcomes[0].value, ZeroDivisionError)


def test_cancelled_job_reports_nothing(reactor: Reactor, network: TwistedNetwork) -> None:
    job = network.job(lambda: 1)
    outcomes = outcome_of(job)
    job.cancel()
    reactor.run_next()
    [failure] = outcomes
    assert isinstance(failure.value, Cancelled)


def test_slow_certificate_files_fail_the_connect(reactor: Reactor, network: TwistedNetwork) -> None:
    pytest.importorskip("OpenSSL")
    go_on = threading.Event()

    class Stuck:
        """A TLS configuration whose files are on a disk that does not respond."""

        checks_host_name = True

        def kept(self, kind: str, make: object) -> object:
            assert go_on.wait(60)
            return None

    stuck: Any = Stuck()
    connecting = network.connect("127.0.0.1", 9093, stuck, timeout_s=5)
    outcomes = outcome_of(Deferred.fromCoroutine(connecting))
    reactor.advance(5)
    [failure] = outcomes
    assert isinstance(failure, Failure)
    assert isinstance(failure.value, ConnectionFailed)
    assert "reading the certificates took too long" in str(failure.value)
    go_on.set()
    reactor.run_next()
    assert len(outcomes) == 1
