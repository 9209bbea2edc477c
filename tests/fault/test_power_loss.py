"""F1 without power: what was acknowledged is on the disk, not only in the page cache.

A real ext4 is stopped on the spot under the working broker, then the process is killed, the file
system mounted again and the broker started (devices.py says what that is worth). With syncs off the
same test loses records, so it does find what it looks for.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.fault.arena import SETTINGS, Arena, any_seed, arena_of
from tests.fault.devices import Ext4, ext4
from tests.sim.checker import Anomaly

LOSSES = 6
LOSSES_OF_LONG = 150
_BEFORE_LOSS_MS = (1, 50)


@contextmanager
def _arena_on_ext4(directory: Path, **more: str) -> Iterator[tuple[Arena, Ext4]]:
    settings = {name.replace("_", "."): value for name, value in more.items()}
    with ext4(directory) as disk:
        dirs = ",".join(str(disk.path / name) for name in ("a", "b"))
        broker = BrokerProcess(directory, {**SETTINGS, "log.dirs": dirs, **settings})
        with broker, arena_of(broker, any_seed()) as arena:
            arena.found()
            arena.start_clients()
            yield arena, disk


def _lose_power(arena: Arena, disk: Ext4) -> None:
    with arena.trouble():
        disk.cut_power()
        arena.kill()
    disk.unmount()
    disk.mount()


def _lose_power_again_and_again(arena: Arena, disk: Ext4, losses: int) -> None:
    chance = random.Random(arena.seed)
    for _ in range(losses):
        arena.run_until_acknowledged(chance.randint(1, 200))
        arena.run_for(chance.uniform(*_BEFORE_LOSS_MS))
        _lose_power(arena, disk)
        with arena.trouble():
            arena.start_broker()
    arena.finish()


@pytest.mark.parametrize("syncfs", ["auto", "never"])
def test_a_lost_power_takes_nothing_acknowledged(tmp_path: Path, syncfs: str) -> None:
    with _arena_on_ext4(tmp_path, plog_flush_syncfs=syncfs) as (arena, disk):
        _lose_power_again_and_again(arena, disk, LOSSES)


@pytest.mark.long
def test_a_power_lost_hundreds_of_times_takes_nothing_acknowledged(tmp_path: Path) -> None:
    with _arena_on_ext4(tmp_path) as (arena, disk):
        _lose_power_again_and_again(arena, disk, LOSSES_OF_LONG)


def test_without_syncs_a_lost_power_would_be_noticed(tmp_path: Path) -> None:
    relaxed = {"log_flush_interval_messages": "1000000", "log_roll_ms": "3600000"}
    with _arena_on_ext4(tmp_path, **relaxed) as (arena, disk):
        arena.run_until_acknowledged(500)
        with pytest.raises(Anomaly):
            _lose_power_again_and_again(arena, disk, 1)
