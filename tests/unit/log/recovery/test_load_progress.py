"""The progress of loading, within and across logs, and the stop of a recovery."""

from __future__ import annotations

import pytest

from plogd.log.recovery.load_progress import LoadAmount, LoadingStopped, LoadProgress
from tests.helpers.log.log_site import LogSite
from tests.helpers.sim.sim_ports import settled


def _three_logs() -> LogSite:
    """Return the life after a kill that left three logs, each with 17 batches in two segments."""
    site = LogSite(num_recovery_threads_per_data_dir=1).start()
    for number in range(3):
        site.fill(site.create(f"t-{number}"), 17)
    site = site.next_life()
    site.settle(site.manager.open_directories())
    return site


def test_progress_advances_within_a_log() -> None:
    progress = LoadProgress()
    progress.end(progress.begin())
    work = progress.begin(expected_bytes=100)
    work.scanned_to(40)
    assert progress.amount == LoadAmount(1, 2, 40, 100, 1)


def test_loaded_log_counts_as_scanned_when_less_was_scanned_than_expected() -> None:
    progress = LoadProgress()
    work = progress.begin(expected_bytes=100)
    work.scanned_to(40)
    progress.end(work)
    assert progress.amount == LoadAmount(1, 1, 40, 40, 1)


def test_total_is_never_below_the_scanned_bytes() -> None:
    progress = LoadProgress()
    progress.begin(expected_bytes=10).scanned_to(40)
    assert progress.amount.total_bytes == 40


def test_stop_ends_running_and_later_work() -> None:
    progress = LoadProgress()
    running = progress.begin()
    progress.stop()
    for work in (running, progress.begin()):
        with pytest.raises(LoadingStopped):
            work.step()


def test_recovery_counts_every_byte_of_the_segments_that_it_scans() -> None:
    site = _three_logs()
    loading = site.manager.load_logs(site._topic_of)
    site.settle(loading)
    amount = site.manager.load_progress.amount
    active = sum(site.log(f"t-{number}").size_bytes for number in range(3))
    assert (amount.logs, amount.total_logs) == (3, 3)
    assert 0 < amount.scanned_bytes == amount.total_bytes <= active


def test_expected_bytes_are_known_before_the_first_log_is_recovered() -> None:
    site = _three_logs()
    loading = site.manager.load_logs(site._topic_of)
    seen: set[int] = set()
    while site.ports.jobs.waiting:
        site.ports.jobs.run_one()
        if site.manager.load_progress.amount.total_logs:
            seen.add(site.manager.load_progress.amount.total_bytes)
    assert settled(site.ports, loading) is None
    assert seen == {site.manager.load_progress.amount.scanned_bytes}


def test_clean_logs_are_loaded_without_a_scan() -> None:
    site = LogSite().start()
    site.fill(site.create("t-0"), 17)
    site = site.restart()
    assert site.manager.load_progress.amount[:4] == (1, 1, 0, 0)
