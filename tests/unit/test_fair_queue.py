"""Turns in order of arrival, one per pass, and loops that wait for one after each slice."""

from __future__ import annotations

from plogd.fair_queue import PAUSE_AFTER_TURNS, PAUSE_MS, FairQueue, Slices
from plogd.ports import Later, spawn
from tests.helpers.sim.sim_ports import SimPorts, outcome


def test_one_turn_is_granted_per_pass_in_order_of_arrival() -> None:
    ports = SimPorts()
    queue = FairQueue(ports.timers)
    seen: list[object] = []
    for name in "abc":
        queue.turn().then(lambda _, name=name: seen.append(name), seen.append)  # type: ignore[misc]
    for expected in (["a"], ["a", "b"], ["a", "b", "c"]):
        # Calls scheduled meanwhile run before the next turn.
        ports.timers.call_later(0, lambda: None)
        ports.timers.run_next()
        while len(seen) < len(expected):
            ports.timers.run_next()
        assert seen == expected
    assert not ports.timers.run_due() or seen == ["a", "b", "c"]


def test_cancelled_turn_is_skipped() -> None:
    ports = SimPorts()
    queue = FairQueue(ports.timers)
    first, second = queue.turn(), queue.turn()
    first.cancel()
    second.then(lambda _: None, lambda error: None)
    ports.timers.run_next()
    assert second.done
    assert len(queue) == 0


def test_reactor_is_left_idle_between_the_turns_of_a_large_request() -> None:
    ports = SimPorts()
    began_ms = ports.clock.monotonic_ms()
    seen: list[int] = []

    async def work() -> None:
        async for number in Slices(FairQueue(ports.timers), 1).over(range(2 * PAUSE_AFTER_TURNS)):
            seen.append(number)

    spawn(work())
    for _ in range(PAUSE_AFTER_TURNS):
        ports.timers.run_next()
        assert ports.clock.monotonic_ms() == began_ms
    ports.settle()
    assert len(seen) == 2 * PAUSE_AFTER_TURNS
    assert ports.clock.monotonic_ms() == began_ms + PAUSE_MS


def test_failing_continuation_does_not_stop_later_turns() -> None:
    ports = SimPorts()
    queue = FairQueue(ports.timers)

    def fail(_: None) -> None:
        raise RuntimeError

    queue.turn().then(fail, lambda error: None)
    second = queue.turn()
    try:
        ports.timers.run_due()
    except RuntimeError:
        ports.timers.run_due()
    assert second.done


def test_loops_of_one_request_share_its_slices() -> None:
    ports = SimPorts()
    queue = FairQueue(ports.timers)
    seen: list[int] = []

    async def work() -> list[int]:
        slices = Slices(queue, 4)
        async for tens in slices.over((0, 10, 20)):
            async for ones in slices.over((1, 2)):
                seen.append(tens + ones)
        return seen

    done: Later[list[int]] = spawn(work())
    assert seen == [1, 2]  # Two elements inside and two outside are a slice.
    ports.timers.run_next()
    assert seen == [1, 2, 11, 12, 21]
    ports.timers.run_next()
    assert outcome(done) == [1, 2, 11, 12, 21, 22]


def test_work_done_at_c_speed_counts() -> None:
    ports = SimPorts()
    seen: list[int] = []

    async def work() -> None:
        slices = Slices(FairQueue(ports.timers), 10)
        async for number in slices.over(range(3)):
            seen.append(number)
            slices.spend(20)

    spawn(work())
    assert seen == [0]
    ports.settle()
    assert seen == [0, 1, 2]
