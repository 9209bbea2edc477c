"""Read the notes of a name from the topic ``_plog_spark``, and append to it.

Streams with other names write to the same partition. So the last commit note of a name is searched
from the end, in ranges that grow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from plog.client.consumer.simple_consumer import SimpleConsumer
from plog.client.faces.blocking import Producer
from plog.spark.sink.sink_notes import (
    NOTES_TOPIC,
    NameNotes,
    NotedCommit,
    TaskNote,
    commit_key,
    decode_commit,
    decode_task,
    starts_by_batch,
    task_of_key,
)
from plog.types import TopicPartition

_PARTITION: Final = TopicPartition(NOTES_TOPIC, 0)
# The ranges grow, so that an old note is found in a few lookups, and a recent one in a short range.
_FIRST_RANGE: Final = 500
_GROWTH: Final = 4


def notes_of_name(consumer: SimpleConsumer, name: str) -> NameNotes | None:
    """Return the notes of `name`, or None if it has no commit note. Raises NoteError."""
    key = commit_key(name)
    start = consumer.beginning_offsets([_PARTITION])[_PARTITION]
    topic_end = end = consumer.end_offsets([_PARTITION])[_PARTITION]
    size = _FIRST_RANGE
    later: list[TaskNote] = []
    while end > start:
        middle = max(start, end - size)
        commit = None
        tasks: list[TaskNote] = []
        for record in consumer.records(_PARTITION, middle, end):
            task = task_of_key(name, record.key)
            if record.key == key:
                # The batches of earlier task notes are complete.
                commit, tasks = record, []
            elif task is not None:
                tasks.append(decode_task(task, record.value))
        # The ranges are read from the end, so the notes of this one are older.
        later = tasks + later
        if commit is not None:
            last = NotedCommit(commit.offset, decode_commit(commit.value))
            return NameNotes(last=last, starts=starts_by_batch(later), end_offset=topic_end)
        end, size = middle, size * _GROWTH
    return None


def task_notes(
    consumer: SimpleConsumer, name: str, task: int, start_offset: int
) -> Iterator[TaskNote]:
    """Return the notes of a task from an offset on."""
    end = consumer.end_offsets([_PARTITION])[_PARTITION]
    for record in consumer.records(_PARTITION, start_offset, end):
        if task_of_key(name, record.key) == task:
            yield decode_task(task, record.value)


def append_note(producer: Producer, key: bytes, value: bytes) -> int:
    """Write a note, wait until all in-sync replicas have it, and return its offset."""
    sent = producer.send(NOTES_TOPIC, value, key, partition=0)
    # Without this, the note would wait for `linger.ms`.
    producer.flush()
    return sent.result().offset
