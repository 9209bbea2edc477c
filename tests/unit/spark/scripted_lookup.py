"""`ScriptedLookup`: the lookups of a query's planning, answered from dictionaries."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from plog.errors import UnknownTopicOrPartition
from plog.spark.options.topic_choice import TopicChoice
from plog.spark.reader.data_loss import LogBounds
from plog.types import TopicPartition, Uuid

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@dataclass
class ScriptedLookup:
    """A cluster whose logs have records at the times of their offsets, in seconds."""

    logs: dict[TopicPartition, LogBounds] = field(
        default_factory=lambda: {A: LogBounds(10, 20), B: LogBounds(0, 5)}
    )
    sizes: dict[TopicPartition, int] = field(default_factory=dict)
    topic_id: Uuid | None = None
    topic_exists: bool = True
    is_deleted_meanwhile: bool = False
    """Whether the topic is deleted after the next lookup of its partitions."""
    append_time: bool = False
    lookups: int = 0
    size_lookups: int = 0

    def partitions(
        self, topics: TopicChoice, *, skip_missing: bool = False
    ) -> dict[TopicPartition, Uuid | None]:
        assert topics.topics == ("t",)
        self.lookups += 1
        if not (self.topic_exists or skip_missing):
            raise UnknownTopicOrPartition("t does not exist")
        return dict.fromkeys(sorted(self.logs), self.topic_id)

    def bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogBounds]:
        if self.is_deleted_meanwhile:
            self.topic_exists = self.is_deleted_meanwhile = False
            self.logs.clear()
            raise UnknownTopicOrPartition("t has been deleted")
        return {partition: self.logs[partition] for partition in partitions}

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        found: dict[TopicPartition, int | None] = {}
        for partition, time_ms in times.items():
            log = self.logs[partition]
            offset = max(log.start_offset, -(-time_ms // 1000))
            found[partition] = offset if offset < log.end_offset else None
        return found

    def topics_with_append_time(self, topics: Collection[str]) -> set[str]:
        return set(topics) if self.append_time else set()

    def size_bytes(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        self.size_lookups += 1
        return {partition: self.sizes[partition] for partition in partitions}
