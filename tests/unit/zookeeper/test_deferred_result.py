"""Results of requests to ZooKeeper in the client's engine."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from plog.client.network.ports import Cancelled
from plog.zookeeper.deferred_result import DeferredResult
from plog.zookeeper.operations import ConnectionLost


def outcome(deferred: Deferred[Any]) -> Any:
    found: list[Any] = []
    deferred.addBoth(found.append)
    [only] = found
    return only


def test_value_and_error_reach_the_coroutine() -> None:
    async def wait(result: DeferredResult) -> Any:
        return await result

    first, second = DeferredResult(), DeferredResult()
    waiting = Deferred.fromCoroutine(wait(first)), Deferred.fromCoroutine(wait(second))
    first.succeed(42)
    second.fail(ConnectionLost("lost"))
    assert outcome(waiting[0]) == 42
    assert outcome(waiting[1]).check(ConnectionLost)


@pytest.mark.parametrize("is_error", [True, False])
def test_outcome_after_a_cancellation_is_ignored(is_error: bool) -> None:
    result = DeferredResult()
    found: list[Any] = []
    result.addErrback(found.append)
    result.cancel()
    if is_error:
        result.fail(ConnectionLost("lost"))
    else:
        result.succeed(42)
    assert found[0].check(Cancelled)
