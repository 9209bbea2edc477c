"""Read the notes of a name from the topic ``_plog_spark``, and append to it.

Streams with other names write to the same partition. So the last commit note of a name is searched
from the end, in ranges that grow.
"""

from __future__ import annotations

from typing import Final

from plog.client.consumer.simple_consumer import SimpleConsumer
from plog.client.faces.blocking import Producer
from plog.spark.sink_notes import (
    NOTES_TOPIC,
    NotedCommit,
    TaskId,
    TaskNote,
    commit_key,
    decode_commit,
    decode_task,
    task_key,
)
from plog.types import TopicPartition

_PARTITION: Final = TopicPartition(NOTES_TOPIC, 0)
_FIRST_RANGE: Final = 500
_GROWTH: Final = 4


def last_commit(consumer: SimpleConsumer, name: str) -> NotedCommit | None:
    """Return the last commit note of `name`, or None. Raises NoteError."""
    key = commit_key(name)
    start = consumer.beginning_offsets([_PARTITION])[_PARTITION]
    end = consumer.end_offsets([_PARTITION])[_PARTITION]
    size = _FIRST_RANGE
    while end > start:
        middle = max(start, end - size)
        found = None
        for record in consumer.records(_PARTITION, middle, end):
            if record.key == key:
                found = record
        if found is not None:
            return NotedCommit(found.offset, decode_commit(found.value))
        end, size = middle, size * _GROWTH
    return None


def task_notes(
    consumer: SimpleConsumer, name: str, task: TaskId, after_offset: int
) -> list[TaskNote]:
    """Return the notes of a task that follow the commit note at `after_offset`."""
    key = task_key(name, task.task)
    end = consumer.end_offsets([_PARTITION])[_PARTITION]
    records = consumer.records(_PARTITION, after_offset + 1, end)
    notes = [decode_task(task.task, record.value) for record in records if record.key == key]
    # Other notes are those of another batch that was not committed, such as another query's.
    return [note for note in notes if note.task == task]


def append_note(producer: Producer, key: bytes, value: bytes) -> int:
    """Write a note, wait until all in-sync replicas have it, and return its offset."""
    sent = producer.send(NOTES_TOPIC, value, key, partition=0)
    # Without this, the note would wait for `linger.ms`.
    producer.flush()
    return sent.result().offset
