"""Timers of a shard: they run as writes and are retried after errors."""

from __future__ import annotations

from plogd.coordinator.runtime.coordinator_result import Result
from plogd.coordinator.runtime.event_timers import BUG_RETRY_MS, EventTimers
from plogd.ports import Later, failed, ready
from tests.helpers.sim.sim_ports import SimPorts


def _nothing() -> Result[None]:
    return Result(response=None)


def test_operation_is_retried_after_an_unexpected_error() -> None:
    ports = SimPorts()
    outcomes: list[Exception | None] = [MemoryError("injected"), None]
    runs: list[float] = []
    bugs: list[Exception] = []

    def write(operation: object) -> Later[None]:
        runs.append(ports.clock.monotonic_ms())
        error = outcomes.pop(0)
        return ready(None) if error is None else failed(error)

    timers = EventTimers(ports.timers, write, lambda where, error: bugs.append(error))
    timers.schedule("session", 100, _nothing)
    ports.advance(2 * BUG_RETRY_MS)
    assert runs == [100, 100 + BUG_RETRY_MS]
    assert [type(error) for error in bugs] == [MemoryError]
    assert not timers.is_scheduled("session")
