"""F1: SIGKILL at any moment under load: no acknowledged record is lost, no offset has two values.

In each round, the clients work until the broker has acknowledged records; the test then waits up to
50 ms and kills it. One start in four is killed as well. The clients and their checks are the
simulator's, plus a real producer. A kill loses no data that was written, synced or not;
test_power_loss.py covers unsynced data.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.fault.arena import KEPT_TOPICS, SETTINGS, Arena, any_seed, arena_of
from tests.fault.real_producer import RealProducer
from tests.sim.checker import Anomaly, PartitionKey

KILLS = 20
KILLS_OF_LONG = 400
_BEFORE_KILL_MS = (1, 50)
_INTO_START_MS = (20, 400)
_REAL_EVERY = 7


@pytest.fixture
def arena(tmp_path: Path) -> Iterator[Arena]:
    """An arena whose broker has two log directories."""
    dirs = ",".join(str(tmp_path / name) for name in ("a", "b"))
    with (
        BrokerProcess(tmp_path, {**SETTINGS, "log.dirs": dirs}) as broker,
        arena_of(broker, any_seed()) as arena,
    ):
        arena.found()
        yield arena


def _kill_repeatedly(arena: Arena, kills: int) -> None:
    chance = random.Random(arena.seed)
    arena.start_clients()
    # After a restart, a broker is sure to remember a producer's last batch, but not its last five.
    real = RealProducer(arena, "real", "kept", 0, max_in_flight=1)
    arena.start(real.run(), real.name)
    killed = 0
    while killed < kills:
        if not killed % _REAL_EVERY:  # It may notice late that the broker has restarted.
            real.run_until_delivered()
        arena.run_until_acknowledged(chance.randint(1, 100))
        arena.run_for(chance.uniform(*_BEFORE_KILL_MS))
        arena.kill()
        killed += 1
        while not arena.start_broker(
            kill_after_ms=chance.uniform(*_INTO_START_MS) if chance.random() < 0.25 else None
        ):
            killed += 1
    arena.finish()
    assert real.errors == []
    log = arena.broker.log_text()
    assert "rolled segment of kept" in log and "segments from timed" in log, (
        "the run rolled or deleted no segments"
    )


def test_twenty_kills_lose_nothing(arena: Arena) -> None:
    _kill_repeatedly(arena, KILLS)


@pytest.mark.long
def test_hundreds_of_kills_lose_nothing(arena: Arena) -> None:
    _kill_repeatedly(arena, KILLS_OF_LONG)


def _batches(log: Path) -> list[bytes]:
    data, batches = log.read_bytes(), []
    while data:
        end = 12 + int.from_bytes(data[8:12], "big")
        batches.append(data[:end])
        data = data[end:]
    return batches


def _base_offset(batch: bytes) -> int:
    return int.from_bytes(batch[:8], "big")


def _last_offset(batch: bytes) -> int:
    return _base_offset(batch) + int.from_bytes(batch[23:27], "big")


def _cut_end(batches: list[bytes], acknowledged: int) -> None:
    """Drop the end, like a recovery that takes a complete batch for a torn one."""
    batches[:] = [batch for batch in batches if _last_offset(batch) < acknowledged]


def _drop_first(batches: list[bytes], _: int) -> None:
    batches.pop(0)


def _exchange(batches: list[bytes], _: int) -> None:
    """Exchange two batches; their checksums do not cover the offset."""
    first, second = batches[:2]
    batches[:2] = [first[:8] + second[8:], second[:8] + first[8:]]


# Depends on whether a consumer, a producer or the broker's recovery detects the loss first.
FOUND_AS = {
    "lost-write",
    "unseen",
    "high-watermark-fell",
    "poll-skip",
    "int-poll-skip",
    "int-send-skip",
    "inconsistent-offsets",
    "duplicate",
    "nonmonotonic-send",
    "false-out-of-order",
    "false-out-of-range",
}
GROUPS_FOUND_AS = {
    "spurious-reset",
    "committed-offset-fell",
    "two-owners",
    "two-assignments",
    "two-leaders",
    "stale-commit",
    "stale-sync",
    "stale-heartbeat",
    "generation-fell",
    # The broker detects the loss first and does not serve the affected groups.
    "unexpected-error",
}
DAMAGES: dict[str, tuple[int, Callable[[list[bytes], int], None]]] = {
    "end-dropped": (1, _cut_end),
    "middle-batch-dropped": (2, _drop_first),
    "batches-exchanged": (2, _exchange),
}
"""For each damage: how many batches a segment must have, and a function that damages it."""


@pytest.mark.parametrize("damage", DAMAGES)
def test_checker_detects_records_lost_in_a_restart(arena: Arena, damage: str) -> None:
    """Test the checker itself on damaged files of a killed broker."""
    at_least, change = DAMAGES[damage]
    arena.start_clients(plain=0, idempotent=9, consumers=2)
    topic, partition, last = _well_filled_partition(arena)
    arena.kill()
    pattern = f"?/{topic}-{partition}/*.log"
    for log in sorted(arena.broker.data_dir.parent.glob(pattern), reverse=True):
        batches = _batches(log)
        if len(batches) >= at_least and _base_offset(batches[0]) <= last:
            change(batches, last)
            log.write_bytes(b"".join(batches))
            break
    else:
        raise AssertionError("found no segment to damage")
    with pytest.raises(Anomaly) as raised:
        _restart_and_finish(arena)
    assert raised.value.name in FOUND_AS, raised.value


def _well_filled_partition(arena: Arena) -> tuple[str, int, int]:
    """Return topic and partition of a log without retention, and its last acknowledged offset."""

    def kept_topics() -> dict[bytes, str]:  # The topics are created during the run.
        topics = arena.topics.by_id.values()
        return {topic.topic_id: topic.name for topic in topics if topic.name in KEPT_TOPICS}

    def best() -> tuple[int, PartitionKey]:
        kept = kept_topics()
        partitions = arena.history.partitions.items()
        return max(
            ((len(known.acknowledged), key) for key, known in partitions if key.topic_id in kept),
            default=(0, PartitionKey(b"", 0)),
        )

    arena.run_until_acknowledged()
    arena.run_until(lambda: best()[0] > 40, "acknowledged records")
    key = best()[1]
    return (
        kept_topics()[key.topic_id],
        key.partition,
        max(arena.history.partition(key).acknowledged),
    )


def test_checker_detects_commits_lost_in_a_restart(arena: Arena) -> None:
    arena.start_clients(plain=1, idempotent=0, consumers=0)
    arena.run_until(lambda: arena.groups.committed_count > 5, "commits")
    arena.kill()
    for log in arena.broker.data_dir.parent.glob("?/__consumer_offsets-*/*.log"):
        log.write_bytes(b"")
    with pytest.raises(Anomaly) as raised:
        _restart_and_finish(arena)
    assert raised.value.name in GROUPS_FOUND_AS, raised.value


def _restart_and_finish(arena: Arena) -> None:
    arena.start_broker()
    arena.run_until_acknowledged(50)
    arena.finish()
