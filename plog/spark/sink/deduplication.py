"""Decide which rows of a stream to write, so that each row is written once. Pure.

1. An attempt of a task leaves a note before its first record, and a mark in each record.
2. If a batch or a task is repeated, an attempt reads the marked records of the batch from the ends
   in the last commit note on. It writes a row that it does not find. A row that it finds, it leaves
   to the driver, and returns the digest of the row.
3. Before the driver notes that the batch is written, it compares: the rows that were left to it,
   with the records of all attempts but the successful ones. It writes the rows that are missing.

Why the driver decides: equal rows may be in several tasks. If an earlier execution of the batch has
written one of them, a task cannot know whose row that was. The rows may even be distributed to
other tasks than before: Spark's Kafka source numbers its tasks differently after a restart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from plog.client.values import ConsumerRecord
from plog.error_base import PlogError
from plog.records.codec import Header
from plog.spark.sink.record_marks import (
    DIGEST_BYTES,
    BatchId,
    TopicMarks,
    WrittenRow,
    row_digest,
    without_mark,
)
from plog.spark.sink.sink_notes import (
    NOTES_TOPIC,
    CommitNote,
    NameNotes,
    NotedCommit,
    Offsets,
    TaskNote,
    merged_starts,
)


class DeduplicationError(PlogError):
    """Rows cannot be written without the risk of losing or repeating some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """What the driver tells the tasks of one execution of a batch, whose id is `run`.

    `notes` are those before this execution.
    """

    run: str
    notes: NameNotes


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAttempt:
    """An attempt of a task; `attempt` is random."""

    batch: BatchId
    task: int
    attempt: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutcome:
    """A successful task: its rows, including those that it left to the driver, and their topics.

    `left` concatenates the digests of the rows that it left. `last_offset` is the
    offset of the commit note that the task used.
    """

    attempt: TaskAttempt
    rows: int
    topics: frozenset[str]
    # Not a list, because the outcome travels to the driver, with 16 bytes per row.
    left: bytes
    last_offset: int


class TaskLog(Protocol):
    """The notes and the output of a task, in the cluster."""

    def notes_of_run(self) -> Iterable[TaskNote]:
        """Return the notes of earlier attempts of this task in this execution of the batch."""
        ...

    def ends(self, topics: Sequence[str]) -> Offsets:
        """Return the ends of the partitions of each topic; none for a missing topic."""
        ...

    def append_note(self, starts: Offsets) -> None:
        """Write a task note, and wait until it is safe."""
        ...

    def records(self, starts: Offsets) -> Iterable[ConsumerRecord]:
        """Return all records of the topics from `starts` on, of all partitions that exist now."""
        ...


class TaskFilter:
    """Marks the rows of one attempt of a task, and leaves those that it finds to the driver."""

    def __init__(self, attempt: TaskAttempt, plan: BatchPlan, log: TaskLog) -> None:
        self._attempt = attempt
        self._plan = plan
        self._log = log
        self._headers: dict[str, tuple[tuple[Header], tuple[Header]]] = {}
        self._starts: Offsets | None = None
        """The starts to note; None until the first row."""
        self._earlier: frozenset[bytes] | None = frozenset()
        """The attempts whose records matter, or None for all."""
        # A set is enough, because the driver counts equal rows.
        self._found: set[bytes] = set()
        self._left: list[bytes] = []

    def outcome(self, rows: int) -> TaskOutcome:
        """Return the outcome of the task, which has taken `rows` rows."""
        return TaskOutcome(
            attempt=self._attempt,
            rows=rows,
            topics=frozenset(self._headers),
            left=b"".join(self._left),
            last_offset=self._plan.notes.last.offset,
        )

    def prepare(self, topics: Iterable[str]) -> None:
        """Make ready for rows of `topics`: write a note, and find the records of the batch.

        It must return before a row of a new topic is written.
        """
        new = sorted(set(topics) - self._headers.keys())
        if not new:
            return
        # The first row begins the attempt, so that a task without rows writes no note.
        is_first = self._starts is None
        if self._starts is None:
            self._starts = self._begin()
        unknown = [
            name
            for name in new
            if name not in self._starts and name not in self._plan.notes.last.note.ends
        ]
        # Topics without a note are new to the batch, so they contain none of its records.
        known = self._starts | self._plan.notes.last.note.ends
        if unknown:
            self._starts |= self._log.ends(unknown)
        # A note has all starts, because compaction keeps only the last one.
        if unknown or is_first:
            self._log.append_note(self._starts)
        self._find({name: known[name] for name in new if name in known})
        for name in new:
            self._headers[name] = TopicMarks(self._attempt.batch, name).headers(
                self._attempt.attempt
            )

    def headers_to_write(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        headers: Sequence[Header],
    ) -> Sequence[Header] | None:
        """Return the headers of a row with the mark, or None to leave the row to the driver."""
        mark = self._headers[topic][partition is not None]
        # The usual row.
        if not headers and not self._found:
            return mark
        headers = without_mark(headers)
        # Computing a digest takes time, and most tasks repeat nothing.
        if self._found:
            digest = row_digest(topic, key, value, headers, partition)
            if digest in self._found:
                self._left.append(digest)
                return None
        return (*headers, *mark)

    def _begin(self) -> Offsets:
        """Find out whether earlier attempts may have written; return the starts of their topics."""
        # Spark's number of the attempt does not tell whether there were earlier ones: it starts at
        # 0 again when Spark repeats a stage or a batch.
        notes = list(self._log.notes_of_run())
        starts = [note.starts for note in notes]
        self._earlier = frozenset(note.attempt for note in notes)
        of_earlier_runs = self._plan.notes.starts.get(self._attempt.batch)
        if of_earlier_runs is not None:
            starts.append(of_earlier_runs)
            # An earlier execution may have distributed the rows to other tasks, so the attempts of
            # all tasks matter.
            self._earlier = None
        return merged_starts(starts)

    def _find(self, starts: Offsets) -> None:
        """Remember the rows of the batch in these topics."""
        # The first attempt of the first execution need not read the output.
        if not starts or (self._earlier is not None and not self._earlier):
            return
        for row in rows_of_batch(self._attempt.batch, self._log.records(starts)):
            if self._earlier is None or row.attempt in self._earlier:
                self._found.add(row.digest)


