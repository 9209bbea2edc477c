"""Runs of ordinary batches: where they end, and the same result as checking each batch."""

from __future__ import annotations

import random
from typing import Any

import pytest

from plog.records.batch import parse_header, set_base_offset_and_epoch
from plogd.log.recovery.batch_run import BatchRun, check_run
from plogd.log.recovery.segment_recovery import recover_steps, run_steps
from plogd.log.segment.log_segment import LogSegment
from tests.helpers.log.log_data import SMALL, T0, client_batch
from tests.helpers.log.transactions import marker_of
from tests.helpers.sim.sim_files import SimFiles

EPOCH = 3


def _data(*batches: memoryview, epoch: int = EPOCH) -> bytearray:
    data, offset = bytearray(), 0
    for batch in batches:
        set_base_offset_and_epoch(batch, 0, offset, epoch)
        offset = parse_header(batch).next_offset
        data += batch
    return data


def _run(data: bytearray, **limits: int) -> BatchRun:
    chosen: dict[str, Any] = {
        "until_position": len(data),
        "next_offset": 0,
        "end_offset": 1 << 31,
        "leader_epoch": EPOCH,
        **limits,
    }
    return check_run(memoryview(data), 0, **chosen)


def test_run_covers_ordinary_batches_and_finds_the_largest_timestamp() -> None:
    data = _data(
        client_batch(2, timestamp=T0),
        client_batch(3, timestamp=T0 + 50),
        client_batch(1, timestamp=T0 + 20),
    )
    assert _run(data) == BatchRun(len(data), 6, T0 + 50, 4, has_producers=False)


def test_run_notes_idempotent_producers() -> None:
    data = _data(client_batch(1), client_batch(1, producer_id=7, producer_epoch=0, base_sequence=0))
    assert _run(data).has_producers
    assert not _run(data, until_position=1).has_producers


@pytest.mark.parametrize("position", range(61))
def test_run_ends_before_a_batch_with_any_wrong_byte_in_its_header(position: int) -> None:
    first = client_batch(2)
    data = _data(first, client_batch(2), client_batch(2))
    data[len(first) + position] ^= 0x55
    assert _run(data)[:2] == (len(first), 2)


def test_run_ends_before_a_batch_that_is_not_complete() -> None:
    first = client_batch(2)
    data = _data(first, client_batch(2))
    for end in range(len(first), len(data)):
        assert _run(data[:end])[:2] == (len(first), 2)


def test_run_ends_at_its_limits() -> None:
    size = len(client_batch(2))
    data = _data(*(client_batch(2) for _ in range(5)))
    assert _run(data, until_position=2 * size + 1)[:2] == (3 * size, 6)
    assert _run(data, until_position=2 * size)[:2] == (2 * size, 4)
    assert _run(data, end_offset=6)[:2] == (3 * size, 6)
    assert _run(data, end_offset=5)[:2] == (2 * size, 4)
    assert _run(data, leader_epoch=EPOCH + 1)[:2] == (0, 0)


def test_run_ends_before_a_transaction() -> None:
    size = len(client_batch(1))
    sent = client_batch(1, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    for special in (sent, marker_of(7, 0, commits=True)):
        data = _data(client_batch(1), special, client_batch(1))
        assert _run(data)[:2] == (size, 1)


@pytest.mark.parametrize("seed", range(30))
def test_recovery_with_runs_equals_recovery_of_each_batch(seed: int) -> None:
    chance = random.Random(seed)
    content = _data(
        *(
            client_batch(
                chance.randrange(1, 4),
                timestamp=T0 + chance.randrange(1000),
                value=b"x" * chance.randrange(300),
            )
            for _ in range(80)
        )
    )
    if chance.random() < 0.5:
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    keep_below_offset = chance.choice((0, 1000))
    results = []
    for with_runs in (True, False):
        files = SimFiles(["/d"])
        file = files.open_append("/d/00000000000000000000.log")
        file.append(bytes(content))
        file.close()
        segment = LogSegment(files, "/d", 0, SMALL)
        found = run_steps(
            recover_steps(
                segment,
                keep_below_offset=keep_below_offset,
                on_batch=lambda position, header: None,
                is_epoch_known=lambda header, known=with_runs: known,
            )
        )
        maximum = segment.indexes.maximum
        segment.close()
        names = files.listdir("/d")
        contents = [files.read_file(f"/d/{name}") for name in names]
        results.append((found, maximum, names, contents))
    assert results[0] == results[1]
