"""Acknowledged records survive a crash at any file operation, and the broker starts and serves.

The history exercises everything that writes files: topics created, deleted and recreated, several
batches per segment, rolls, retention, checkpoints, idempotent producers, a clean stop, a power
loss. Each of its file operations is a crash point. The tests try every point with several ways in
which the disk may have kept, lost or torn unsynced data, and with a plain kill.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import cache

import pytest

from plog.records.batch import Compression
from tests.helpers.sim.sim_files import SimFiles
from tests.sim.crash_points import CrashPoint, Recorder, check_survivor, values_batch
from tests.sim.planted_bugs import planted
from tests.sim.site import Observed, Site

RETENTION_MS = 60_000
TEAR_SEEDS = (1, 2)
MORE_TEAR_SEEDS = range(3, 23)
SHARES = 4
FIRST_MOMENTS = 6
FIRST_CRASHES, MORE_FIRST_CRASHES = slice(50, None, 131), slice(6, None, 11)
"""The crash points after which the recovering broker is crashed in turn."""
SECOND_CRASH_EVERY = 9


@cache
def history() -> tuple[CrashPoint, ...]:
    """Return all crash points of the history, which is always the same."""
    return run_history()


def run_history() -> tuple[CrashPoint, ...]:
    """Run the history."""
    recorder = Recorder()
    observed = recorder.observed
    site = recorder.start(SimFiles())
    kept = site.create(observed, "kept", 2, retention_ms="-1")
    timed = site.create(observed, "timed", 1, retention_ms=str(RETENTION_MS))
    gone = site.create(observed, "gone", 1)
    write(site, observed, kept, "one")
    write(site, observed, timed, "one")
    write(site, observed, gone, "one")
    housekeeping(site)
    site.delete(observed, gone)
    again = site.create(observed, "gone", 1)
    write(site, observed, again, "two")
    site.advance(2 * RETENTION_MS)
    housekeeping(site)
    write(site, observed, timed, "two")
    site.stop()

    site = recorder.start(site.files.kill(), site.ports.clock.now_ms())
    write(site, observed, kept, "three")
    housekeeping(site)
    write(site, observed, timed, "three")

    site = recorder.start(site.files.crash(random.Random(7)), site.ports.clock.now_ms())
    write(site, observed, kept, "four")
    housekeeping(site)
    site.stop()
    return tuple(recorder.points)


def write(site: Site, observed: Observed, topic_id: bytes, what: str) -> None:
    """Write a few batches to the first partition, enough to roll; half of them are idempotent."""
    producer_id = site.producer_id()
    for number in range(4):
        name = f"{what} {topic_id.hex()} {number}"
        site.produce(observed, values_batch(topic_id, 0, name, 1 + number % 3))
        batch = values_batch(
            topic_id,
            0,
            f"{name} once",
            2,
            compression=Compression.GZIP if number % 2 else Compression.NONE,
            producer_id=producer_id,
            base_sequence=2 * number,
        )
        site.produce(observed, batch)


def housekeeping(site: Site) -> None:
    """Run each periodic task once."""
    manager = site.broker.log_manager
    manager.apply_retention(site.ports.clock.now_ms())
    site.advance(20)  # After file.delete.delay.ms.
    for write_checkpoint in (
        manager.write_recovery_points,
        manager.write_high_watermarks,
        manager.write_log_starts,
    ):
        write_checkpoint()
        site.settle()


def survive(files: SimFiles, point: CrashPoint) -> None:
    """Start a broker on the remaining files and check it; name the crash point on failure."""
    try:
        site = Site(files, point.now_ms)
        site.start()
        check_survivor(point, site)
        site.stop()
    except Exception as error:
        raise AssertionError(f"crashed before {point.operation}: {error!r}") from error


def survive_all(points: Iterable[CrashPoint], seed: int = 1) -> None:
    """Try a power loss at each point."""
    for point in points:
        survive(point.power_loss(seed), point)


@pytest.mark.parametrize("share", range(SHARES))
def test_acknowledged_records_survive_a_power_loss_at_any_file_operation(share: int) -> None:
    for seed in TEAR_SEEDS:
        survive_all(history()[share::SHARES], seed)


def test_acknowledged_records_survive_a_kill_at_any_file_operation() -> None:
    for point in history():
        survive(point.kill(), point)


@pytest.mark.long
@pytest.mark.parametrize("seed", MORE_TEAR_SEEDS)
def test_acknowledged_records_survive_a_power_loss_with_any_tear(seed: int) -> None:
    survive_all(history(), seed)


@pytest.mark.parametrize("first", ["power loss", "kill"])
@pytest.mark.parametrize(
    "share", [FIRST_CRASHES, pytest.param(MORE_FIRST_CRASHES, marks=pytest.mark.long)]
)
def test_acknowledged_records_survive_a_power_loss_during_recovery(
    share: slice, first: str
) -> None:
    for number, point in enumerate((*history()[:FIRST_MOMENTS], *history()[share])):
        recorder = Recorder()
        recorder.observed = observed = point.observed.copy()
        files = point.kill() if first == "kill" else point.power_loss(4)
        site = recorder.start(files, point.now_ms)
        after_start = len(recorder.points)
        new = site.create(observed, "new", 1)
        write(site, observed, new, "new")
        nested = recorder.points
        stride = slice(number % SECOND_CRASH_EVERY, None, SECOND_CRASH_EVERY)
        survive_all([*nested[:after_start][::2], *nested[after_start:][stride]], seed=5)


@pytest.mark.parametrize("plant", ["ack-before-flush", "skip-dir-sync"])
def test_planted_bug_loses_acknowledged_records(plant: str) -> None:
    with planted(plant):
        points = run_history()
    with pytest.raises(AssertionError, match="is lost"):
        survive_all(points)


def test_history_reaches_every_file_operation() -> None:
    points = history()
    kinds = {point.operation.name for point in points}
    assert {"append", "sync", "sync_dir", "rename", "create", "unlink", "mkdir", "rmdir"} <= kinds
    names = " ".join(point.operation.path for point in points)
    for suffix in (".timeindex", ".snapshot", ".deleted", "-delete", "cleanshutdown", "checkpoint"):
        assert suffix in names
    renamed = {point.operation.path for point in points if point.operation.name == "rename"}
    snapshots = [path for path in renamed if path.endswith(".checkpoint.part")]
    assert len(snapshots) > 2
