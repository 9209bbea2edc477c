"""Each row is written once, wherever the attempts of its task are interrupted."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plog.client.values import ConsumerRecord
from plog.records.batch import TimestampType
from plog.records.codec import Header
from plog.spark.deduplication import (
    DeduplicationError,
    TaskFilter,
    TaskOutcome,
    is_committed,
    next_note,
    topics_to_note,
)
from plog.spark.sink_notes import (
    CommitNote,
    NotedCommit,
    Offsets,
    TaskId,
    TaskNote,
    merged_starts,
)

Row = tuple[str, bytes | None, bytes | None, int | None]
"""Topic, value, key and partition."""

TASK = TaskId("q", 3, 0)


class Killed(Exception):
    """The attempt ends here."""


class Cluster:
    """Topics, and the notes of one name; a topic appears with its first record."""

    def __init__(self, **topics: int) -> None:
        self.logs: dict[str, list[list[ConsumerRecord]]] = {
            topic: [[] for _ in range(count)] for topic, count in topics.items()
        }
        self.notes: list[TaskNote] = []
        self.reads: list[tuple[str, int, int]] = []
        self.steps_left = -1

    def step(self) -> None:
        """End the attempt if its steps are used up."""
        if self.steps_left == 0:
            raise Killed
        self.steps_left -= 1

    def ends(self, topics: Iterable[str]) -> Offsets:
        return {
            topic: {number: len(log) for number, log in enumerate(self.logs.get(topic, []))}
            for topic in topics
        }

    def append(self, row: Row, headers: Sequence[Header], chance: random.Random) -> None:
        topic, value, key, partition = row
        logs = self.logs.setdefault(topic, [[], []])
        # Even with a key, another partition may be chosen: the number of partitions grows.
        number = chance.randrange(len(logs)) if partition is None else partition
        logs[number].append(
            ConsumerRecord(
                topic,
                number,
                len(logs[number]),
                0,
                TimestampType.CREATE_TIME,
                key,
                value,
                headers,
                0,
            )
        )

    def rows(self) -> Counter[tuple[str, bytes | None, bytes | None]]:
        records = (one for logs in self.logs.values() for log in logs for one in log)
        return Counter((one.topic, one.value, one.key) for one in records)


class Log:
    """The `TaskLog` of one task."""

    def __init__(self, cluster: Cluster, task: TaskId) -> None:
        self.cluster = cluster
        self.task = task

    def earlier_starts(self) -> Offsets | None:
        return merged_starts(note for note in self.cluster.notes if note.task == self.task)

    def ends(self, topics: Sequence[str]) -> Offsets:
        return self.cluster.ends(topics)

    def append_note(self, starts: Offsets) -> None:
        self.cluster.step()
        copy = {topic: dict(offsets) for topic, offsets in starts.items()}
        self.cluster.notes.append(TaskNote(task=self.task, starts=copy))
        self.cluster.step()

    def records(self, starts: Offsets) -> Iterator[ConsumerRecord]:
        for topic, of_topic in starts.items():
            for number, log in enumerate(self.cluster.logs.get(topic, [])):
                start = of_topic.get(number, 0)
                self.cluster.reads.append((topic, number, start))
                yield from log[start:]


def attempt(
    cluster: Cluster,
    rows: Sequence[Row],
    *,
    task: TaskId = TASK,
    last: CommitNote | None = None,
    batch_size: int = 3,
    chance: random.Random | None = None,
) -> TaskFilter:
    """Write the rows in batches, as a task does."""
    chance = chance or random.Random(0)
    made = TaskFilter(task, last or CommitNote(ends=cluster.ends(["t"])), Log(cluster, task))
    for start in range(0, len(rows), batch_size):
        batch = rows[start : start + batch_size]
        made.prepare({row[0] for row in batch})
        for row in batch:
            topic, value, key, partition = row
            headers = made.headers_to_write(topic, value, key, partition, ())
            if headers is not None:
                cluster.step()
                cluster.append(row, headers, chance)
    return made


ROWS = [("t", b"%d" % (number // 2), None, None) for number in range(10)]


def test_first_attempt_writes_a_note_and_reads_no_output() -> None:
    cluster = Cluster(t=2)
    made = attempt(cluster, ROWS)
    assert sum(cluster.rows().values()) == 10
    assert cluster.notes == [TaskNote(task=TASK, starts={})]
    assert cluster.reads == []
    assert (made.omitted, made.topics) == (0, {"t"})


def test_attempt_without_rows_writes_no_note() -> None:
    cluster = Cluster(t=1)
    made = attempt(cluster, [])
    assert cluster.notes == []
    assert made.topics == frozenset()


def test_second_attempt_omits_all_rows_and_writes_no_note() -> None:
    cluster = Cluster(t=2)
    last = CommitNote(ends=cluster.ends(["t"]))
    attempt(cluster, ROWS, last=last)
    made = attempt(cluster, ROWS[::-1], last=last)
    assert made.omitted == 10
    assert sum(cluster.rows().values()) == 10
    assert len(cluster.notes) == 1


def test_second_attempt_reads_from_the_noted_ends() -> None:
    cluster = Cluster(t=2)
    for number in (0, 0, 1):
        cluster.append(("t", b"other", None, number), (), random.Random(0))
    last = CommitNote(ends=cluster.ends(["t"]))
    attempt(cluster, ROWS, last=last)
    attempt(cluster, ROWS, last=last)
    assert cluster.reads == [("t", 0, 2), ("t", 1, 1)]


def test_topic_that_is_not_noted_is_added_before_its_first_record() -> None:
    cluster = Cluster(t=1, u=1)
    cluster.append(("u", b"other", None, 0), (), random.Random(0))
    rows = [*ROWS[:3], ("u", b"x", None, None), ("new", b"y", None, None)]
    last = CommitNote(ends=cluster.ends(["t"]))
    attempt(cluster, rows, last=last)
    assert [note.starts for note in cluster.notes] == [{}, {"u": {0: 1}, "new": {}}]
    assert attempt(cluster, rows, last=last).omitted == 5
    assert cluster.reads == [("t", 0, 0), ("new", 0, 0), ("new", 1, 0), ("u", 0, 1)]


def test_equal_rows_of_two_tasks_are_both_written() -> None:
    cluster = Cluster(t=1)
    last = CommitNote(ends=cluster.ends(["t"]))
    attempt(cluster, ROWS[:1], last=last)
    other = TASK._replace(task=1)
    assert attempt(cluster, ROWS[:1], task=other, last=last).omitted == 0
    assert sum(cluster.rows().values()) == 2


def test_new_query_writes_all_rows_again() -> None:
    cluster = Cluster(t=1)
    last = CommitNote(ends=cluster.ends(["t"]))
    attempt(cluster, ROWS, last=last)
    attempt(cluster, ROWS, task=TASK._replace(query="other"), last=last)
    assert sum(cluster.rows().values()) == 20


TOPICS = st.sampled_from(["t", "u", "new"])
CONTENT = st.sampled_from([None, b"", b"a", b"b"])
A_ROW = st.tuples(TOPICS, CONTENT, CONTENT, st.sampled_from([None, None, 0, 1]))


@settings(max_examples=300, deadline=None)
@given(
    tasks=st.lists(st.lists(A_ROW, max_size=12), min_size=1, max_size=3),
    kills=st.lists(st.integers(0, 15), max_size=6),
    seed=st.integers(0, 2**32),
)
def test_each_row_is_written_once_after_any_kills(
    tasks: list[list[Row]], kills: list[int], seed: int
) -> None:
    chance = random.Random(seed)
    cluster = Cluster(t=2, u=2)
    last = CommitNote(ends=cluster.ends(["t"]))
    for steps in [*kills, -1]:
        cluster.steps_left = steps
        # Other programs write too, and partitions are added.
        cluster.append(("t", b"other", None, None), (), chance)
        cluster.logs["u"].append([])
        order = list(enumerate(tasks))
        chance.shuffle(order)
        try:
            for number, rows in order:
                shuffled = chance.sample(rows, len(rows))
                task = TASK._replace(task=number)
                attempt(cluster, shuffled, task=task, last=last, chance=chance)
        except Killed:
            continue
    found = cluster.rows()
    del found["t", b"other", None]
    assert found == Counter(row[:3] for rows in tasks for row in rows)
    partitions = Counter(row for rows in tasks for row in rows if row[3] is not None)
    for (topic, value, key, partition), count in partitions.items():
        assert partition is not None
        log = cluster.logs[topic][partition]
        assert sum((one.value, one.key) == (value, key) for one in log) >= count


@settings(max_examples=200, deadline=None)
@given(
    before=st.lists(st.lists(A_ROW, max_size=6), min_size=3, max_size=3),
    steps=st.integers(0, 25),
    seed=st.integers(0, 2**32),
)
def test_no_row_is_lost_when_rows_move_to_other_tasks(
    before: list[list[Row]], steps: int, seed: int
) -> None:
    chance = random.Random(seed)
    cluster = Cluster(t=2, u=2)
    last = CommitNote(ends=cluster.ends(["t"]))
    every = [row for rows in before for row in rows]
    moved = chance.sample(every, len(every))
    cluster.steps_left = steps
    try:
        for number, rows in enumerate(before):
            attempt(cluster, rows, task=TASK._replace(task=number), last=last, chance=chance)
    except Killed:
        pass
    cluster.steps_left = -1
    for number, rows in enumerate([moved[:4], moved[4:]]):
        attempt(cluster, rows, task=TASK._replace(task=number), last=last, chance=chance)
    assert not Counter(row[:3] for row in every) - cluster.rows()


LAST = CommitNote(query="q", batch=3, rows=7, ends={})


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (TaskId("q", 3, 0), True),
        (TaskId("q", 4, 0), False),
        (TaskId("q", 9, 0), False),
        (TaskId("other", 3, 0), False),
        (TaskId("other", 0, 0), False),
    ],
)
def test_batch_is_committed_if_the_note_of_its_query_says_so(task: TaskId, expected: bool) -> None:
    assert is_committed(task, LAST) is expected


def test_first_batch_is_not_committed_by_the_first_note() -> None:
    assert not is_committed(TaskId("q", 0, 0), CommitNote(ends={}))


def test_batch_before_the_committed_one_is_refused() -> None:
    with pytest.raises(DeduplicationError, match="the checkpoint is older than the output"):
        is_committed(TaskId("q", 2, 0), LAST)


def outcomes(*rows: int, batch: int = 4, last_offset: int = 10) -> list[TaskOutcome]:
    return [
        TaskOutcome(
            task=TaskId("q", batch, number),
            rows=count,
            topics=frozenset({f"t{number}"}),
            last_offset=last_offset,
        )
        for number, count in enumerate(rows)
    ]


def test_next_note_has_all_rows_and_topics() -> None:
    done = outcomes(3, 0, 5)
    assert topics_to_note(done, "n", NotedCommit(10, LAST)) == {"t0", "t1", "t2"}
    assert next_note(done, {"t0": {0: 1}}) == CommitNote(
        query="q", batch=4, rows=8, ends={"t0": {0: 1}}
    )


@pytest.mark.parametrize("noted_offset", [10, 12])
def test_repeated_batch_is_not_noted_again(noted_offset: int) -> None:
    done = outcomes(3, 4, batch=3)
    assert topics_to_note(done, "n", NotedCommit(noted_offset, LAST)) is None


def test_repeated_batch_with_other_rows_is_refused() -> None:
    with pytest.raises(DeduplicationError, match="it now has 8 rows, and had 7"):
        topics_to_note(outcomes(3, 5, batch=3), "n", NotedCommit(10, LAST))


def test_second_query_with_the_same_name_is_refused() -> None:
    other = CommitNote(query="other", batch=0, rows=1, ends={})
    with pytest.raises(DeduplicationError, match="query other has written with deduplicate=n"):
        topics_to_note(outcomes(3), "n", NotedCommit(11, other))
