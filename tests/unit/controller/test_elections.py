"""Elections with a single broker: not needed, or impossible."""

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
def test_election_is_not_needed_while_the_leader_works(kind: ElectionType) -> None:
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
def test_election_fails_when_the_log_directory_is_offline(
    kind: ElectionType, error: type[KafkaError]
) -> None:
    assert isinstance(election_outcome(kind, STATE, is_offline=True), error)


def test_election_types_have_kafkas_codes() -> None:
    assert [election_type(code) for code in (0, 1)] == [
        ElectionType.PREFERRED,
        ElectionType.UNCLEAN,
    ]
    for code in (-1, 2):
        with pytest.raises(InvalidRequest, match=f"unknown election type {code}"):
            election_type(code)
