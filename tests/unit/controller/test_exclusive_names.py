"""ExclusiveNames: operations on names that collide run one at a time."""

from __future__ import annotations

import pytest

from plog.errors import KafkaStorageError, NotController
from plogd.controller.exclusive_names import ExclusiveNames
from plogd.controller.term import Term
from plogd.fair_queue import FairQueue
from plogd.ports import Later, spawn
from tests.helpers.sim.sim_ports import SimPorts, outcome


class Setup:
    """Operations that wait for `steps`, by the order in which they begin."""

    def __init__(self) -> None:
        self.ports = SimPorts()
        queue = FairQueue(self.ports.timers)
        self.term = Term(None, 1, queue)  # type: ignore[arg-type]  # nothing is written
        self.names = ExclusiveNames(self.term)
        self.begun: list[str] = []
        self.steps: list[Later[str]] = []

    def run(self, name: str) -> Later[str]:
        async def operation() -> str:
            self.begun.append(name)
            self.steps.append(Later())
            return await self.term.wait(self.steps[-1])

        return spawn(self.names.run(name, operation))


def test_operations_on_colliding_names_run_in_order() -> None:
    setup = Setup()
    runs = [setup.run(name) for name in ("t.a", "t_a", "u", "t.a")]
    assert setup.begun == ["t.a", "u"]
    setup.steps[0].succeed("first")
    assert setup.begun == ["t.a", "u", "t_a"]
    setup.steps[2].fail(KafkaStorageError("no room"))
    assert setup.begun == ["t.a", "u", "t_a", "t.a"]
    setup.steps[3].succeed("last")
    assert (outcome(runs[0]), outcome(runs[3])) == ("first", "last")
    with pytest.raises(KafkaStorageError):
        outcome(runs[1])


def test_name_is_free_after_the_last_operation() -> None:
    setup = Setup()
    for _ in range(2):
        run = setup.run("t")
        setup.steps[-1].succeed("done")
        assert outcome(run) == "done"
    assert setup.begun == ["t", "t"]


def test_thousand_waiting_operations_fail_at_the_end_of_the_term() -> None:
    setup = Setup()
    runs = [setup.run("t") for _ in range(1000)]
    setup.term.end()
    setup.ports.settle()
    for run in runs:
        with pytest.raises(NotController):
            outcome(run)
    assert setup.begun == ["t"]


def test_operation_of_a_killed_process_resumes_no_other() -> None:
    """When its coroutine is collected, the operations behind it must not begin."""
    setup = Setup()

    async def operation() -> None:
        await Later[None]()

    first = setup.names.run("t", operation)
    first.send(None)
    setup.run("t")
    first.close()
    assert setup.begun == []
