"""A bound on how long something may take that has none of its own."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from plog.client.network import Cancelled, Network
from plog.errors import RequestTimedOut

T = TypeVar("T")


async def within(
    network: Network, coroutine: Coroutine[Any, Any, T], timeout_s: float, what: str
) -> T:
    """What `coroutine` returns or raises; it is cancelled when `timeout_s` have passed.

    Raises RequestTimedOut then, with `what` has not come about.
    """
    ended = network.signal()
    results: list[T] = []
    errors: list[Exception] = []

    async def run() -> None:
        try:
            results.append(await coroutine)
        except Exception as error:
            errors.append(error)
        ended.set()

    task = network.spawn(run(), what)
    try:
        in_time = await ended.wait(timeout_s)
    except Cancelled:
        task.cancel()
        raise
    if not in_time:
        task.cancel()
        raise RequestTimedOut(f"{what}: not within {timeout_s:g} s")
    if errors:
        raise errors[0]
    return results[0]
