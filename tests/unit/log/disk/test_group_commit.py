"""Group commit: which logs share a round, what it makes durable, effects of failures (R9, R10)."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plogd.log.disk.group_commit import SyncTicket
from plogd.ports import failed
from tests.helpers.log.sync_site import DirtyLog, Site
from tests.helpers.sim.sim_files import Operation
from tests.helpers.sim.sim_ports import outcome

# -- rounds -----------------------------------------------------------------------------------


def test_round_begins_when_the_turn_ends_and_syncs_its_appends() -> None:
    site = Site()
    log = site.log()
    with site.ports.turn:
        log.append()
        log.append()
        assert site.ports.jobs.waiting == []
    assert site.ports.jobs.waiting == ["sync:1"]
    assert log.durable == []
    site.ports.jobs.run_all()
    assert log.durable == [2]
    assert site.operations == ["sync"]


def test_round_waits_briefly_for_clients_of_the_last_round() -> None:
    """Otherwise five requests in flight would alternate between one and four forever."""
    site = Site()
    log = site.log()
    ends: list[list[int]] = []
    for _ in range(40):
        log.durable.clear()
        start = log.end_offset
        log.append()
        site.end_turn()
        with site.ports.turn:
            for _ in range(4):
                log.append()
        site.ports.settle()
        ends.append([end - start for end in log.durable])
    assert ends[0] == [1, 5], "at first no client is expected to return"
    assert ends[-20:] == [[5]] * 20


def test_round_does_not_wait_for_long() -> None:
    site = Site()
    log = site.log()
    while not log.durable or log.durable[-1] == log.end_offset:
        with site.ports.turn:
            log.append()
            log.append()
        site.ports.settle()
        log.append()
        site.ports.settle()
    site.ports.advance(1.0)
    assert log.durable[-1] == log.end_offset


def test_appends_during_a_round_join_the_next() -> None:
    site = Site()
    log, other = site.log(), site.log("u-0")
    log.append()
    site.end_turn()
    log.append()
    other.append()
    other.append()
    site.end_turn()
    assert site.rounds.rounds == 1
    site.ports.jobs.run_one()
    assert log.durable == [1]
    assert other.durable == []
    site.ports.settle()
    assert log.durable == [1, 2]
    assert other.durable == [2]
    assert site.rounds.rounds == 2


def test_logs_of_all_directories_share_a_round() -> None:
    site = Site()
    logs = [site.log("t-0"), site.log("t-1"), site.log("t-0", "/b")]
    for log in logs:
        log.append()
    site.ports.settle()
    assert [log.durable for log in logs] == [[1], [1], [1]]
    assert (site.rounds.rounds, site.rounds.synced_logs) == (1, 3)


def test_directory_is_synced_after_its_files() -> None:
    site = Site()
    log = site.log(file_count=2)
    log.directory_is_dirty = True
    assert site.sync(log) == ["sync", "sync", "sync_dir"]


def test_log_closed_before_its_round_is_left_out() -> None:
    site = Site()
    closed, other = site.log(), site.log("u-0")
    closed.append()
    other.append()
    closed.closed = True
    site.ports.settle()
    assert closed.durable == []
    assert other.durable == [1]


def test_round_of_closed_logs_needs_no_job() -> None:
    site = Site()
    log = site.log()
    log.append()
    log.closed = True
    site.end_turn()
    assert site.ports.jobs.waiting == []
    assert site.rounds.idle().done


@pytest.mark.parametrize("fault", [None, errno.EIO])
def test_files_are_retained_during_a_round_and_released_after_it(fault: int | None) -> None:
    site = Site()
    log = site.log()
    log.append()
    site.end_turn()
    for file in log.files:
        file.close()
    if fault is not None:
        site.files.fail_when(lambda operation: operation.name == "sync", fault)
    site.ports.jobs.run_all()
    for file in log.files:
        with pytest.raises(AssertionError, match="closed"):
            file.close()
    assert site.failures == ([] if fault is None else [(("/a",), errno.EIO)])


# -- failures ---------------------------------------------------------------------------------


def test_failed_fdatasync_takes_only_its_directory_offline() -> None:
    site = Site()
    bad, neighbor, good = site.log("t-0"), site.log("t-1"), site.log("t-2", "/b")
    for log in (bad, neighbor, good):
        log.append()
    site.files.fail_when(lambda operation: operation.path == "/a/t-0/0", errno.EIO)
    site.ports.settle()
    assert bad.durable == neighbor.durable == []
    assert good.durable == [1]
    assert site.failures == [(("/a",), errno.EIO)]


def test_failed_directory_sync_takes_its_log_directory_offline() -> None:
    site = Site()
    log = site.log()
    log.directory_is_dirty = True
    log.append()
    site.files.fail_when(lambda operation: operation.name == "sync_dir", errno.EIO)
    site.ports.settle()
    assert log.durable == []
    assert site.failures == [(("/a",), errno.EIO)]


def _remove(site: Site, log: DirtyLog) -> None:
    site.files.rename(log.directory, f"{log.directory}.0-delete")


def test_log_deleted_during_its_round_is_not_a_failure() -> None:
    """Its directory is renamed on another lane, perhaps just before the round would sync it."""
    site = Site()
    log = site.log()
    log.directory_is_dirty = True
    log.append()
    site.end_turn()
    log.closed = True
    _remove(site, log)
    site.ports.settle()
    assert site.failures == []


def test_missing_directory_of_an_open_log_is_a_failure() -> None:
    site = Site()
    log = site.log()
    log.directory_is_dirty = True
    log.append()
    site.end_turn()
    _remove(site, log)
    site.ports.settle()
    assert site.failures == [(("/a",), errno.ENOENT)]


def test_rounds_are_not_idle_while_a_sync_leads_to_another_append() -> None:
    site = Site()
    log = site.log()
    complete_sync = log.complete_sync

    def complete_and_append(ticket: SyncTicket) -> None:
        complete_sync(ticket)
        if ticket.end_offset < 3:
            site.ports.turn.defer(log.append)

    log.complete_sync = complete_and_append  # type: ignore[method-assign]
    log.append()
    durable: list[list[int]] = []
    site.rounds.idle().then(lambda _: durable.append(list(log.durable)), lambda error: None)
    site.ports.settle()
    assert durable == [[1, 2, 3]]


def test_unexpected_error_of_a_sync_fails_its_own_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site()
    bad, good = site.log("t-0", "/b"), site.log("t-1", "/a")

    def die() -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(bad.files[0], "sync", die)
    bad.append()
    good.append()
    site.ports.settle()
    assert bad.durable == []
    assert good.durable
    assert site.failures == [(("/b",), None)]


def test_sync_job_that_fails_as_a_whole_fails_every_directory_of_the_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site()
    logs = [site.log("t-0", "/b"), site.log("t-1", "/a")]
    monkeypatch.setattr(
        site.ports.jobs, "submit", lambda lane, function: failed(ValueError("a bug"))
    )
    for log in logs:
        log.append()
    site.ports.settle()
    assert [log.durable for log in logs] == [[], []]
    assert site.failures == [(("/a", "/b"), None)]
    assert site.rounds.idle().done


def test_round_after_a_failure_syncs_the_other_directories() -> None:
    site = Site()
    bad, good = site.log("t-0"), site.log("t-2", "/b")
    site.files.fail_when(lambda operation: operation.path.startswith("/a"), errno.EIO)
    bad.end_offset += 1
    site.rounds.request(bad, 0)
    site.end_turn()
    good.append()
    site.ports.settle()
    assert good.durable == [1]
    assert site.rounds.idle().done


# -- one syncfs for many files ----------------------------------------------------------------


def test_many_dirty_files_are_synced_by_one_syncfs() -> None:
    site = Site()
    assert site.sync(site.log("few-0", file_count=20)) == ["sync"] * 20
    assert site.sync(site.log("many-0", file_count=50)) == ["sync_fs"]
    assert site.rounds.file_system_rounds == 1


def test_failed_syncfs_takes_every_directory_of_the_device_offline() -> None:
    site = Site()
    many, idle = site.log("many-0", file_count=50), site.log("u-0", "/b")
    site.files.fail_when(lambda operation: operation.name == "sync_fs", errno.EIO)
    many.append()
    site.ports.settle()
    assert many.durable == idle.durable == []
    assert site.failures == [(("/a", "/b"), errno.EIO)]


def test_cheaper_kind_of_round_is_chosen_from_measured_costs() -> None:
    site = Site()
    log = site.log(file_count=10)
    site.let_take(sync=5.0)
    assert site.sync(log) == ["sync"] * 10
    assert site.sync(log) == ["sync_fs"]


def test_syncfs_far_over_its_prediction_is_not_used_for_a_while() -> None:
    """Other programs write to the file system, too, and syncfs waits for all of it."""
    site = Site()
    log = site.log(file_count=200)
    site.let_take(sync=0.3, sync_fs=25.0)
    assert site.sync(log) == ["sync_fs"]
    assert site.sync(log) == ["sync"] * 200
    site.ports.advance(29_000)
    assert site.sync(log) == ["sync"] * 200
    site.ports.advance(1_001)
    assert site.sync(log) == ["sync_fs"]


def test_slow_syncfs_is_used_again_when_it_was_predicted() -> None:
    site = Site()
    log = site.log(file_count=500)
    site.let_take(sync=0.3, sync_fs=20.0)
    assert [site.sync(log)[:1] for _ in range(3)] == [["sync_fs"]] * 3


@pytest.mark.parametrize("file_count", [15, 16, 50])
def test_many_files_are_synced_in_parallel_without_syncfs(file_count: int) -> None:
    site = Site(sync_fs=False)
    logs = [site.log(f"t-{number}") for number in range(file_count)]
    for log in logs:
        log.append()
    site.end_turn()
    lanes = ["sync:1"] if file_count < 16 else [f"sync:1:{number}" for number in range(8)]
    assert site.ports.jobs.waiting == lanes
    site.ports.settle()
    assert site.operations == ["sync"] * file_count
    assert all(log.durable == [1] for log in logs)


def test_failures_of_parallel_syncs_are_all_reported() -> None:
    site = Site(sync_fs=False)
    logs = [site.log(f"t-{number}", "/a" if number % 2 else "/b") for number in range(16)]
    for log in logs:
        log.append()
    site.files.fail_when(lambda operation: operation.path == "/b/t-4/0", errno.EIO)
    site.ports.settle()
    assert site.failures == [(("/b",), errno.EIO)]
    assert {log.log_dir for log in logs if log.durable} == {"/a"}


def test_few_logs_with_many_files_use_as_many_lanes_as_there_are_logs() -> None:
    site = Site(sync_fs=False)
    log = site.log(file_count=20)
    log.append()
    site.end_turn()
    assert site.ports.jobs.waiting == ["sync:1:0"]
    site.ports.settle()
    assert log.durable == [1]


# -- room and rest ----------------------------------------------------------------------------


def test_appends_wait_in_order_while_too_many_bytes_are_unsynced() -> None:
    site = Site(max_unsynced_bytes=100)
    log = site.log()
    order: list[str] = []

    def wait(name: str) -> None:
        def go_on(_: None) -> None:
            order.append(name)
            log.append(60)

        site.rounds.room().then(go_on, _unexpected)

    log.append(60)
    log.append(60)
    for name in "xyz":
        wait(name)
    assert order == []
    site.end_turn()
    site.ports.jobs.run_one()
    # Two of them exhaust the limit again; the third waits for their round.
    assert order == ["x", "y"]
    assert not site.rounds.has_room
    site.ports.settle()
    assert order == ["x", "y", "z"]
    assert site.rounds.has_room


def test_new_append_does_not_overtake_waiting_ones() -> None:
    site = Site(max_unsynced_bytes=100)
    log = site.log()
    seen: list[bool] = []
    log.append(100)
    site.rounds.room().then(lambda _: seen.append(site.rounds.has_room), _unexpected)
    site.rounds.room().then(lambda _: seen.append(site.rounds.has_room), _unexpected)
    site.ports.settle()
    assert seen == [False, True]


def test_disconnected_client_does_not_block_later_ones() -> None:
    site = Site(max_unsynced_bytes=100)
    site.log().append(100)
    left, stayed = site.rounds.room(), site.rounds.room()
    left.cancel()
    site.ports.settle()
    assert outcome(stayed) is None
    assert site.rounds.has_room


def test_append_does_not_wait_when_few_bytes_are_unsynced() -> None:
    assert outcome(Site().rounds.room()) is None


def test_failed_round_releases_its_bytes() -> None:
    site = Site(max_unsynced_bytes=100)
    site.log().append(100)
    waiting = site.rounds.room()
    assert not waiting.done
    site.files.fail_when(lambda operation: operation.name == "sync", errno.EIO)
    site.ports.settle()
    assert outcome(waiting) is None
    assert site.rounds.has_room


def test_idle_waits_for_the_round_in_flight_and_for_the_one_after_it() -> None:
    site = Site()
    assert site.rounds.idle().done
    log = site.log()
    log.append()
    site.end_turn()
    log.append()
    idle = site.rounds.idle()
    site.ports.jobs.run_one()
    assert not idle.done
    site.ports.settle()
    assert outcome(idle) is None
    assert log.durable == [1, 2]


def _unexpected(error: Exception) -> None:
    raise error


# -- any history ------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "turn", "job", "job", "fail"]), st.integers(0, 4)),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, sync_fs=st.booleans())
def test_durable_records_were_synced_after_their_append(
    steps: list[tuple[str, int]], sync_fs: bool
) -> None:
    """Also: one round at a time, and a failed directory never becomes durable again."""
    site = Site(sync_fs=sync_fs)
    logs = [site.log(f"t-{number}", "/b" if number % 2 else "/a") for number in range(5)]
    synced_ends: dict[str, int] = {}

    def note(operation: Operation) -> None:
        if operation.name == "sync":
            [log] = [log for log in logs if operation.path.startswith(log.directory)]
            synced_ends[log.directory] = log.files[0].size() // 10

    site.files.on_operation = note
    actions: dict[str, Callable[[int], object]] = {
        "append": lambda number: logs[number].append(),
        "turn": lambda _: site.end_turn(),
        "job": lambda _: site.ports.jobs.run_one() if site.ports.jobs.waiting else None,
        "fail": lambda number: site.files.fail_when(
            lambda operation: (
                operation.path.startswith(logs[number].directory + "/") and operation.name == "sync"
            ),
            errno.EIO,
        ),
    }
    for name, number in steps:
        actions[name](number)
        assert len(site.ports.jobs.waiting) <= 1
        for log in logs:
            assert log.durable == sorted(log.durable)
            if log.durable:
                assert log.durable[-1] <= synced_ends[log.directory]
    site.ports.settle()
    failed = {log_dir for log_dirs, _ in site.failures for log_dir in log_dirs}
    for log in logs:
        if log.log_dir not in failed:
            assert (log.durable or [0])[-1] == log.end_offset
