"""F12 and F8: a roll, a seal, retention and checkpoints, crashed or refused at each operation."""

from __future__ import annotations

import errno
import random

import pytest

from plog.errors import KafkaStorageError
from tests.helpers.log.log_site import LogSite, batch_offsets, values
from tests.helpers.sim.sim_files import SimCrash


def begun() -> LogSite:
    """A log of two segments, completely durable."""
    site = LogSite().start()
    log = site.create("t-0")
    site.fill(log, 8)
    site.settle()
    site.write_checkpoints()
    return site


def live(site: LogSite, acknowledged: dict[int, bytes | None]) -> None:
    """Rolls with their seals, retention with its renames and removals, and the checkpoints.

    `acknowledged` has the durable records.
    """
    log = site.log()
    for _ in range(3):
        site.fill(log, 4)
        site.settle()
        acknowledged.update(values(log))
        site.write_checkpoints()
    log.delete_records_before(10)
    site.settle()
    site.ports.advance(2_000)
    site.settle(site.manager.write_log_starts())
    site.fill(log, 4)
    site.settle()
    acknowledged.update(values(log))


def operations_of_a_life() -> int:
    site = begun()
    before = site.files.operations
    live(site, {})
    return site.files.operations - before


@pytest.mark.parametrize("how", ["kill", "power loss"])
def test_crash_at_any_operation_neither_loses_nor_duplicates_records(how: str) -> None:
    for number in range(1, operations_of_a_life() + 1):
        site = begun()
        acknowledged = dict(values(site.log()))
        site.files.crash_at(site.files.operations + number)
        with pytest.raises(SimCrash):
            live(site, acknowledged)
        files = site.files.kill() if how == "kill" else site.files.crash(random.Random(number))
        site = site._successor(files).start()
        found = values(site.log())
        start, end = site.log().log_start_offset, site.log().log_end_offset
        assert list(found) == list(range(start, end)), f"{how} at {number}"
        assert start in (0, 5, 10)
        kept = {offset: acknowledged[offset] for offset in acknowledged if offset >= start}
        assert {offset: found.get(offset) for offset in kept} == kept, f"{how} at {number}"
        site.append(site.log(), value=b"new")
        site.settle()
        assert batch_offsets(site.log(), end) == [end]


@pytest.mark.parametrize("number_of_kind", range(0, 60, 2))
def test_disk_full_from_any_operation_on_refuses_appends_until_space_returns(
    number_of_kind: int,
) -> None:
    """Records, indexes, checkpoints or new segments: whichever finds the disk full."""
    site = begun()
    log = site.log()
    full_from = site.files.operations + 1 + 2 * number_of_kind
    site.files.fail_when(
        lambda operation: (
            operation.number >= full_from and operation.name in ("append", "create", "mkdir")
        ),
        errno.ENOSPC,
    )
    acknowledged = dict(values(log))
    for _ in range(6):
        try:
            site.fill(log, 4)
        except KafkaStorageError:
            pass
        site.settle()
        site.write_checkpoints()
        acknowledged.update(values(log))
    log.delete_records_before(min(5, log.high_watermark))
    site.settle()
    site.ports.advance(2_000)
    assert site.offline == []
    assert site.listing(log)[0] >= 5
    again = site.next_life().start()  # On a disk that is still full.
    assert again.offline == []
    start = again.log().log_start_offset
    kept = {offset: acknowledged[offset] for offset in acknowledged if offset >= start}
    assert {offset: values(again.log()).get(offset) for offset in kept} == kept
    again.files.fail_no_more()
    again.append(again.log(), value=b"new")
    again.settle()
    assert list(values(again.log()).values())[-1] == b"new"


def test_append_refused_at_any_operation_succeeds_when_retried() -> None:
    for number in range(1, 8):
        site = begun()
        log = site.log()
        site.fill(log, 1)  # The next one rolls.
        site.settle()
        before = site.files.operations
        site.files.fail_when(
            lambda operation, n=before + number: operation.number == n, errno.ENOSPC
        )
        refused = 0
        try:
            site.fill(log, 1)
        except KafkaStorageError:
            refused = 1
        site.files.fail_no_more()
        site.fill(log, refused)
        site.settle()
        assert list(values(log)) == list(range(10)), f"refused at {number}"
        assert site.kill().log().log_end_offset == 10
