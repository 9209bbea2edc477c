"""plog/spark/frozen_modules.py: Spark's processes do not collect imported modules."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

TASKS = """
import gc, pickle
from plog.spark.worker_check import CheckedPickle
reader = CheckedPickle()
reader.options = {}
data = pickle.dumps(reader)
for _ in range(3):
    pickle.loads(data)
    print(gc.get_freeze_count())
"""
STEPS_OF_A_PLAN = """
import gc
from plog.spark.source import PlogSource, source_schema
source = PlogSource({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t", "topic": "t"})
for _ in range(3):
    CALL
    print(gc.get_freeze_count())
"""
CALLS = (
    "source.schema()",
    "source.reader(source_schema(with_headers=False))",
    "source.streamReader(source_schema(with_headers=False))",
    "source.writer(source_schema(with_headers=False), False)",
    "source.streamWriter(source_schema(with_headers=False), False)",
)


def frozen_after_each_use(script: str, environment: dict[str, str]) -> list[int]:
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return [int(line) for line in done.stdout.split()]


@pytest.mark.parametrize(
    ("environment", "is_frozen"), [({"SPARK_REUSE_WORKER": "1"}, True), ({}, False)]
)
def test_modules_are_not_collected_after_the_first_task_of_a_worker(
    environment: dict[str, str], is_frozen: bool
) -> None:
    first, second, third = frozen_after_each_use(TASKS, environment)
    assert first == 0
    assert (second > 1000) is is_frozen
    assert third <= second


@pytest.mark.parametrize("call", CALLS)
def test_modules_are_not_collected_after_the_first_plan(call: str) -> None:
    pytest.importorskip("pyspark")
    script = STEPS_OF_A_PLAN.replace("CALL", call)
    first, second, third = frozen_after_each_use(script, {"SPARK_REUSE_WORKER": "1"})
    assert first == 0
    assert second > 1000
    assert third <= second
