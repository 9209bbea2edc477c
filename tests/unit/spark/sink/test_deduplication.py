"""Each row is written once, wherever the attempts and the driver are interrupted."""

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
from plog.spark.sink.deduplication import (
    BatchPlan,
    DeduplicationError,
    TaskAttempt,
    TaskFilter,
    TaskOutcome,
    copies,
    is_committed,
    missing_rows,
    needs_commit,
    next_note,
    topics_of,
)
from plog.spark.sink.record_marks import BatchId, TopicMarks
from plog.spark.sink.sink_notes import (
    CommitNote,
    NameNotes,
    NotedCommit,
    Offsets,
    TaskNote,
    starts_by_batch,
)

Row = tuple[str, bytes | None, bytes | None, int | None]
"""Topic, value, key and partition."""

BATCH = BatchId("q", 3)


class Cluster:
    """Topics, and the notes of one name; a topic appears with its first record."""

    def __init__(self, seed: int = 0, **topics: int) -> None:
        self.chance = random.Random(seed)
        self.logs: dict[str, list[list[ConsumerRecord]]] = {
            topic: [[] for _ in range(count)] for topic, count in topics.items()
        }
        self.notes: list[TaskNote] = []
        self.reads: list[tuple[str, int, int]] = []
        self.last = NotedCommit(0, CommitNote(ends=self.ends(topics)))

    def ends(self, topics: Iterable[str]) -> Offsets:
        return {
            topic: {number: len(log) for number, log in enumerate(self.logs.get(topic, []))}
            for topic in topics
        }

    def append(self, row: Row, headers: Sequence[Header] = ()) -> None:
        topic, value, key, partition = row
        logs = self.logs.setdefault(topic, [[], []])
        # Even with a key, another partition may be chosen: the number of partitions grows.
        number = self.chance.randrange(len(logs)) if partition is None else partition
        kind = TimestampType.CREATE_TIME
        logs[number].append(
            ConsumerRecord(topic, number, len(logs[number]), 0, kind, key, value, headers, 0)
        )

    def records(self, starts: Offsets) -> Iterator[ConsumerRecord]:
        for topic, of_topic in starts.items():
            for number, log in enumerate(self.logs.get(topic, [])):
                start = of_topic.get(number, 0)
                self.reads.append((topic, number, start))
                yield from log[start:]

    def plan(self, run: str) -> BatchPlan:
        starts = starts_by_batch(self.notes)
        return BatchPlan(
            run=run,
            notes=NameNotes(last=self.last, starts=starts, end_offset=len(self.notes)),
        )

    def rows(self) -> Counter[tuple[str, bytes | None, bytes | None]]:
        records = (one for logs in self.logs.values() for log in logs for one in log)
        return Counter((one.topic, one.value, one.key) for one in records)


class Attempt:
    """An attempt of a task, which is the `TaskLog` of its filter, too."""

    def __init__(
        self, cluster: Cluster, plan: BatchPlan, task: int, batch: BatchId = BATCH
    ) -> None:
        self.cluster = cluster
        self.plan = plan
        self.made = TaskAttempt(
            batch=batch, task=task, attempt=cluster.chance.getrandbits(64).to_bytes(8)
        )
        self.filter = TaskFilter(self.made, plan, self)
        self.buffered: list[tuple[Row, Sequence[Header]]] = []

    def notes_of_run(self) -> list[TaskNote]:
        notes = self.cluster.notes[self.plan.notes.end_offset :]
        return [one for one in notes if (one.run, one.task) == (self.plan.run, self.made.task)]

    def ends(self, topics: Sequence[str]) -> Offsets:
        return self.cluster.ends(topics)

    def append_note(self, starts: Offsets) -> None:
        copy = {topic: dict(offsets) for topic, offsets in starts.items()}
        self.cluster.notes.append(
            TaskNote(
                batch=self.made.batch,
                run=self.plan.run,
                task=self.made.task,
                attempt=self.made.attempt,
                starts=copy,
            )
        )

    def records(self, starts: Offsets) -> Iterator[ConsumerRecord]:
        return self.cluster.records(starts)

    def steps(self, rows: Sequence[Row], batch_size: int = 3) -> Iterator[None]:
        """Write the rows in batches; the attempt may be killed after each step."""
        for start in range(0, len(rows), batch_size):
            batch = rows[start : start + batch_size]
            self.filter.prepare({row[0] for row in batch})
            yield
            for row in batch:
                topic, value, key, partition = row
                headers = self.filter.headers_to_write(topic, value, key, partition, ())
                if headers is not None:
                    self.buffered.append((row, headers))
            yield
        self.flush()

    def flush(self, share: float = 1) -> None:
        """Append the buffered rows, or a share of them, as if the worker was killed."""
        for row, headers in self.buffered:
            if self.cluster.chance.random() < share:
                self.cluster.append(row, headers)
        self.buffered.clear()

    def run(self, rows: Sequence[Row]) -> TaskOutcome:
        for _ in self.steps(rows):
            pass
        return self.filter.outcome(len(rows))


