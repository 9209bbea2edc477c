"""F1 with power loss: acknowledged records are on the disk, not only in the page cache.

A real ext4 file system stops under a working broker; the process is killed, the file system mounted
again and the broker started (devices.py describes the limits of this). Without syncs the same test
loses records, so it can detect a loss.
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


def _lose_power_repeatedly(arena: Arena, disk: Ext4, losses: int) -> None:
    chance = random.Random(arena.seed)
    for _ in range(losses):
        arena.run_until_acknowledged(chance.randint(1, 200))
        arena.run_for(chance.uniform(*_BEFORE_LOSS_MS))
        _lose_power(arena, disk)
        with arena.trouble():
            arena.start_broker()
    arena.finish()


@pytest.mark.parametrize("syncfs", ["auto", "never"])
def test_power_loss_loses_nothing_acknowledged(tmp_path: Path, syncfs: str) -> None:
    with _arena_on_ext4(tmp_path, plog_flush_syncfs=syncfs) as (arena, disk):
        _lose_power_repeatedly(arena, disk, LOSSES)


@pytest.mark.long
def test_hundreds_of_power_losses_lose_nothing_acknowledged(tmp_path: Path) -> None:
    with _arena_on_ext4(tmp_path) as (arena, disk):
        _lose_power_repeatedly(arena, disk, LOSSES_OF_LONG)


def test_checker_detects_a_power_loss_without_syncs(tmp_path: Path) -> None:
    relaxed = {"log_flush_interval_messages": "1000000", "log_roll_ms": "3600000"}
    with _arena_on_ext4(tmp_path, **relaxed) as (arena, disk):
        arena.run_until_acknowledged(500)
        with pytest.raises(Anomaly):
            _lose_power_repeatedly(arena, disk, 1)
