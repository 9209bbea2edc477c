"""Later, coroutines that await it, and Turn."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from plogd.ports import (
    Cancelled,
    Later,
    MaybeLater,
    Turn,
    failed,
    gather,
    ready,
    settle,
    spawn,
)
from tests.helpers.injection import Faults, When
from tests.helpers.sim.sim_ports import SimPorts, outcome


class Recorded:
    """A consumer that records its outcome."""

    def __init__(self, later: Later[int]) -> None:
        self.values: list[int] = []
        self.errors: list[Exception] = []
        later.then(self.values.append, self.errors.append)


def _twice(value: int) -> int:
    return 2 * value


def _refuse(value: int) -> int:
    raise ValueError(value)


# -- Later ------------------------------------------------------------------------------------


def test_value_is_delivered_once_before_or_after_then() -> None:
    early, late = Later[int](), ready(2)
    heard_early, heard_late = Recorded(early), Recorded(late)
    early.succeed(1)
    assert heard_early.values == [1]
    assert heard_late.values == [2]


def test_failure_is_delivered_once_before_or_after_then() -> None:
    early = Later[int]()
    reason = OSError("disk")
    heard_early, heard_late = Recorded(early), Recorded(failed(reason))
    early.fail(reason)
    assert heard_early.errors == heard_late.errors == [reason]
    assert heard_early.values == heard_late.values == []


@pytest.mark.parametrize(
    "again", [lambda later: later.succeed(2), lambda later: later.fail(OSError())]
)
def test_second_outcome_is_an_assertion_error(again: Callable[[Later[int]], None]) -> None:
    with pytest.raises(AssertionError, match="one outcome"):
        again(ready(1))


def test_second_consumer_is_an_assertion_error() -> None:
    later = Later[int]()
    Recorded(later)
    with pytest.raises(AssertionError, match="one consumer"):
        Recorded(later)


def test_cancel_notifies_both_sides_once_and_drops_the_outcome() -> None:
    gave_up: list[bool] = []
    later: Later[int] = Later(lambda: gave_up.append(True))
    outcomes = Recorded(later)
    later.cancel()
    later.cancel()
    later.succeed(1)
    later.fail(OSError())
    assert gave_up == [True]
    assert outcomes.values == []
    assert [type(error) for error in outcomes.errors] == [Cancelled]
    assert later.done


def test_consumer_of_a_cancelled_later_receives_cancelled() -> None:
    later = Later[int]()
    later.cancel()
    assert [type(error) for error in Recorded(later).errors] == [Cancelled]


def test_cancel_after_the_outcome_does_nothing() -> None:
    gave_up: list[bool] = []
    later: Later[int] = Later(lambda: gave_up.append(True))
    later.succeed(1)
    later.cancel()
    assert Recorded(later).values == [1]
    assert gave_up == []


def test_map_returns_value_or_error_of_the_function() -> None:
    assert outcome(ready(3).map(_twice)) == 6
    with pytest.raises(ValueError):
        outcome(ready(3).map(_refuse))
    with pytest.raises(OSError):
        outcome(failed(OSError()).map(_twice))


def test_map_applies_several_functions_in_order_until_one_fails() -> None:
    later = Later[int]()
    texts = later.map(_twice).map(str)
    later.succeed(3)
    assert outcome(texts) == "6"
    assert outcome(ready(3).map(_twice).map(_twice)) == 12
    later = Later[int]()
    refused = later.map(_refuse).map(_never)
    later.succeed(3)
    with pytest.raises(ValueError):
        outcome(refused)


def _never(value: object) -> None:
    raise AssertionError("called after an error")


def test_value_is_dropped_if_a_function_of_map_cancels() -> None:
    later = Later[int]()
    outcomes = Recorded(later.map(lambda value: later.cancel()))
    later.succeed(3)
    assert outcomes.values == []
    assert [type(error) for error in outcomes.errors] == [Cancelled]


def test_cancelling_a_mapped_later_cancels_its_source() -> None:
    source = Later[int]()
    mapped = source.map(_twice)
    outcomes = Recorded(mapped)
    mapped.cancel()
    assert source.done
    assert [type(error) for error in outcomes.errors] == [Cancelled]


# -- coroutines -------------------------------------------------------------------------------


async def _sum(laters: list[Later[int]]) -> int:
    total = 0
    for later in laters:
        total += await later
    return total


def test_coroutine_resumes_with_each_awaited_outcome() -> None:
    first, second = Later[int](), Later[int]()
    result = spawn(_sum([first, ready(10), second]))
    assert not result.done
    first.succeed(1)
    assert not result.done
    second.succeed(100)
    assert outcome(result) == 111


def test_failure_is_raised_where_it_is_awaited() -> None:
    async def forgiving() -> str:
        try:
            await waiting
        except OSError as error:
            return str(error)
        return "no error"

    waiting = Later[int]()
    result = spawn(forgiving())
    waiting.fail(OSError("disk"))
    assert outcome(result) == "disk"


def test_error_of_a_coroutine_is_its_outcome() -> None:
    with pytest.raises(OSError, match="disk"):
        outcome(spawn(_sum([failed(OSError("disk"))])))


def test_cancelling_a_coroutine_cancels_the_later_it_awaits() -> None:
    first, second = Later[int](), Later[int]()
    cleaned_up: list[bool] = []

    async def waits() -> None:
        try:
            await first
            await second
        finally:
            cleaned_up.append(True)

    result = spawn(waits())
    first.succeed(1)
    result.cancel()
    assert second.done
    assert cleaned_up == [True]
    second.succeed(2)
    with pytest.raises(Cancelled):
        outcome(result)


def test_cancelling_an_ended_coroutine_does_nothing() -> None:
    result = spawn(_sum([ready(1)]))
    result.cancel()
    assert outcome(result) == 1


def test_awaiting_thousands_of_ready_laters_does_not_grow_the_stack() -> None:
    """A broker's start gathers the loads of all partitions, most of which end before the first."""
    count = 5_000
    laters = [Later[int]() for _ in range(count)]
    result = spawn(_sum(laters))
    for later in reversed(laters):
        later.succeed(1)
    assert outcome(result) == count


