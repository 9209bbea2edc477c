"""Loading a log that lacks durable records, which other replicas may have (rule C2)."""

from __future__ import annotations

import itertools

import pytest

from plogd.log import file_names
from plogd.log.log import Log
from plogd.ports import spawn
from tests.helpers.log.log_site import LogSite, base_offsets, batch_offsets, four_segments
from tests.helpers.sim.sim_files import SimCrash

BATCH_BYTES = 173


def replicated() -> tuple[LogSite, Log]:
    """Return four durable segments, at 0, 5, 10 and 15, of a partition with other replicas."""
    site, log = four_segments()
    site.has_other_replicas = True
    site.write_checkpoints()
    site.settle(site.manager.write_log_starts())
    return site, log


def loss(site: LogSite) -> tuple[int, bool] | None:
    """Return the first lost offset, and whether the end is missing."""
    found = site.manager.losses.get(site.log().topic_partition)
    return None if found is None else (found.first_offset, found.lacks_end)


def cut(site: LogSite, log: Log, base: int, batches: int) -> None:
    """Truncate a file of the log after some of its batches."""
    path = site.path(log, base)
    site.files.overwrite(path, site.files.read_file(path)[: batches * BATCH_BYTES])


def test_intact_log_has_no_mark() -> None:
    site, log = replicated()
    site = site.kill()
    assert loss(site) is None
    assert file_names.LOST_RECORDS not in site.files.listdir(log.directory)


@pytest.mark.parametrize("is_clean", [True, False])
def test_log_that_lost_its_end_does_not_continue_after_the_loss(is_clean: bool) -> None:
    site, log = replicated()
    if is_clean:
        site.stop()
    cut(site, log, 15, 1)
    site = site.kill()
    assert loss(site) == (16, True)
    log = site.log()
    assert (log.log_end_offset, log.high_watermark) == (16, 16)
    assert base_offsets(log) == [0, 5, 10, 15]
    assert "t-0 has lost offsets 16 to 16, which were durable" in site.reports[-1]
    assert "this replica does not lead before it has copied them" in site.reports[-1]
    # The records that are copied get the offsets that were lost.
    site.append(log)
    assert log.log_end_offset == 17
    site.settle()
    # The mark stays until it is removed, although nothing is missing any more.
    assert loss(site.kill()) == (16, True)


def test_torn_tail_above_all_durable_offsets_is_no_loss() -> None:
    site, log = replicated()
    site.fill(log, 2)
    site.settle()
    path = site.path(log, 15)
    site.files.overwrite(path, site.files.read_file(path)[:-1])
    site = site.kill()
    assert (loss(site), site.log().log_end_offset) == (None, 18)


@pytest.mark.parametrize("base", [0, 5, 10])
def test_missing_segment_is_marked_with_its_first_offset(base: int) -> None:
    site, log = replicated()
    site.files.unlink(site.path(log, base))
    site = site.kill()
    assert loss(site) == (base, False)
    # As the last replica in sync, it serves the other records.
    assert site.log().log_end_offset == 17


def test_damaged_batch_is_marked_and_the_other_records_are_served() -> None:
    site, log = replicated()
    site.flip(site.path(log, 15), 100)
    site = site.kill()
    assert loss(site) == (15, False)
    assert batch_offsets(site.log(), 16) == [16]
    # Once the segment is sealed, a later start does not find the damage again.
    site.fill(site.log(), 8)
    site.settle()
    site = site.restart()
    assert not any("is damaged on disk" in line for line in site.reports)
    assert loss(site) == (15, False)


def test_several_losses_are_marked_as_one() -> None:
    site, log = replicated()
    site.files.unlink(site.path(log, 5))
    cut(site, log, 15, 0)
    assert loss(site.kill()) == (5, True)


def test_missing_directory_becomes_an_empty_log_that_lacks_everything() -> None:
    site, log = replicated()
    for name in site.files.listdir(log.directory):
        site.files.unlink(f"{log.directory}/{name}")
    site.files.rmdir(log.directory)
    site = site.kill()
    log = site.log()
    assert loss(site) == (0, True)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 0, 0)
    [line] = [line for line in site.reports if "cannot find /a/t-0" in line]
    assert "created an empty log for t-0, which other replicas can fill" in line


def test_missing_directory_of_a_log_without_records_is_not_lost() -> None:
    """The checkpoint may be that of a deleted topic: the new log did not exist yet."""
    site = LogSite().start()
    site.has_other_replicas = True
    log = site.create("t-0")
    site.write_checkpoints()
    for name in site.files.listdir(log.directory):
        site.files.unlink(f"{log.directory}/{name}")
    site.files.rmdir(log.directory)
    site = site.kill()
    assert site.manager.get(log.topic_partition) is None


def test_log_start_beyond_the_end_is_a_lost_end() -> None:
    site, log = replicated()
    log.delete_records_before(17)
    site.settle(site.manager.write_log_start_of(log))
    cut(site, log, 15, 1)
    site = site.kill()
    assert loss(site) == (17, True)
    assert (site.log().log_start_offset, site.log().log_end_offset) == (17, 17)


def test_partition_without_other_replicas_is_not_marked() -> None:
    site, log = replicated()
    site.has_other_replicas = False
    cut(site, log, 15, 1)
    site = site.kill()
    assert loss(site) is None
    assert site.log().log_end_offset == 17
    assert file_names.LOST_RECORDS not in site.files.listdir(log.directory)


@pytest.mark.parametrize("content", [b"", b"\xff", b"version: 0\nfirst_offset: x\n", b"a"])
def test_damaged_mark_counts_as_the_loss_of_everything(content: bytes) -> None:
    site, log = replicated()
    file = site.files.open_append(f"{log.directory}/{file_names.LOST_RECORDS}")
    file.append(content)
    file.close()
    assert loss(site.kill()) == (0, True)


@pytest.mark.parametrize("how", ["end", "rot", "segment"])
def test_crash_at_any_operation_of_the_load_does_not_hide_the_loss(how: str) -> None:
    expected = {"end": (16, True), "rot": (15, False), "segment": (5, False)}[how]
    for number in itertools.count(1):
        site, log = replicated()
        if how == "end":
            cut(site, log, 15, 1)
        elif how == "rot":
            site.flip(site.path(log, 15), 100)
        else:
            site.files.unlink(site.path(log, 5))
        site.files.sync_dir(log.directory)
        site = site.next_life()
        site.files.crash_at(number)
        try:
            site.start()
        except SimCrash:
            assert loss(site.crash(number)) == expected
        else:
            assert loss(site) == expected
            break
    assert number > 5


def test_removed_mark_does_not_reappear_after_a_power_loss() -> None:
    for seed in range(10):
        site, log = replicated()
        cut(site, log, 15, 1)
        site = site.kill()
        log = site.log()
        clearing = site.manager.losses.clear(
            log.topic_partition, log_dir=log.log_dir, directory=log.directory, lane="dir:/a"
        )
        site.settle(spawn(clearing))
        assert loss(site) is None
        # Otherwise, the checkpoints would prove the loss again.
        site.write_checkpoints()
        assert loss(site.crash(seed)) is None
