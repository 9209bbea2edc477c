"""Periodic tasks on a manually advanced clock."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs

from plogd.config import BrokerConfig
from plogd.metrics import Registry
from plogd.ports import Later, failed, ready
from plogd.tasks import RunningTasks, Task, start_tasks

CONFIG = BrokerConfig(log_retention_check_interval_ms=10_000)
INTERVAL = "log.retention.check.interval.ms"


class Target:
    """The target of the tasks; `outcome` determines the next call."""

    def __init__(self) -> None:
        self.calls = 0
        self.outcome: Later[None] | Exception | None = None

    def work(self) -> Later[None] | None:
        self.calls += 1
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class Stage:
    """A single started task."""

    def __init__(self, config: BrokerConfig = CONFIG, setting: str = INTERVAL) -> None:
        self.clock = Clock()
        self.target = Target()
        self.registry = Registry()
        self.running: RunningTasks = start_tasks(
            [Task(name="work", interval_setting=setting, function=Target.work)],
            self.target,
            config=config,
            reactor=self.clock,
            registry=self.registry,
        )

    def counted(self, name: str) -> str:
        sample = f'plog_task_{name}_total{{task="work"}} '
        text = self.registry.expose().decode()
        return next(line for line in text.splitlines() if line.startswith(sample))[len(sample) :]


def fired(deferred: Deferred[None]) -> bool:
    results: list[object] = []
    deferred.addCallback(results.append)
    return results == [None]


def test_task_first_runs_after_one_interval() -> None:
    stage = Stage()
    assert stage.target.calls == 0
    stage.clock.pump([9.9, 0.2])
    assert stage.target.calls == 1
    stage.clock.pump([10, 10])
    assert stage.target.calls == 3
    assert stage.counted("runs") == "3"
    assert stage.counted("failures") == "0"


@pytest.mark.parametrize("late", [False, True])
def test_failing_task_is_counted_logged_and_called_again(late: bool) -> None:
    stage = Stage()
    error = ValueError("no")
    stage.target.outcome = failed(error) if late else error
    with capturedLogs() as events:
        stage.clock.advance(10)
    assert [(e["log_level"], e["task"]) for e in events] == [(LogLevel.critical, "work")]
    assert events[0]["log_failure"].value is error
    stage.target.outcome = ready(None)
    stage.clock.advance(10)
    assert stage.target.calls == 2
    assert stage.counted("failures") == "1"


def test_task_is_not_called_while_its_previous_call_waits() -> None:
    stage = Stage()
    later: Later[None] = Later()
    stage.target.outcome = later
    stage.clock.pump([10, 10, 10])
    assert stage.target.calls == 1
    later.succeed(None)
    stage.target.outcome = None
    stage.clock.advance(10)
    assert stage.target.calls == 2


def test_stop_waits_for_the_call_in_progress() -> None:
    stage = Stage()
    later: Later[None] = Later()
    stage.target.outcome = later
    stage.clock.advance(10)
    stopped = stage.running.stop()
    assert not fired(stopped)
    later.succeed(None)
    assert fired(stopped)
    stage.clock.pump([10, 10])
    assert stage.target.calls == 1
    assert stage.clock.getDelayedCalls() == []


def test_stop_between_calls_is_immediate_and_repeatable() -> None:
    stage = Stage()
    assert fired(stage.running.stop())
    assert fired(stage.running.stop())
    assert stage.clock.getDelayedCalls() == []


def test_largest_interval_means_never() -> None:
    stage = Stage(BrokerConfig(), "log.flush.scheduler.interval.ms")
    assert stage.clock.getDelayedCalls() == []
    assert fired(stage.running.stop())
