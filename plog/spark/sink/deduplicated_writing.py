"""The steps of a batch that is written without duplicates, over the network.

The driver reads the notes before the batch, the workers write the rows, and the driver completes
the batch and writes the next note. deduplication.py decides what to write.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from plog.client.consumer.simple_consumer import SimpleConsumer
from plog.client.faces.blocking import Producer
from plog.client.faces.blocking.bulk_sender import BulkSender
from plog.client.settings import ConsumerSettings
from plog.client.values import ConsumerRecord
from plog.settings import settings_of
from plog.spark.options.sink_options import SinkOptions
from plog.spark.reader.worker_consumers import keep_consumer, take_consumer
from plog.spark.sink.deduplication import (
    BatchPlan,
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
from plog.spark.sink.notes_topic import append_note, notes_of_name, task_notes
from plog.spark.sink.output_logs import OutputLogs
from plog.spark.sink.record_marks import ATTEMPT_BYTES, BatchId, TopicMarks, without_mark
from plog.spark.sink.record_writing import write_rows
from plog.spark.sink.sink_notes import (
    CommitNote,
    NameNotes,
    NotedCommit,
    Offsets,
    TaskNote,
    commit_key,
    encode_commit,
    encode_task,
    task_key,
)
from plog.spark.sink.worker_producers import worker_producer

if TYPE_CHECKING:
    import pyarrow


def read_notes(options: SinkOptions, name: str) -> NameNotes:
    """Return the notes of `name`; for a new name, write the first one."""
    settings = reading_settings(options.client)
    with OutputLogs(settings) as logs:
        logs.create_notes_topic()
        with _consumer(settings) as consumer:
            found = notes_of_name(consumer, name)
        if found is not None:
            return found
        # Without a commit note, a repetition of the first batch could not tell where its records
        # start.
        first = CommitNote(ends=logs.ends([] if options.topic is None else [options.topic]))
    with worker_producer(options.client) as producer:
        offset = append_note(producer, commit_key(name), encode_commit(first))
    # The task notes of this execution follow the first note.
    return NameNotes(last=NotedCommit(offset, first), starts={}, end_offset=offset + 1)


def write_task(
    options: SinkOptions,
    name: str,
    batch: BatchId,
    task: int,
    plan: BatchPlan,
    batches: Iterator[pyarrow.RecordBatch],
) -> TaskOutcome:
    """Write the rows that no earlier attempt has written.

    Raises DeduplicationError and the errors of `write_rows`.
    """
    # The attempts of all executions of a batch need different ids, and Spark's numbers repeat.
    attempt = TaskAttempt(batch=batch, task=task, attempt=secrets.token_bytes(ATTEMPT_BYTES))
    settings = reading_settings(options.client)
    if is_committed(batch, plan.notes.last.note):
        # Spark's operators before the sink save their state when all rows are taken.
        rows = sum(batch.num_rows for batch in batches)
        return TaskOutcome(
            attempt=attempt,
            rows=rows,
            topics=frozenset(),
            left=b"",
            last_offset=plan.notes.last.offset,
        )
    with _consumer(settings) as consumer, worker_producer(options.client) as producer:
        log = _ClusterTaskLog(name, attempt, plan, settings, consumer, producer)
        row_filter = TaskFilter(attempt, plan, log)
        rows = write_rows(BulkSender(producer), batches, options.topic, row_filter)
    return row_filter.outcome(rows)


def commit_batch(
    options: SinkOptions, name: str, outcomes: Sequence[TaskOutcome], notes: NameNotes
) -> None:
    """Complete a batch whose tasks have succeeded, and write its note, unless it exists.

    `notes` are those of `name` now. Raises DeduplicationError.
    """
    if not needs_commit(outcomes, name, notes.last):
        return
    topics = topics_of(outcomes)
    if any(outcome.left for outcome in outcomes):
        # Task notes have only the topics that the commit note lacks.
        starts = notes.starts.get(outcomes[0].attempt.batch, {}) | notes.last.note.ends
        _complete(options, outcomes, {topic: starts[topic] for topic in topics if topic in starts})
    with OutputLogs(reading_settings(options.client)) as logs:
        # The ends are looked up after the missing rows were written, so that the next batch does
        # not read these rows.
        note = next_note(outcomes, logs.ends(topics))
    with worker_producer(options.client) as producer:
        append_note(producer, commit_key(name), encode_commit(note))


def _complete(options: SinkOptions, outcomes: Sequence[TaskOutcome], starts: Offsets) -> None:
    """Write the rows that the tasks have left to the driver and that are missing."""
    settings = reading_settings(options.client)
    batch = outcomes[0].attempt.batch
    with _consumer(settings) as consumer:
        missing = missing_rows(outcomes, _records(settings, consumer, starts))
        if not missing:
            return
        # These records are marked, too. If the driver fails now, the next execution finds them.
        attempt = secrets.token_bytes(ATTEMPT_BYTES)
        sent = []
        with worker_producer(options.client) as producer:
            # The records are read a second time, because those of a large batch do not fit into
            # memory.
            found = _records(settings, consumer, starts)
            for record, partition, count in copies(batch, missing, found):
                marks = TopicMarks(batch, record.topic).headers(attempt)
                headers = (*without_mark(record.headers), *marks[partition is not None])
                for _ in range(count):
                    sent.append(
                        producer.send(
                            record.topic,
                            record.value,
                            record.key,
                            partition=partition,
                            headers=headers,
                        )
                    )
            producer.flush()
            for one in sent:
                # It raises the error of a record that was not delivered.
                one.result()


def reading_settings(client: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a producer that a consumer has too."""
    # A consumer would warn about settings that only a producer has, such as acks.
    rows = settings_of(ConsumerSettings).values()
    names = {name for row in rows for name in (row.name, *row.aliases)}
    return {name: value for name, value in client.items() if name.replace("_", ".") in names}


