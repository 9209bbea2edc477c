"""Learning and forgetting the costs of syncs."""

from __future__ import annotations

from plogd.log.disk.sync_costs import SyncCosts


def _preferred_after_s(costs: SyncCosts, file_count: int, *, file_system: bool) -> int:
    """Return after how many seconds without observations that kind of round is chosen."""
    for second in range(1000):
        if costs.prefers_file_system(file_count, 1000.0 * second) is file_system:
            return second
    raise AssertionError("never again")


def test_syncfs_is_never_used_for_a_single_file() -> None:
    costs = SyncCosts()
    costs.observe_files(1, 5000.0, 0.0)
    assert not costs.prefers_file_system(1, 0.0)
    assert costs.prefers_file_system(2, 0.0)


def test_one_slow_syncfs_is_forgotten() -> None:
    costs = SyncCosts()
    assert costs.prefers_file_system(50, 0.0)
    costs.observe_file_system(3000.0, 0.0)
    assert 30 < _preferred_after_s(costs, 50, file_system=True) < 120


def test_one_slow_fdatasync_is_forgotten() -> None:
    costs = SyncCosts()
    costs.observe_files(1, 5000.0, 0.0)
    assert 30 < _preferred_after_s(costs, 3, file_system=False) < 180


def test_repeatedly_slow_syncs_change_the_choice() -> None:
    costs = SyncCosts()
    for round_number in range(200):
        costs.observe_file_system(20.0, 100.0 * round_number)
    assert not costs.prefers_file_system(60, 100.0 * 199 + 1)
    assert costs.prefers_file_system(80, 100.0 * 199 + 1)
