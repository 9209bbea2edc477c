"""F1 and F12: a broker that compacts and deletes all the time, and is killed every few seconds.

Keyed writers, some of them idempotent, and readers work on compacted topics with tiny segments. The
clients and their checks are the simulator's: every acknowledged record is there unless a later one
has its key, no record is there twice, and none has another offset or value than before. Each life
of the broker ends at a random moment after it has compacted a log.

The length is a number of kills, so that a busy machine only takes longer. The long form also has a
duration, which `PLOG_SOAK_SECONDS` overrides.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.fault.arena import SETTINGS, Arena, any_seed, arena_of
from tests.sim.admins import TopicPlan

KILLS = 15
LONG_SECONDS = 1800
_COMPACT = {"min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "3000"}
SOAK_TOPICS = (
    TopicPlan("compacted", 2, {**_COMPACT, "cleanup.policy": "compact", "retention.ms": "-1"}),
    TopicPlan(
        "packed",
        1,
        {
            **_COMPACT,
            "cleanup.policy": "compact",
            "retention.ms": "-1",
            "compression.type": "zstd",
        },
    ),
    TopicPlan(
        "tidied", 1, {**_COMPACT, "cleanup.policy": "compact,delete", "retention.ms": "5000"}
    ),
    TopicPlan("timed", 1, {"retention.ms": "2000"}),
)
SOAK_SETTINGS = {**SETTINGS, "log.cleaner.backoff.ms": "100"}
MAX_PAUSE_MS = 60.0
"""Limits the number of records, because the history of the clients stays in memory."""
_BEFORE_KILL_MS = (1, 1500)
_INTO_START_MS = (20, 600)


@pytest.fixture
def arena(tmp_path: Path) -> Iterator[Arena]:
    """An arena whose broker compacts and deletes all the time."""
    with (
        BrokerProcess(tmp_path, SOAK_SETTINGS) as broker,
        arena_of(
            broker, any_seed(), groups=0, topics=SOAK_TOPICS, max_pause_ms=MAX_PAUSE_MS
        ) as arena,
    ):
        arena.found()
        yield arena


class _Compactions:
    """Counts the compactions that a broker has logged, in all of its lives."""

    def __init__(self, log_path: Path) -> None:
        self._log_path = log_path
        self._position = 0
        self.count = 0

    def grown(self) -> bool:
        """Return whether there were any since the last call."""
        with self._log_path.open("rb") as log:
            log.seek(self._position)
            new = log.read()
        end = new.rfind(b"\n") + 1
        self._position += end
        added = new[:end].count(b"compacted ")
        self.count += added
        return bool(added)


def _soak(arena: Arena, *, kills: int, duration_ms: float) -> None:
    chance = random.Random(arena.seed)
    compactions = _Compactions(arena.broker.log_path)
    end_ms = arena.clock.monotonic_ms() + duration_ms
    arena.start_clients(plain=2, idempotent=4, consumers=3)
    killed = 0
    while killed < kills or arena.clock.monotonic_ms() < end_ms:
        compactions.grown()  # Those of the last life, before it was killed.
        arena.run_until_acknowledged(chance.randint(1, 100))
        arena.run_until(compactions.grown, "a compaction")
        arena.run_for(chance.uniform(*_BEFORE_KILL_MS))
        arena.kill()
        killed += 1
        while not arena.start_broker(
            kill_after_ms=chance.uniform(*_INTO_START_MS) if chance.random() < 0.25 else None
        ):
            killed += 1
    arena.finish()
    print(f"{killed} kills, {compactions.count} compactions")
    assert "segments from timed" in arena.broker.log_text(), "retention has deleted no segment"


def test_soak_with_compaction_and_kills_ends_without_an_anomaly(arena: Arena) -> None:
    _soak(arena, kills=KILLS, duration_ms=0)


@pytest.mark.long
@pytest.mark.timeout(2 * LONG_SECONDS)
def test_long_soak_with_compaction_and_kills_ends_without_an_anomaly(arena: Arena) -> None:
    seconds = float(os.environ.get("PLOG_SOAK_SECONDS", LONG_SECONDS))
    _soak(arena, kills=KILLS, duration_ms=seconds * 1000)
