"""Kills and power losses at every file operation of a log with transactions."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.helpers.log.log_site import CONFIG, LogSite
from tests.helpers.log.transactions import TransactionLog
from tests.helpers.sim.sim_files import SimCrash

SMALL = replace(CONFIG, segment_bytes=600)
Script = Callable[[TransactionLog], None]


def _new(*, follows: bool = False, is_slow: bool = False) -> TransactionLog:
    site = LogSite().start()
    one = TransactionLog(site, follows=follows)
    site.create("t-0", SMALL)
    if is_slow:
        site.slow_down(site.create("u-0"))
    return one


# -- what happens before the crash ------------------------------------------------------------


def _append_markers(one: TransactionLog) -> None:
    one.data(1)
    one.data(2, 2)
    one.abort(1)
    one.site.settle()
    one.plain()
    one.data(1)
    one.abort(2)
    one.site.settle()
    one.commit(1)
    one.data(3)
    one.site.settle()


def _roll(one: TransactionLog) -> None:
    one.data(9)
    for producer_id in range(5):
        one.data(producer_id)
        one.abort(producer_id)
        if producer_id % 2:
            one.site.settle()
    one.data(3)
    one.abort(9)
    one.site.settle()


def _roll_in_one_turn(one: TransactionLog) -> None:
    with one.site.ports.turn:
        for producer_id in range(5):
            one.data(producer_id)
            one.abort(producer_id)
    one.data(1)
    one.site.settle()
    one.site.write_checkpoints()
    one.plain()
    one.site.settle()


def _write_checkpoints(one: TransactionLog) -> None:
    _roll(one)
    one.site.write_checkpoints()
    one.abort(3)
    one.data(4)
    one.site.settle()


def _stop(one: TransactionLog) -> None:
    _roll(one)
    one.site.stop()


def _start_again(one: TransactionLog) -> None:
    """A clean stop, and a start after which the last segment is used again."""
    one.data(1)
    one.abort(1)
    one.data(2)
    one.continue_on(one.site.restart())
    one.abort(2)
    one.data(3)
    one.site.settle()
    one.site.stop()


def _truncate(one: TransactionLog) -> None:
    """Remove markers, and append others at the same offsets."""
    _roll(one)
    for offset in (10, 6, 5):
        one.site.settle(one.log.truncate_to(offset))
        one.model.cut(offset)
    one.site.epoch += 1
    one.commit(9)
    one.data(8)
    one.abort(8)
    one.site.settle()


def _delete_records(one: TransactionLog) -> None:
    _roll(one)
    one.data(5)
    one.site.settle()
    one.log.delete_records_before(7)
    one.site.settle(one.site.manager.write_log_starts())
    one.abort(5)
    one.site.ports.advance(10_000)
    one.site.settle()


SCRIPTS = [
    _append_markers,
    _roll,
    _roll_in_one_turn,
    _write_checkpoints,
    _stop,
    _start_again,
    _delete_records,
]


# -- crashes ----------------------------------------------------------------------------------


def _run(one: TransactionLog, script: Script, number: int) -> bool:
    """Run a script up to an operation; return whether it has finished before that."""
    files = one.site.files
    files.crash_at(files.operations + number)
    try:
        script(one)
    except SimCrash:
        return False
    return True


def _next_life(one: TransactionLog, seed: int | None) -> None:
    durable_end_offset = one.log.durable_end_offset
    one.continue_on(one.site.kill() if seed is None else one.site.crash(seed))
    assert one.log.log_end_offset >= durable_end_offset
    assert one.site.bugs == []
    assert not [report for report in one.site.reports if "has lost" in report]


def _check(one: TransactionLog) -> None:
    one.site.settle()
    one.check()
    one.log.segments.active.flush_indexes()
    assert one.index_files() == one.expected_index_files()


def _check_next_lives(one: TransactionLog, seed: int | None) -> None:
    """Check the log after a crash, and continue until it has been loaded in other ways."""
    _next_life(one, seed)
    _check(one)
    for producer_id in one.model.ongoing():
        one.abort(producer_id)
    one.data(2)
    _check(one)
    assert one.log.last_stable_offset == one.log.log_end_offset - 1
    one.continue_on(one.site.restart())
    _check(one)
    one.abort(2)
    _next_life(one, seed)
    _check(one)


@pytest.mark.parametrize("seed", [None, 0], ids=["kill", "power loss"])
@pytest.mark.parametrize(
    ("script", "is_slow"),
    [*((script, False) for script in SCRIPTS), (_roll, True), (_roll_in_one_turn, True)],
)
def test_crash_at_any_operation_keeps_aborted_transactions_invisible(
    script: Script, is_slow: bool, seed: int | None
) -> None:
    number, is_finished = 0, False
    while not is_finished:
        number += 1
        one = _new(follows=number % 2 == 1, is_slow=is_slow)
        is_finished = _run(one, script, number)
        _check_next_lives(one, None if seed is None else seed * 1000 + number)
    assert number > 3


@pytest.mark.parametrize("seed", [None, 0])
def test_crash_at_any_operation_of_a_truncation_keeps_a_prefix(seed: int | None) -> None:
    number, is_finished = 0, False
    while not is_finished:
        number += 1
        one = _new(follows=True)
        _roll(one)
        before = list(one.model.entries)
        is_finished = _run(one, _truncate_once, number)
        one.continue_on(one.site.kill() if seed is None else one.site.crash(number))
        if one.log.log_end_offset > 6 and not is_finished:  # Not truncated, or only in part.
            one.model.entries = before
            one.model.cut(one.log.log_end_offset)
        assert one.log.log_end_offset >= 6
        _check(one)
        for producer_id in one.model.ongoing():
            one.abort(producer_id)
        _check(one)
        one.continue_on(one.site.kill() if seed is None else one.site.crash(number))
        _check(one)
    assert number > 10


def _truncate_once(one: TransactionLog) -> None:
    one.site.settle(one.log.truncate_to(6))
    one.model.cut(6)
    one.site.settle()


@pytest.mark.parametrize("script", [_append_markers, _roll, _write_checkpoints, _truncate])
def test_crash_at_any_operation_of_the_recovery_changes_nothing(script: Script) -> None:
    for is_power_loss in (False, True):
        number, is_finished = 0, False
        while not is_finished:
            number += 1
            one = _new()
            script(one)
            one.data(2)
            one.abort(2)
            site = one.site.next_life()
            site.files.crash_at(number)
            try:
                site.start()
                is_finished = True
            except SimCrash:
                pass
            if is_power_loss:
                files = site.files.crash(random.Random(number))
            else:
                files = site.files.kill()
            one.continue_on(site._successor(files).start())
            assert one.log.log_end_offset == one.model.end_offset or is_power_loss
            _check(one)
            one.continue_on(one.site.kill())
            _check(one)
        assert number > 3
