"""The real random numbers."""

from __future__ import annotations

from plogd.ports import Random
from plogd.system_random import SystemRandom


def test_random_numbers_have_the_requested_size() -> None:
    chance: Random = SystemRandom()
    assert len(chance.random_bytes(16)) == 16
    assert {chance.randrange(2) for _ in range(200)} == {0, 1}