def complete(cluster: Cluster, outcomes: Sequence[TaskOutcome]) -> Iterator[None]:
    """Write what the tasks have left, as the driver does; it may be killed after each step."""
    batch = outcomes[0].attempt.batch
    starts = starts_by_batch(cluster.notes).get(batch, {}) | cluster.last.note.ends
    missing = missing_rows(outcomes, cluster.records(starts))
    attempt = cluster.chance.getrandbits(64).to_bytes(8)
    for record, partition, count in list(copies(batch, missing, cluster.records(starts))):
        headers = TopicMarks(batch, record.topic).headers(attempt)[partition is not None]
        for _ in range(count):
            yield
            cluster.append((record.topic, record.value, record.key, partition), headers)
    yield


ROWS: list[Row] = [("t", b"%d" % (number // 2), None, None) for number in range(10)]


def test_first_attempt_writes_a_note_and_reads_no_output() -> None:
    cluster = Cluster(t=2)
    attempt = Attempt(cluster, cluster.plan("run"), 5)
    outcome = attempt.run(ROWS)
    assert sum(cluster.rows().values()) == 10
    [note] = cluster.notes
    assert (note.batch, note.run, note.task, note.starts) == (BATCH, "run", 5, {})
    assert cluster.reads == []
    assert (outcome.rows, set(outcome.topics), outcome.left) == (10, {"t"}, b"")


def test_attempt_without_rows_writes_no_note() -> None:
    cluster = Cluster(t=1)
    outcome = Attempt(cluster, cluster.plan("run"), 0).run([])
    assert cluster.notes == []
    assert outcome.topics == frozenset()


@pytest.mark.parametrize("run", ["run", "next run"])
def test_second_attempt_leaves_all_rows_that_it_finds(run: str) -> None:
    cluster = Cluster(t=2)
    plan = cluster.plan("run")
    Attempt(cluster, plan, 0).run(ROWS)
    outcome = Attempt(cluster, plan if run == "run" else cluster.plan(run), 0).run(ROWS[::-1])
    assert len(outcome.left) == 160
    assert list(complete(cluster, [outcome])) == [None]
    assert sum(cluster.rows().values()) == 10


def test_driver_writes_the_equal_rows_that_are_missing() -> None:
    cluster = Cluster(t=2)
    Attempt(cluster, cluster.plan("run"), 0).run(ROWS[:1])
    plan = cluster.plan("next run")
    # Equal rows are in two tasks, and only one of them was written.
    outcomes = [Attempt(cluster, plan, task).run(ROWS[:2]) for task in range(2)]
    assert sum(cluster.rows().values()) == 1
    assert len(list(complete(cluster, outcomes))) == 4
    assert sum(cluster.rows().values()) == 4


def test_second_attempt_reads_from_the_noted_ends() -> None:
    cluster = Cluster(t=2)
    for number in (0, 0, 1):
        cluster.append(("t", b"other", None, number))
    cluster.last = NotedCommit(0, CommitNote(ends=cluster.ends(["t"])))
    plan = cluster.plan("run")
    Attempt(cluster, plan, 0).run(ROWS)
    Attempt(cluster, plan, 0).run(ROWS)
    assert cluster.reads == [("t", 0, 2), ("t", 1, 1)]


def test_other_tasks_of_the_same_run_are_no_reason_to_read() -> None:
    cluster = Cluster(t=2)
    plan = cluster.plan("run")
    outcomes = [Attempt(cluster, plan, task).run(ROWS) for task in range(3)]
    assert cluster.reads == []
    assert all(outcome.left == b"" for outcome in outcomes)


def test_topic_that_is_not_noted_is_added_before_its_first_record() -> None:
    cluster = Cluster(t=1, u=1)
    cluster.append(("u", b"other", None, 0))
    cluster.last = NotedCommit(0, CommitNote(ends=cluster.ends(["t"])))
    rows: list[Row] = [*ROWS[:3], ("u", b"x", None, None), ("new", b"y", None, None)]
    Attempt(cluster, cluster.plan("run"), 0).run(rows)
    assert [note.starts for note in cluster.notes] == [{}, {"u": {0: 1}, "new": {}}]
    outcome = Attempt(cluster, cluster.plan("next run"), 0).run(rows)
    assert len(outcome.left) == 80
    assert cluster.reads == [("t", 0, 0), ("new", 0, 0), ("new", 1, 0), ("u", 0, 1)]
    # Compaction keeps only the last note of a task.
    assert cluster.notes[-1].starts == {"u": {0: 1}, "new": {}}


def test_new_query_writes_all_rows_again() -> None:
    cluster = Cluster(t=1)
    Attempt(cluster, cluster.plan("run"), 0).run(ROWS)
    other = BatchId("other", BATCH.batch)
    Attempt(cluster, cluster.plan("next run"), 0, other).run(ROWS)
    assert sum(cluster.rows().values()) == 20


def test_equal_records_that_were_deleted_are_an_error() -> None:
    cluster = Cluster(t=1)
    Attempt(cluster, cluster.plan("run"), 0).run(ROWS[:1])
    plan = cluster.plan("next run")
    outcomes = [Attempt(cluster, plan, task).run(ROWS[:1]) for task in range(2)]
    cluster.logs["t"][0].clear()
    with pytest.raises(DeduplicationError, match="2 rows of batch 3 of query q: equal records"):
        list(complete(cluster, outcomes))


TOPICS = st.sampled_from(["t", "u", "new"])
CONTENT = st.sampled_from([None, b"", b"a", b"b"])
A_ROW = st.tuples(TOPICS, CONTENT, CONTENT, st.sampled_from([None, None, 0, 1]))


def execute(cluster: Cluster, rows: Sequence[Row], run: str, risk: float) -> bool:
    """Execute the batch; return whether it was committed. Workers and the driver may be killed."""
    chance = cluster.chance
    plan = cluster.plan(run)
    count = chance.randrange(1, 5)
    tasks: list[list[Row]] = [[] for _ in range(count)]
    for row in rows:
        chance.choice(tasks).append(row)
    outcomes: list[TaskOutcome | None] = [None] * count

    def start(task: int) -> tuple[Attempt, Iterator[None], int]:
        attempt = Attempt(cluster, plan, task)
        # A shuffle may change the order of rows.
        shuffled = chance.sample(tasks[task], len(tasks[task]))
        return attempt, attempt.steps(shuffled), len(shuffled)

    running = {task: start(task) for task in range(count)}
    while running:
        task = chance.choice(list(running))
        attempt, steps, size = running[task]
        if next(steps, "end") == "end":
            outcomes[task] = attempt.filter.outcome(size)
            del running[task]
        elif chance.random() < risk:
            attempt.flush(chance.random())
            running[task] = start(task)
        if chance.random() < risk / 2:
            for attempt, _, _ in running.values():
                attempt.flush(chance.random())
            return False
    done = [outcome for outcome in outcomes if outcome is not None]
    return all(chance.random() >= risk for _ in complete(cluster, done))


@settings(max_examples=600, deadline=None)
@given(
    rows=st.lists(A_ROW, max_size=25),
    risks=st.lists(st.sampled_from([0.05, 0.2, 0.5]), max_size=5),
    seed=st.integers(0, 2**32),
)
def test_each_row_is_written_once_after_any_kills(
    rows: list[Row], risks: list[float], seed: int
) -> None:
    """Each execution of the batch distributes its rows to other tasks, and in another order."""
    cluster = Cluster(seed, t=2, u=2)
    cluster.last = NotedCommit(0, CommitNote(ends=cluster.ends(["t"])))
    others = 0
    for number, risk in enumerate([*risks, 0]):
        # Other programs write too, and partitions are added.
        cluster.append(("t", b"other", None, None))
        cluster.logs["u"].append([])
        others += 1
        if execute(cluster, rows, f"run {number}", risk):
            break
    found = cluster.rows()
    assert found.pop(("t", b"other", None)) == others
    assert found == Counter(row[:3] for row in rows)
    for topic, value, key, partition in rows:
        if partition is not None:
            log = cluster.logs[topic][partition]
            wanted = rows.count((topic, value, key, partition))
            assert sum((one.value, one.key) == (value, key) for one in log) >= wanted


LAST = CommitNote(batch=BATCH, rows=7, ends={})


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (BatchId("q", 3), True),
        (BatchId("q", 4), False),
        (BatchId("q", 9), False),
        (BatchId("other", 3), False),
        (BatchId("other", 0), False),
    ],
)
def test_batch_is_committed_if_the_note_of_its_query_says_so(
    batch: BatchId, expected: bool
) -> None:
    assert is_committed(batch, LAST) is expected


def test_first_batch_is_not_committed_by_the_first_note() -> None:
    assert not is_committed(BatchId("q", 0), CommitNote(ends={}))


def test_batch_before_the_committed_one_is_refused() -> None:
    with pytest.raises(DeduplicationError, match="the checkpoint is older than the output"):
        is_committed(BatchId("q", 2), LAST)


def outcomes_of(*rows: int, batch: int = 4, last_offset: int = 10) -> list[TaskOutcome]:
    return [
        TaskOutcome(
            attempt=TaskAttempt(batch=BatchId("q", batch), task=number, attempt=bytes(8)),
            rows=count,
            topics=frozenset({f"t{number}"}),
            left=b"",
            last_offset=last_offset,
        )
        for number, count in enumerate(rows)
    ]


def test_next_note_has_all_rows_and_topics() -> None:
    done = outcomes_of(3, 0, 5)
    assert needs_commit(done, "n", NotedCommit(10, LAST))
    assert topics_of(done) == {"t0", "t1", "t2"}
    expected = CommitNote(batch=BatchId("q", 4), rows=8, ends={"t0": {0: 1}})
    assert next_note(done, {"t0": {0: 1}}) == expected


@pytest.mark.parametrize("noted_offset", [10, 12])
def test_repeated_batch_is_not_noted_again(noted_offset: int) -> None:
    assert not needs_commit(outcomes_of(3, 4, batch=3), "n", NotedCommit(noted_offset, LAST))


def test_repeated_batch_with_other_rows_is_refused() -> None:
    with pytest.raises(DeduplicationError, match="it now has 8 rows, and had 7"):
        needs_commit(outcomes_of(3, 5, batch=3), "n", NotedCommit(10, LAST))


@pytest.mark.parametrize("batch", [None, BatchId("other", 0)])
def test_second_query_with_the_same_name_is_refused(batch: BatchId | None) -> None:
    noted = NotedCommit(11, CommitNote(batch=batch, rows=1, ends={}))
    with pytest.raises(DeduplicationError, match="has written with deduplicate=n"):
        needs_commit(outcomes_of(3), "n", noted)
