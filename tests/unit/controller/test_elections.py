"""Elections with one broker: never needed, or impossible."""

from __future__ import annotations

import pytest

from plog.enums import ElectionType
from plog.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidRequest,
    KafkaError,
    PreferredLeaderNotAvailable,
)
from plogd.controller.elections import election_outcome, election_type
from plogd.metadata.cache import PartitionState

STATE = PartitionState(
    partition=2, leader=1, leader_epoch=0, replicas=(1,), isr=(1,), partition_epoch=0
)


@pytest.mark.parametrize("kind", list(ElectionType))
def test_a_partition_that_works_has_its_leader(kind: ElectionType) -> None:
    outcome = election_outcome(kind, STATE, is_offline=False)
    assert isinstance(outcome, ElectionNotNeeded)
    assert "led by its preferred leader, broker 1" in outcome.message


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (ElectionType.PREFERRED, PreferredLeaderNotAvailable),
        (ElectionType.UNCLEAN, EligibleLeadersNotAvailable),
    ],
)
def test_a_partition_of_a_failed_directory_has_nobody_to_lead_it(
    kind: ElectionType, error: type[KafkaError]
) -> None:
    assert isinstance(election_outcome(kind, STATE, is_offline=True), error)


def test_kinds_of_elections_have_kafkas_codes() -> None:
    assert [election_type(code) for code in (0, 1)] == [
        ElectionType.PREFERRED,
        ElectionType.UNCLEAN,
    ]
    for code in (-1, 2):
        with pytest.raises(InvalidRequest, match=f"unknown election type {code}"):
            election_type(code)
