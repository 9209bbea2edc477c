"""Leaving a client's ``with`` block, normally or by an exception, which bounds the close."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from plog.client.faces import asyncio as asyncio_face
from plog.client.faces import blocking
from plog.client.faces import twisted as twisted_face
from plog.client.faces.method_adapters import EXIT_TIMEOUT_S
from plog.client.transactions.context_manager import EXIT_TIMEOUT_S as ABORT_TIMEOUT_S

_LONGEST_EXIT_S = 5.0


class Failed(BaseException):
    """An exception that is not an `Exception`, as KeyboardInterrupt is not."""


@pytest.fixture(params=["Producer", "Consumer", "Admin"])
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def run(face: Any, client: Any, error: BaseException | None) -> None:
    """Run an empty block, or one that raises `error`."""

    async def block() -> None:
        async with client:
            if error is not None:
                raise error

    if face is asyncio_face:
        asyncio.run(block())
    elif face is twisted_face:
        outcome: list[Any] = []
        Deferred.fromCoroutine(block()).addBoth(outcome.append)
        if outcome[0] is not None:
            outcome[0].raiseException()
    else:
        with client:
            if error is not None:
                raise error


def client_of(face: Any, name: str) -> Any:
    options = {"reactor": Clock()} if face is twisted_face else {}
    return getattr(face, name)(bootstrap_servers="127.0.0.1:1", **options)


@pytest.mark.parametrize("face", [blocking, asyncio_face, twisted_face])
@pytest.mark.parametrize("fails", [False, True])
def test_exception_in_block_bounds_the_close(
    face: Any, name: str, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = client_of(face, name)
    timeouts: list[float | None] = []

    async def closed() -> None: ...

    def close(timeout_s: float | None = None) -> Any:
        timeouts.append(timeout_s)
        return None if face is blocking else closed()

    really_close = client.close
    monkeypatch.setattr(client, "close", close)
    if fails:
        with pytest.raises(Failed):
            run(face, client, Failed())
    else:
        run(face, client, None)
    assert timeouts == [EXIT_TIMEOUT_S if fails else None]
    if face is blocking:
        really_close(0)


@pytest.mark.parametrize("face", [blocking, asyncio_face, twisted_face])
def test_failing_close_does_not_hide_the_exception_of_the_block(
    face: Any, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = client_of(face, name)

    def close(timeout_s: float | None = None) -> Any:
        raise RuntimeError("cannot close")

    really_close = client.close
    monkeypatch.setattr(client, "close", close)
    with pytest.raises(Failed):
        run(face, client, Failed())
    assert "cannot close" in caplog.text
    if face is blocking:
        really_close(0)


def test_exception_in_transaction_bounds_abort_and_close() -> None:
    assert ABORT_TIMEOUT_S + EXIT_TIMEOUT_S <= _LONGEST_EXIT_S
