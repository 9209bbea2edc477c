"""F1: SIGKILL at any moment, under load: nothing acknowledged is lost, no offset has two values.

Each round lets the clients work until the broker has acknowledged something, waits up to 50 ms and
kills it; one start in four is killed, too. The clients, and what they check, are the simulator's,
and a real producer among them. A kill takes nothing that was written, synced or not: for that see
test_power_loss.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.fault.arena import SETTINGS, Arena, any_seed, arena_of
from tests.fault.real_producer import RealProducer
from tests.sim.checker import Anomaly, PartitionKey

KILLS = 20
KILLS_OF_LONG = 400
_BEFORE_KILL_MS = (1, 50)
_INTO_START_MS = (20, 400)
_REAL_EVERY = 7
_KEPT = ("kept", "packed", "stamped")


@pytest.fixture
def arena(tmp_path: Path) -> Iterator[Arena]:
    """Clients at work on a broker with two log directories."""
    dirs = ",".join(str(tmp_path / name) for name in ("a", "b"))
    with (
        BrokerProcess(tmp_path, {**SETTINGS, "log.dirs": dirs}) as broker,
        arena_of(broker, any_seed()) as arena,
    ):
        arena.found()
        yield arena


def _kill_again_and_again(arena: Arena, kills: int) -> None:
    chance = random.Random(arena.seed)
    arena.start_clients()
    # Over a restart a broker surely remembers one batch of a producer, not five.
    real = RealProducer(arena, "real", "kept", 0, max_in_flight=1)
    arena.start(real.run(), real.name)
    killed = 0
    while killed < kills:
        if not killed % _REAL_EVERY:  # It takes its time to find out that the broker is back.
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
    assert "rolled segment of kept" in log and "segments of timed" in log, "too little has happened"


def test_twenty_kills_lose_nothing(arena: Arena) -> None:
    _kill_again_and_again(arena, KILLS)


@pytest.mark.long
def test_hundreds_of_kills_lose_nothing(arena: Arena) -> None:
    _kill_again_and_again(arena, KILLS_OF_LONG)


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
    """As a recovery would that takes a whole batch for a torn one."""
    batches[:] = [batch for batch in batches if _last_offset(batch) < acknowledged]


def _drop_first(batches: list[bytes], _: int) -> None:
    batches.pop(0)


def _exchange(batches: list[bytes], _: int) -> None:
    """Two batches change places; their checksums do not cover the offset."""
    first, second = batches[:2]
    batches[:2] = [first[:8] + second[8:], second[:8] + first[8:]]


# It depends on who comes first: a consumer, a producer, or the broker's own recovery.
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
    # The broker notices it first, and does not serve the groups that have lost something.
    "unexpected-error",
}
PLANTS: dict[str, tuple[int, Callable[[list[bytes], int], None]]] = {
    "the end is dropped": (1, _cut_end),
    "a batch in the middle is dropped": (2, _drop_first),
    "two batches change places": (2, _exchange),
}
"""How many batches a segment has to have, and what becomes of them."""


@pytest.mark.parametrize("plant", PLANTS)
def test_a_restart_that_loses_records_would_be_noticed(arena: Arena, plant: str) -> None:
    """The checker's own test, on the files of a real broker that was killed."""
    at_least, change = PLANTS[plant]
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
        raise AssertionError("nothing to damage")
    with pytest.raises(Anomaly) as told:
        _go_on_and_finish(arena)
    assert told.value.name in FOUND_AS, told.value


def _well_filled_partition(arena: Arena) -> tuple[str, int, int]:
    """Topic and partition of a log from which nothing is deleted; its last acknowledged offset."""

    def forever() -> dict[bytes, str]:  # Not all of them are there from the start.
        topics = arena.topics.by_id.values()
        return {topic.topic_id: topic.name for topic in topics if topic.name in _KEPT}

    def best() -> tuple[int, PartitionKey]:
        kept = forever()
        partitions = arena.history.partitions.items()
        return max(
            ((len(known.acknowledged), key) for key, known in partitions if key.topic_id in kept),
            default=(0, PartitionKey(b"", 0)),
        )

    arena.run_until_acknowledged()
    arena.run_until(lambda: best()[0] > 40, "acknowledged records")
    key = best()[1]
    return forever()[key.topic_id], key.partition, max(arena.history.partition(key).acknowledged)


def test_a_restart_that_loses_commits_would_be_noticed(arena: Arena) -> None:
    arena.start_clients(plain=1, idempotent=0, consumers=0)
    arena.run_until(lambda: arena.groups.committed_count > 5, "commits")
    arena.kill()
    for log in arena.broker.data_dir.parent.glob("?/__consumer_offsets-*/*.log"):
        log.write_bytes(b"")
    with pytest.raises(Anomaly) as told:
        _go_on_and_finish(arena)
    assert told.value.name in GROUPS_FOUND_AS, told.value


def _go_on_and_finish(arena: Arena) -> None:
    arena.start_broker()
    arena.run_until_acknowledged(50)
    arena.finish()
