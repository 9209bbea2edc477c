"""Storms of a few seeds; producer_storm.py runs thousands manually."""

from __future__ import annotations

import pytest

from tests.unit.client.producer.producer_storm import weather


@pytest.mark.parametrize("seed", range(30))
def test_idempotent_producer_reports_true_outcomes_in_every_storm(seed: int) -> None:
    assert weather(seed).sent


@pytest.mark.parametrize("mode", ["one at a time", "acks=1", "acks=0"])
@pytest.mark.parametrize("seed", range(6))
def test_other_producers_keep_their_promises(seed: int, mode: str) -> None:
    assert weather(seed, mode).sent
