"""TaskCompletion calls its function at every end of a block except garbage collection."""

from __future__ import annotations

import gc
import logging

import pytest

from plog.client.task_completion import TaskCompletion
from tests.unit.client.faces.test_polling_consumer_faults import Stream


@pytest.mark.parametrize(("seed", "steps"), [(12, 17), (16, 21), (26, 17)])
def test_garbage_collected_client_logs_no_errors(
    caplog: pytest.LogCaptureFixture, seed: int, steps: int
) -> None:
    gc.collect()  # Collect garbage of other tests.
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


def test_function_is_called_unless_block_ends_with_generator_exit() -> None:
    ended: list[str] = []
    with TaskCompletion(ended.append, "well"):
        pass
    with pytest.raises(ValueError, match="no"), TaskCompletion(ended.append, "ill"):
        raise ValueError("no")
    with pytest.raises(KeyboardInterrupt), TaskCompletion(ended.append, "interrupted"):
        raise KeyboardInterrupt
    with pytest.raises(GeneratorExit), TaskCompletion(ended.append, "collected"):
        raise GeneratorExit
    assert ended == ["well", "ill", "interrupted"]
