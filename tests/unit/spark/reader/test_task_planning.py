"""plan_tasks divides ranges so that no task exceeds a limit and enough tasks exist."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plog.spark.reader.offset_range import OffsetRange
from plog.spark.reader.task_planning import TaskLimits, plan_tasks
from plog.types import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))


def ranges(*sizes: int) -> list[OffsetRange]:
    """Return a range of each size, which starts at 100, in the partitions A, B, C."""
    return [
        OffsetRange(partition=TopicPartition("t", number), start_offset=100, end_offset=100 + size)
        for number, size in enumerate(sizes)
    ]


def sizes_of(tasks: list[OffsetRange]) -> dict[TopicPartition, list[int]]:
    found: dict[TopicPartition, list[int]] = {}
    for task in tasks:
        found.setdefault(task.partition, []).append(task.size)
    return found


def test_partition_is_one_task_without_limits() -> None:
    assert plan_tasks(ranges(10, 20), TaskLimits()) == ranges(10, 20)


def test_empty_ranges_have_no_task() -> None:
    assert plan_tasks(ranges(0, 5, 0), TaskLimits(min_tasks=2)) == [
        OffsetRange(partition=B, start_offset=100, end_offset=102),
        OffsetRange(partition=B, start_offset=102, end_offset=105),
    ]
    assert plan_tasks(ranges(0), TaskLimits(min_tasks=2)) == []


def test_max_records_bounds_each_task() -> None:
    tasks = plan_tasks(ranges(10, 3), TaskLimits(max_records=4))
    assert sizes_of(tasks) == {A: [3, 3, 4], B: [3]}


def test_max_bytes_bounds_the_expected_size_of_each_task() -> None:
    limits = TaskLimits(max_bytes=1000, record_bytes={A: 250.0, B: 5000.0, C: 0.0})
    tasks = plan_tasks(ranges(10, 3, 10), limits)
    # A record that exceeds the limit still needs a task; an unknown size has no effect.
    assert sizes_of(tasks) == {A: [3, 3, 4], B: [1, 1, 1], C: [10]}


def test_min_tasks_divides_the_largest_tasks() -> None:
    assert sizes_of(plan_tasks(ranges(100, 10), TaskLimits(min_tasks=5))) == {
        A: [25, 25, 25, 25],
        B: [10],
    }


def test_min_tasks_has_no_effect_when_there_are_enough() -> None:
    assert plan_tasks(ranges(5, 6), TaskLimits(min_tasks=2)) == ranges(5, 6)


@given(
    st.lists(st.integers(0, 1000), max_size=5),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 300),
)
def test_plan_covers_every_offset_once_and_keeps_limits(
    sizes: list[int], min_tasks: int | None, max_records: int | None
) -> None:
    wanted = ranges(*sizes)
    tasks = plan_tasks(wanted, TaskLimits(min_tasks=min_tasks, max_records=max_records))
    for one in wanted:
        mine = [task for task in tasks if task.partition == one.partition]
        offsets = [x for task in mine for x in range(task.start_offset, task.end_offset)]
        assert offsets == list(range(one.start_offset, one.end_offset))
    assert all(0 < task.size <= (max_records or 1000) for task in tasks)
    assert len(tasks) >= min(min_tasks or 0, sum(sizes))
