"""Startups that are killed, lose power or find a full disk at any operation.

The log has been compacted and truncated, an unfinished compaction and a deletion are pending, and
several segments are not sealed.
"""

from __future__ import annotations

import errno
import itertools
import random

import pytest

from plog.records.batch import iter_batches
from plogd.log.log import Log
from tests.helpers.log.compaction_site import (
    COMPACT,
    Stored,
    compact,
    latest,
    put,
    step_compaction,
    unfinished_files,
)
from tests.helpers.log.log_site import LogSite
from tests.helpers.sim.sim_files import Operation, SimCrash

UNFINISHED = pytest.mark.parametrize(
    "unfinished", [".log.cleaned 0", ".log.swap 0", ".log.swap 16"]
)
"""The file that the unfinished compaction leaves: its suffixes, and the base offset."""


def _interrupted_site(unfinished: str) -> LogSite:
    """Return a site that has just stopped, with much to do for the next startup."""
    site = LogSite().start()
    log = site.create("t-0", COMPACT)
    _fill(site, log, 20)
    site.settle()
    site.write_checkpoints()
    compact(site)
    site = site.kill()  # Each life has its own leader epoch.
    log = site.log()
    _fill(site, log, 12)
    site.settle()
    site.settle(log.truncate_to(log.log_end_offset - 5))
    _fill(site, log, 8)
    site.settle()
    site.write_checkpoints()
    site = site.kill()
    log = site.log()
    log.delete_records_before(3)
    site.settle(site.manager.write_log_start_of(log))
    assert any(_is_left(site, log, unfinished) for _ in step_compaction(site))
    with site.ports.turn:
        _fill(site, log, 20)
    site.ports.timers.run_due()  # The sync begins, but the seals do not.
    for lane in [lane for lane in site.ports.jobs.waiting if lane.startswith("sync")]:
        site.ports.jobs.run_one(lane)
    return site


def _is_left(site: LogSite, log: Log, unfinished: str) -> bool:
    suffix, base_offset = unfinished.split()
    return site.files.exists(site.path(log, int(base_offset), suffix))


def _fill(site: LogSite, log: Log, count: int) -> None:
    for _ in range(count):
        producer_id = 5 + log.log_end_offset % 2
        known = log.producer_state.producers.get(producer_id)
        put(
            site,
            log,
            b"k%d" % (log.log_end_offset % 5),
            b"%d" % log.log_end_offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0 if known is None else known.last_sequence + 1,
        )


def _facts(log: Log) -> tuple[object, ...]:
    """Return what clients can notice of a log, and what a follower or a leader relies on."""
    last: dict[bytes | None, Stored] = latest(log)
    epochs = set()
    for segment in log.segments:
        for _, header in iter_batches(segment.records.read(0, segment.size_bytes)):
            epoch = log.leader_epochs.epoch_for_offset(header.base_offset)
            if header.base_offset >= log.log_start_offset:
                assert epoch == header.partition_leader_epoch
                epochs.add(epoch)
    producers = {
        producer_id: state.last_sequence
        for producer_id, state in log.producer_state.producers.items()
    }
    return last, log.log_start_offset, log.log_end_offset, epochs, producers


def _check(site: LogSite, expected: tuple[object, ...]) -> None:
    site.settle()
    log = site.log()
    assert _facts(log) == expected
    assert site.offline == []
    assert not [line for line in site.reports if "lost" in line or "cannot read" in line]
    assert unfinished_files(site, log) == []
    # The log is used as before.
    end_offset = log.log_end_offset
    assert put(site, log, b"new", b"value") == end_offset
    site.settle()
    assert latest(site.kill().log())[b"new"].offset == end_offset


@UNFINISHED
def test_site_has_much_to_recover(unfinished: str) -> None:
    site = _interrupted_site(unfinished)
    log = site.log()
    assert _is_left(site, log, unfinished)
    assert len(log.unsynced.unsealed) > 2
    assert len(log.leader_epochs.entries) == 3


@UNFINISHED
@pytest.mark.parametrize("is_power_lost", [False, True], ids=["kill", "power loss"])
def test_startup_interrupted_at_any_operation_is_repeated(
    is_power_lost: bool, unfinished: str
) -> None:
    expected = _facts(_interrupted_site(unfinished).kill().log())
    for number in itertools.count(1):
        site = _interrupted_site(unfinished).next_life()
        site.files.crash_at(number)
        try:
            site.start()
        except SimCrash:
            pass
        else:
            break
        if is_power_lost:
            files = site.files.crash(random.Random(number))
        else:
            files = site.files.kill()
        _check(site._successor(files).start(), expected)
    assert number > 20


@UNFINISHED
@pytest.mark.parametrize("is_lasting", [False, True], ids=["once", "from then on"])
def test_startup_on_a_disk_that_is_full_at_any_operation_loses_nothing(
    is_lasting: bool, unfinished: str
) -> None:
    """Recovery itself removes files, and writes only what can also be written later."""
    expected = _facts(_interrupted_site(unfinished).kill().log())
    writes = ("append", "create", "mkdir")
    for number in itertools.count(1):
        site = _interrupted_site(unfinished).next_life()
        count = 0

        def applies(operation: Operation, number: int = number) -> bool:
            nonlocal count
            count += operation.name in writes
            is_due = count >= number if is_lasting else count == number
            return operation.name in writes and is_due

        site.files.fail_when(applies, errno.ENOSPC)
        site.start()
        is_reached = count >= number
        assert site.offline == [], number
        assert _facts(site.log()) == expected, number
        site.files.fail_no_more()
        _check(site.kill(), expected)
        if not is_reached:
            break
    assert number > 3
