"""A few seeds that run with every commit; more and longer ones run by hand or with ``-m long``.

A seed that once found a bug stays in `REMEMBERED`. docs/reliability.md explains how to replay one.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.sim import __main__ as command
from tests.sim.__main__ import main
from tests.sim.checker import Anomaly
from tests.sim.world import World

STEPS = 400
SEEDS = range(1, 31)
REMEMBERED: tuple[int, ...] = (
    51,  # A roll that failed halfway left a segment that recovery accepted.
    187,  # The same bug, found by a reader that was sent past records.
    822,  # Retention deleted segments whose producers were not in a snapshot yet.
    1347,  # A stop did not wait for the next metadata write on a slow disk.
    1418,  # A failed start had created a log directory whose name never became durable.
    3520,  # A log was created between a producer's first batch, refused without it, and the next.
)
EXCEPTION_SEEDS = range(200, 216)
SNAPSHOT_SEEDS = (12, 19, 20)
LONG_SEEDS = range(1000, 1400)
LONG_STEPS = 2000


@pytest.mark.parametrize("seed", [*SEEDS, *REMEMBERED])
def test_seed_shows_no_anomaly(seed: int) -> None:
    world = World(seed, STEPS, exceptions=None if seed in SEEDS else False)
    world.run()
    assert world.history.acknowledged_count
    assert world.history.polled_count


def test_seed_with_injected_exceptions_shows_no_anomaly() -> None:
    met = 0
    for seed in EXCEPTION_SEEDS:
        world = World(seed, STEPS, exceptions=True)
        world.run()
        met += world.counts["exceptions"]
    assert met > len(EXCEPTION_SEEDS)


def test_brokers_start_from_metadata_snapshots() -> None:
    counts = Counter[str]()
    for seed in SNAPSHOT_SEEDS:
        world = World(seed, STEPS, exceptions=False)
        world.run()
        counts += world.counts
    assert counts["metadata snapshots wrote"] > 20
    assert counts["metadata snapshots loaded"] > 10


@pytest.mark.long
@pytest.mark.parametrize("seed", LONG_SEEDS)
def test_long_run_shows_no_anomaly(seed: int) -> None:
    World(seed, LONG_STEPS).run()


def test_seed_replays_exactly() -> None:
    traces: list[list[str]] = []
    for _ in range(2):
        lines: list[str] = []
        World(3, STEPS, trace=lines.append, trace_operations=True).run()
        traces.append(lines)
    assert traces[0] == traces[1]
    assert len(traces[0]) > STEPS


def test_command_line_prints_the_anomaly_last(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--seed", "1", "--steps", "60", "--brokers", "1"]) == 0
    capsys.readouterr()
    plant = ["--plant", "forget-producers", "--no-exceptions", "--brokers", "1"]
    status = main(["--seeds", "1-20", "--steps", "300", *plant])
    assert status == 1
    *_, replay, name = capsys.readouterr().out.splitlines()
    assert replay.startswith("replay: python -m tests.sim --seed ")
    # Which one is reported depends on the retries.
    assert name in ("duplicate", "nonmonotonic-send")


def test_command_line_lists_all_failed_seeds_with_keep_going(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class FailingWorld(World):
        def run(self) -> None:
            if self.seed in (2, 4):
                raise Anomaly("stuck", "on purpose")

    monkeypatch.setattr(command, "World", FailingWorld)
    assert main(["--seeds", "1-5", "--keep-going", "--brokers", "1"]) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert lines.count("stuck") == 2
    assert last == "2 of 5 seeds failed: 2 4"
    assert main(["--seeds", "1-5", "--brokers", "1"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "stuck"
    assert main(["--seeds", "5-6", "--keep-going", "--brokers", "1"]) == 0