def _records(
    settings: Mapping[str, str], consumer: SimpleConsumer, starts: Offsets
) -> Iterator[ConsumerRecord]:
    with OutputLogs(settings) as logs:
        ranges = logs.unread(starts)
    for partition, (start, end) in ranges.items():
        yield from consumer.records(partition, start, end)


@contextmanager
def _consumer(settings: Mapping[str, str]) -> Iterator[SimpleConsumer]:
    """Yield the worker's consumer, and keep it unless an error leaves it in an unknown state."""
    consumer = take_consumer(settings)
    try:
        yield consumer
    # A response to the interrupted request may still arrive, whatever interrupted it.
    except BaseException:
        consumer.close()
        raise
    keep_consumer(settings, consumer)


class _ClusterTaskLog:
    """The notes and the output of one attempt of a task; see `TaskLog`."""

    def __init__(
        self,
        name: str,
        attempt: TaskAttempt,
        plan: BatchPlan,
        settings: Mapping[str, str],
        consumer: SimpleConsumer,
        producer: Producer,
    ) -> None:
        self._name = name
        self._attempt = attempt
        self._plan = plan
        self._settings = settings
        self._consumer = consumer
        self._producer = producer

    def notes_of_run(self) -> Iterable[TaskNote]:
        task, plan = self._attempt.task, self._plan
        # The driver has read the notes of earlier executions, which are in the plan.
        notes = task_notes(self._consumer, self._name, task, plan.notes.end_offset)
        return [note for note in notes if note.run == plan.run]

    def ends(self, topics: Sequence[str]) -> Offsets:
        with OutputLogs(self._settings) as logs:
            return logs.ends(topics)

    def append_note(self, starts: Offsets) -> None:
        note = TaskNote(
            batch=self._attempt.batch,
            run=self._plan.run,
            task=self._attempt.task,
            attempt=self._attempt.attempt,
            starts=starts,
        )
        append_note(self._producer, task_key(self._name, note.task), encode_task(note))

    def records(self, starts: Offsets) -> Iterable[ConsumerRecord]:
        return _records(self._settings, self._consumer, starts)
