"""Purgatory: an operation completes, expires or is removed, exactly once."""

from __future__ import annotations

from collections.abc import Hashable

from plogd.replica.purgatory import Purgatory
from plogd.replica.timing_wheel import TICK_MS
from tests.helpers.sim.sim_ports import SimPorts


class Waiting:
    """An operation that completes on command."""

    def __init__(self) -> None:
        self.is_complete = False
        self.looks = 0
        self.expired = False

    def try_complete(self, key: Hashable) -> bool:
        self.looks += 1
        return self.is_complete

    def expire(self) -> None:
        self.expired = True


def make() -> tuple[SimPorts, Purgatory]:
    ports = SimPorts()
    return ports, Purgatory(ports.clock, ports.timers, on_bug=_raise)


def _raise(where: str, error: Exception) -> None:
    raise error


def test_check_completes_operations_that_watch_its_key() -> None:
    _, purgatory = make()
    one, other = Waiting(), Waiting()
    purgatory.watch(one, ["a"], 1000)
    purgatory.watch(other, ["b"], 1000)
    one.is_complete = True
    purgatory.check("a")
    assert (one.looks, other.looks, len(purgatory)) == (1, 0, 1)


def test_operation_may_watch_a_key_twice() -> None:
    ports, purgatory = make()
    one = Waiting()
    purgatory.watch(one, ["a", "b", "a"], 1000)
    ports.advance(1000 + TICK_MS)
    assert (one.expired, len(purgatory)) == (True, 0)


def test_incomplete_operation_keeps_waiting() -> None:
    _, purgatory = make()
    one = Waiting()
    purgatory.watch(one, ["a"], 1000)
    purgatory.check("a")
    purgatory.check("a")
    assert (one.looks, len(purgatory)) == (2, 1)


def test_completed_operation_is_not_checked_for_its_other_keys() -> None:
    ports, purgatory = make()
    one = Waiting()
    purgatory.watch(one, ["a", "b"], 1000)
    one.is_complete = True
    purgatory.check("a")
    purgatory.check("b")
    ports.advance(2000)
    assert (one.looks, one.expired) == (1, False)


def test_operation_expires_once_and_at_most_a_tick_late() -> None:
    ports, purgatory = make()
    one = Waiting()
    purgatory.watch(one, ["a"], 105)
    ports.advance(104)
    assert purgatory.expired == 0
    ports.advance(1 + TICK_MS)
    assert one.expired
    purgatory.check("a")
    assert (one.looks, len(purgatory), purgatory.expired) == (0, 0, 1)


def test_earlier_deadline_added_after_a_later_one_is_kept() -> None:
    ports, purgatory = make()
    late, early = Waiting(), Waiting()
    purgatory.watch(late, ["a"], 10_000)
    purgatory.watch(early, ["a"], 100)
    ports.advance(200)
    assert (early.expired, late.expired) == (True, False)
    ports.advance(10_000)
    assert late.expired


def test_removed_operation_neither_completes_nor_expires() -> None:
    ports, purgatory = make()
    one = Waiting()
    purgatory.watch(one, ["a"], 100)
    purgatory.remove(one)
    purgatory.remove(one)
    purgatory.check("a")
    ports.advance(1000)
    assert (one.looks, one.expired, len(purgatory)) == (0, False, 0)


def test_completing_an_operation_may_remove_another_with_the_same_key() -> None:
    _, purgatory = make()
    second = Waiting()

    class First(Waiting):
        def try_complete(self, key: Hashable) -> bool:
            purgatory.remove(second)
            return True

    purgatory.watch(First(), ["a"], 100)
    purgatory.watch(second, ["a"], 100)
    purgatory.check("a")
    assert (second.looks, len(purgatory)) == (0, 0)


def test_expiring_operation_may_wait_again() -> None:
    ports, purgatory = make()

    class Stubborn(Waiting):
        def expire(self) -> None:
            if not self.expired:
                purgatory.watch(self, ["a"], 50)
            self.expired = True

    one = Stubborn()
    purgatory.watch(one, ["a"], 50)
    ports.advance(60)
    assert len(purgatory) == 1
    ports.advance(60)
    assert len(purgatory) == 0


def test_idle_purgatory_sets_no_timer() -> None:
    ports, purgatory = make()
    purgatory.watch(Waiting(), ["a"], 100)
    ports.advance(200)
    assert ports.timers.next_due_ms is None


class Broken(Waiting):
    """An operation with a bug."""

    def try_complete(self, key: Hashable) -> bool:
        raise ValueError("complete")

    def expire(self) -> None:
        raise ValueError("expire")


def test_bug_in_one_operation_does_not_affect_others() -> None:
    ports = SimPorts()
    bugs: list[str] = []
    purgatory = Purgatory(
        ports.clock, ports.timers, on_bug=lambda where, error: bugs.append(str(error))
    )
    one, late = Waiting(), Waiting()
    purgatory.watch(Broken(), ["a"], 1000)
    purgatory.watch(one, ["a"], 1000)
    one.is_complete = True
    purgatory.check("a")
    assert (bugs, one.looks, len(purgatory)) == (["complete"], 1, 0)
    purgatory.watch(Broken(), ["a"], 1000)
    purgatory.watch(late, ["a"], 1000)
    ports.advance(1000 + TICK_MS)
    assert (bugs[1:], late.expired, len(purgatory)) == (["expire"], True, 0)