def test_awaiting_thousands_of_failed_laters_does_not_grow_the_stack() -> None:
    result = spawn(gather([failed(OSError(f"number {number}")) for number in range(5_000)]))
    with pytest.raises(OSError, match="number 0"):
        outcome(result)


def test_gather_keeps_order_and_waits_for_all() -> None:
    laters = [Later[int]() for _ in range(3)]
    result = spawn(gather(laters))
    laters[2].succeed(2)
    laters[0].succeed(0)
    assert not result.done
    laters[1].succeed(1)
    assert outcome(result) == [0, 1, 2]


def test_gather_raises_the_first_failure_by_position_once_all_have_ended() -> None:
    laters = [Later[int]() for _ in range(3)]
    result = spawn(gather(laters))
    laters[2].fail(OSError("third"))
    laters[1].fail(OSError("second"))
    assert not result.done
    laters[0].succeed(0)
    with pytest.raises(OSError, match="second"):
        outcome(result)


def test_settle_awaits_only_laters() -> None:
    waiting = Later[int]()
    values: list[MaybeLater[int]] = [1, waiting]
    now, later = (spawn(settle(value)) for value in values)
    assert outcome(now) == 1
    assert not later.done
    waiting.succeed(2)
    assert outcome(later) == 2


# -- Turn -------------------------------------------------------------------------------------


def test_deferred_calls_run_in_order_when_the_outermost_turn_ends() -> None:
    turn = Turn(SimPorts().timers)
    calls: list[str] = []
    with turn:
        turn.defer(lambda: calls.append("first"))
        with turn:
            turn.defer(lambda: calls.append("second"))
        assert calls == []
    assert calls == ["first", "second"]


def test_call_deferred_by_a_deferred_call_runs_in_the_same_turn() -> None:
    turn = Turn(SimPorts().timers)
    calls: list[str] = []

    def first() -> None:
        turn.defer(lambda: calls.append("second"))
        calls.append("first")

    with turn:
        turn.defer(first)
    assert calls == ["first", "second"]


def test_turn_that_could_not_be_scheduled_runs_with_the_next_call() -> None:
    ports, faults = SimPorts(), Faults()
    turn = Turn(faults.timers(ports.timers))
    calls: list[str] = []
    faults.arm(1, When.BEFORE, MemoryError("injected"))
    with pytest.raises(MemoryError):
        turn.defer(lambda: calls.append("first"))
    turn.defer(lambda: calls.append("second"))
    ports.settle()
    assert calls == ["first", "second"]


def test_call_deferred_outside_of_a_turn_runs_when_the_reactor_is_free() -> None:
    ports = SimPorts()
    calls: list[str] = []
    ports.turn.defer(lambda: calls.append("first"))
    ports.turn.defer(lambda: calls.append("second"))
    assert calls == []
    assert ports.timers.next_due_ms == 0
    ports.timers.run_next()
    assert calls == ["first", "second"]
    assert ports.timers.next_due_ms is None


def test_turn_runs_calls_deferred_before_it() -> None:
    ports = SimPorts()
    calls: list[str] = []
    ports.turn.defer(lambda: calls.append("before"))
    with ports.turn:
        pass
    ports.settle()
    assert calls == ["before"]


def test_failing_call_does_not_stop_the_other_deferred_calls() -> None:
    ports = SimPorts()
    calls: list[str] = []

    def fails() -> None:
        raise ValueError("a bug")

    ports.turn.defer(fails)
    ports.turn.defer(lambda: calls.append("after it"))
    with pytest.raises(ValueError, match="a bug"):
        ports.timers.run_next()
    assert calls == []
    ports.settle()
    assert calls == ["after it"]
