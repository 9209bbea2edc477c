"""Deferred events: answers that wait for the disk, and their deadlines."""

from __future__ import annotations

from plog.errors import CoordinatorNotAvailable
from plogd.coordinator.runtime.coordinator_result import Result
from plogd.coordinator.runtime.deferred_events import DeferredEvents
from tests.helpers.injection import Faults
from tests.helpers.sim.sim_ports import SimPorts, outcome

TIMEOUT_MS = 100


def _fail(where: str, error: Exception) -> None:
    raise error


def _waiting(ports: SimPorts, faults: Faults) -> DeferredEvents:
    return DeferredEvents(
        clock=ports.clock,
        timers=faults.timers(ports.timers),
        timeout_ms=lambda: TIMEOUT_MS,
        timeout_error=CoordinatorNotAvailable,
        on_bug=_fail,
    )


def test_each_answer_expires_at_its_own_deadline() -> None:
    ports = SimPorts()
    waiting = _waiting(ports, Faults())
    early = waiting.add(Result(records=[], response="early"), 1)
    ports.advance(TIMEOUT_MS / 2)
    late = waiting.add(Result(records=[], response="late"), 2)
    ports.advance(TIMEOUT_MS / 2)
    assert (early.done, late.done) == (True, False)
    waiting.complete_up_to(2)
    assert outcome(late) == "late"
