"""PrivateReactor runs coroutines in its own thread, and is replaced after a fork."""

from __future__ import annotations

import os
import threading

import pytest

from plog.client.errors import ForkedError, IllegalState
from plog.client.network.private_reactor import PrivateReactor


@pytest.fixture
def private() -> PrivateReactor:
    return PrivateReactor.current()


def test_process_has_one_private_reactor(private: PrivateReactor) -> None:
    assert PrivateReactor.current() is private


def test_coroutine_runs_in_the_reactor_thread(private: PrivateReactor) -> None:
    async def where() -> str:
        return threading.current_thread().name

    assert private.run(where) == "plog-client"


def test_coroutine_exception_is_raised_in_the_caller(private: PrivateReactor) -> None:
    async def fail() -> None:
        raise LookupError("this one")

    with pytest.raises(LookupError, match="this one"):
        private.run(fail)


def test_wrong_arguments_raise_in_the_caller(
    private: PrivateReactor,
) -> None:
    async def greet(name: str) -> str:
        return name

    with pytest.raises(TypeError, match="name"):
        private.wait_for(private.begin(greet), 10)


def test_blocking_call_in_the_reactor_thread_is_refused(private: PrivateReactor) -> None:
    async def nothing() -> None:
        pass

    async def wait_for_itself() -> None:
        private.run(nothing)

    with pytest.raises(IllegalState, match="callback"):
        private.run(wait_for_itself)


def test_timed_out_wait_cancels_the_coroutine(private: PrivateReactor) -> None:
    from plog.client.network.ports import Cancelled
    from plog.client.network.twisted_network import DeferredNetwork

    ended = threading.Event()

    async def wait() -> None:
        try:
            await DeferredNetwork(private.reactor).sleep(600)
        except Cancelled:
            ended.set()
            raise

    with pytest.raises(TimeoutError):
        private.wait_for(private.begin(wait), 0.01)
    assert ended.wait(60)


def test_child_process_gets_its_own_reactor(private: PrivateReactor) -> None:
    class Client:
        is_forked = False

        def _forked(self) -> None:
            self.is_forked = True

    async def answer() -> int:
        return 42

    client = Client()
    private.add(client)
    pid = os.fork()
    if pid == 0:
        works = client.is_forked and PrivateReactor.current().run(answer) == 42
        try:
            private.run(answer)
        except ForkedError:
            os._exit(0 if works else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert not client.is_forked
    assert private.run(answer) == 42
