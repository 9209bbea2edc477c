"""Logs against a model, over any history of appends, compactions, truncations and crashes.

Hypothesis reduces a history that fails. The bugs of tests/sim/planted_bugs.py that concern logs are
also planted here, and must be found.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.helpers.log.log_history import STEPS, LogHistory, Step
from tests.sim.planted_bugs import planted

HISTORIES = 600
LONG_HISTORIES = 2_000
"""For each share of the long test."""
LONG_SHARES = range(6)
MAX_STEPS = 60
PLANTED_HISTORIES = 100
"""Enough to find each planted bug."""
PLANTS = (
    "clean-above-lso",
    "drop-last-batches",
    "drop-tombstones",
    "keep-old-tickets",
    "swap-without-dir-sync",
)

steps_of_any_name = st.tuples(st.sampled_from(STEPS), st.integers(0, 50))
# A list of any length, because the lists that hypothesis generates by itself have five elements.
histories = st.integers(0, MAX_STEPS).flatmap(
    lambda count: st.lists(steps_of_any_name, min_size=count, max_size=count)
)


@settings(max_examples=HISTORIES)
@given(steps=histories)
@example(steps=[*[("append", 40)] * 9, ("roll", 0), ("compact", 0), ("crash", 3)])
def test_any_history_keeps_the_last_record_of_each_key(steps: list[Step]) -> None:
    LogHistory().run(steps)


@pytest.mark.long
@pytest.mark.parametrize("share", LONG_SHARES)
def test_any_of_ten_thousand_histories_keeps_the_last_record_of_each_key(share: int) -> None:
    @settings(max_examples=LONG_HISTORIES, database=None)
    @given(steps=histories)
    def check(steps: list[Step]) -> None:
        LogHistory().run(steps)

    check()


def _run_random_histories() -> None:
    for seed in range(PLANTED_HISTORIES):
        chance = random.Random(seed)
        steps = [(chance.choice(STEPS), chance.randrange(51)) for _ in range(MAX_STEPS)]
        LogHistory().run(steps)


@pytest.mark.parametrize("plant", PLANTS)
def test_histories_find_a_planted_bug(plant: str) -> None:
    with planted(plant), pytest.raises(AssertionError):
        _run_random_histories()
