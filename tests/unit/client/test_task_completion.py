"""A client that nobody has closed, and nobody has any more: the collector ends it in silence."""

from __future__ import annotations

import gc
import logging

import pytest

from plog.client.task_completion import TaskCompletion
from tests.unit.client.faces.test_polling_consumer_faults import Stream


@pytest.mark.parametrize(("seed", "steps"), [(12, 17), (16, 21), (27, 12)])
def test_what_is_collected_wakes_nobody_and_says_nothing(
    caplog: pytest.LogCaptureFixture, seed: int, steps: int
) -> None:
    gc.collect()  # Other tests' own.
    gc.disable()
    try:
        stream = Stream(seed)
        stream.site.know()
        stream.come()
        for _ in range(steps):
            stream.step()
        caplog.clear()
        del stream
        assert gc.collect() > 100
    finally:
        gc.enable()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_others_are_told_of_every_other_end() -> None:
    told: list[str] = []
    with TaskCompletion(told.append, "well"):
        pass
    with pytest.raises(ValueError, match="no"), TaskCompletion(told.append, "ill"):
        raise ValueError("no")
    with pytest.raises(KeyboardInterrupt), TaskCompletion(told.append, "interrupted"):
        raise KeyboardInterrupt
    with pytest.raises(GeneratorExit), TaskCompletion(told.append, "collected"):
        raise GeneratorExit
    assert told == ["well", "ill", "interrupted"]