def rows_of_batch(batch: BatchId, records: Iterable[ConsumerRecord]) -> Iterator[WrittenRow]:
    """Return the rows of a batch among `records`."""
    return (row for row, _ in _marked(batch, records))


def missing_rows(
    outcomes: Sequence[TaskOutcome], records: Iterable[ConsumerRecord]
) -> Counter[bytes]:
    """Return digests of rows that were left to the driver, and how many of each are missing.

    `records` are all that may belong to the batch.
    """
    missing: Counter[bytes] = Counter()
    for outcome in outcomes:
        starts = range(0, len(outcome.left), DIGEST_BYTES)
        missing.update(outcome.left[start : start + DIGEST_BYTES] for start in starts)
    if not missing:
        return missing
    # Rows that these attempts wrote were not left to the driver.
    successful = {outcome.attempt.attempt for outcome in outcomes}
    for row in rows_of_batch(outcomes[0].attempt.batch, records):
        if row.attempt not in successful and row.digest in missing:
            missing[row.digest] -= 1
    # Without those of which there are too many.
    return +missing


def copies(
    batch: BatchId, missing: Mapping[bytes, int], records: Iterable[ConsumerRecord]
) -> Iterator[tuple[ConsumerRecord, int | None, int]]:
    """Yield a record for each missing row, with the partition that the row names, and the number.

    Raises DeduplicationError if there is no such record any more.
    """
    left = dict(missing)
    for row, record in _marked(batch, records):
        # One record of equal ones is enough: `count` is the number of copies.
        count = left.pop(row.digest, 0)
        if count:
            yield record, row.partition, count
    if left:
        raise DeduplicationError(
            f"cannot write {sum(left.values())} rows of batch {batch.batch} of query"
            f" {batch.query}: equal records existed when the batch was repeated, and have been"
            " deleted since, by retention or compaction; restart the query"
        )


def _marked(
    batch: BatchId, records: Iterable[ConsumerRecord]
) -> Iterator[tuple[WrittenRow, ConsumerRecord]]:
    # A mark differs by topic, and its hash is computed once for all records of a topic.
    marks: dict[str, TopicMarks] = {}
    for record in records:
        of_topic = marks.get(record.topic)
        if of_topic is None:
            of_topic = marks[record.topic] = TopicMarks(batch, record.topic)
        row = of_topic.row(record)
        if row is not None:
            yield row, record


def is_committed(batch: BatchId, last: CommitNote) -> bool:
    """Return whether `batch` is the last committed one, so that nothing is to write.

    Raises DeduplicationError if a later batch was committed. The rows of `batch` may then be others
    than those of the committed batch with its number.
    """
    noted = last.batch
    # Each query numbers its batches from 0, so numbers of different queries are not comparable.
    if noted is None or noted.query != batch.query or noted.batch < batch.batch:
        return False
    if noted.batch > batch.batch:
        raise DeduplicationError(
            f"cannot write {_named(batch)}: {NOTES_TOPIC} shows that batch {noted.batch} is"
            " written, so the checkpoint is older than the output; restore the newer checkpoint, or"
            " set another name as deduplicate to write the rows again"
        )
    return True


def needs_commit(outcomes: Sequence[TaskOutcome], name: str, last: NotedCommit) -> bool:
    """Return whether a batch whose tasks have succeeded is not noted yet.

    `last` is the last commit note of `name` now. Raises DeduplicationError if another query has
    written in the meantime, or if the batch had other rows when it was committed.
    """
    batch = outcomes[0].attempt.batch
    rows = sum(outcome.rows for outcome in outcomes)
    # Spark repeats a batch whose note was written if the driver was killed before Spark's own
    # commit.
    if last.note.batch == batch:
        if last.note.rows != rows:
            raise DeduplicationError(
                f"cannot commit {_named(batch)}: it now has {rows} rows, and had {last.note.rows}"
                " when it was written, because an older checkpoint was restored, or because the"
                " query does not return the same rows again; restore the newer checkpoint, or set"
                f" a different name than {name} as deduplicate to write the rows again"
            )
        return False
    if any(outcome.last_offset != last.offset for outcome in outcomes):
        query = "another query" if last.note.batch is None else f"query {last.note.batch.query}"
        raise DeduplicationError(
            f"cannot commit {_named(batch)}: {query} has written with deduplicate={name} in the"
            " meantime; use a different name for each query"
        )
    return True


def topics_of(outcomes: Sequence[TaskOutcome]) -> frozenset[str]:
    """Return the topics of a batch."""
    return frozenset().union(*(outcome.topics for outcome in outcomes))


def next_note(outcomes: Sequence[TaskOutcome], ends: Offsets) -> CommitNote:
    """Return the commit note of a batch whose tasks have succeeded."""
    rows = sum(outcome.rows for outcome in outcomes)
    return CommitNote(batch=outcomes[0].attempt.batch, rows=rows, ends=ends)


def _named(batch: BatchId) -> str:
    return f"batch {batch.batch} of query {batch.query}"
