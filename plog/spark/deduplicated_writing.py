"""The steps of a batch that is written without duplicates, over the network.

The driver reads the last note before the batch, the workers write the rows, and the driver writes
the next note. deduplication.py decides what to write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from plog.client.consumer.simple_consumer import SimpleConsumer
from plog.client.faces.blocking import Producer
from plog.client.settings import ConsumerSettings
from plog.client.values import ConsumerRecord
from plog.settings import settings_of
from plog.spark.deduplication import (
    TaskFilter,
    TaskOutcome,
    is_committed,
    next_note,
    topics_to_note,
)
from plog.spark.notes_topic import append_note, last_commit, task_notes
from plog.spark.output_logs import OutputLogs
from plog.spark.record_writing import write_rows
from plog.spark.sink_notes import (
    CommitNote,
    NotedCommit,
    Offsets,
    TaskId,
    TaskNote,
    commit_key,
    encode_commit,
    encode_task,
    merged_starts,
    task_key,
)
from plog.spark.sink_options import SinkOptions
from plog.spark.worker_consumers import keep_consumer, take_consumer
from plog.spark.worker_producers import worker_producer

if TYPE_CHECKING:
    import pyarrow


def read_last_note(options: SinkOptions, name: str) -> NotedCommit:
    """Return the last commit note of `name`; for a new name, write the first one."""
    settings = reading_settings(options.client)
    with OutputLogs(settings) as logs:
        logs.create_notes_topic()
        with _consumer(settings) as consumer:
            found = last_commit(consumer, name)
            if found is not None:
                return found
            first = CommitNote(ends=logs.ends([] if options.topic is None else [options.topic]))
            with worker_producer(options.client) as producer:
                offset = append_note(producer, commit_key(name), encode_commit(first))
            return NotedCommit(offset, first)


def write_task(
    options: SinkOptions,
    name: str,
    task: TaskId,
    last: NotedCommit,
    batches: Iterator[pyarrow.RecordBatch],
) -> TaskOutcome:
    """Write the rows that no earlier attempt of the task has written.

    Raises DeduplicationError and the errors of `write_rows`.
    """
    topics: frozenset[str] = frozenset()
    if is_committed(task, last.note):
        # Spark's operators before the sink save their state when all rows are taken.
        rows = sum(batch.num_rows for batch in batches)
    else:
        settings = reading_settings(options.client)
        with _consumer(settings) as consumer, worker_producer(options.client) as producer:
            log = _ClusterTaskLog(name, task, last.offset, settings, consumer, producer)
            row_filter = TaskFilter(task, last.note, log)
            rows = write_rows(producer, batches, options.topic, row_filter)
            topics = row_filter.topics
    return TaskOutcome(task=task, rows=rows, topics=topics, last_offset=last.offset)


def commit_batch(
    options: SinkOptions, name: str, outcomes: Sequence[TaskOutcome], last: NotedCommit
) -> None:
    """Write the note of a batch whose tasks have succeeded, unless it exists.

    `last` is the last note now. Raises DeduplicationError.
    """
    topics = topics_to_note(outcomes, name, last)
    if topics is None:
        return
    with OutputLogs(reading_settings(options.client)) as logs:
        note = next_note(outcomes, logs.ends(topics))
    with worker_producer(options.client) as producer:
        append_note(producer, commit_key(name), encode_commit(note))


def reading_settings(client: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a producer that a consumer has too."""
    rows = settings_of(ConsumerSettings).values()
    names = {name for row in rows for name in (row.name, *row.aliases)}
    return {name: value for name, value in client.items() if name.replace("_", ".") in names}


@contextmanager
def _consumer(settings: Mapping[str, str]) -> Iterator[SimpleConsumer]:
    """Yield the worker's consumer, and keep it unless an error leaves it in an unknown state."""
    consumer = take_consumer(settings)
    try:
        yield consumer
    except BaseException:
        consumer.close()
        raise
    keep_consumer(settings, consumer)


class _ClusterTaskLog:
    """The notes and the output of one attempt of a task; see `TaskLog`."""

    def __init__(
        self,
        name: str,
        task: TaskId,
        last_offset: int,
        settings: Mapping[str, str],
        consumer: SimpleConsumer,
        producer: Producer,
    ) -> None:
        self._name = name
        self._task = task
        self._last_offset = last_offset
        self._settings = settings
        self._consumer = consumer
        self._producer = producer

    def earlier_starts(self) -> Offsets | None:
        return merged_starts(task_notes(self._consumer, self._name, self._task, self._last_offset))

    def ends(self, topics: Sequence[str]) -> Offsets:
        with OutputLogs(self._settings) as logs:
            return logs.ends(topics)

    def append_note(self, starts: Offsets) -> None:
        note = TaskNote(task=self._task, starts=starts)
        append_note(self._producer, task_key(self._name, self._task.task), encode_task(note))

    def records(self, starts: Offsets) -> Iterable[ConsumerRecord]:
        with OutputLogs(self._settings) as logs:
            ranges = logs.unread(starts)
        for partition, (start, end) in ranges.items():
            yield from self._consumer.records(partition, start, end)
