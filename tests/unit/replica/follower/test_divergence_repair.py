"""Where a follower truncates its log (KIP-101, KIP-279)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from plogd.log.leader_epochs import LeaderEpochs
from plogd.ports import Files
from plogd.replica.follower.divergence_repair import truncation_offset
from tests.helpers.sim.sim_files import SimFiles


def log_with(end_offset: int, *starts: tuple[int, int]) -> Any:
    epochs = LeaderEpochs(cast(Files, SimFiles(["/"])), "/")
    for epoch, start_offset in starts:
        epochs.assign(epoch, start_offset)
    return SimpleNamespace(leader_epochs=epochs, log_end_offset=end_offset)


@pytest.mark.parametrize(
    ("epoch", "end_offset", "expected"),
    [
        (3, 12, 12),  # The epoch ended earlier in the leader's log.
        (3, 40, 20),  # The follower has less of it.
        (2, 18, 10),  # The follower does not have the epoch: its largest epoch below ends at 10.
        (1, 7, 7),
        (0, 5, 0),  # No common record: epoch 1 begins at offset 0.
        (-1, 4, 4),  # The leader's log has no epochs.
    ],
)
def test_truncation_offset(epoch: int, end_offset: int, expected: int) -> None:
    log = log_with(20, (1, 0), (3, 10))
    assert truncation_offset(log, epoch, end_offset) == expected


def test_log_without_epochs_is_truncated_to_the_end_of_the_leader() -> None:
    assert truncation_offset(log_with(20), 3, 12) == 12
