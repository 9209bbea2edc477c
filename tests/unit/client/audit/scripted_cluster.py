"""`ScriptedCluster`: the lookups of an audit, answered from logs in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from plog.audit import AUDIT_HEADER, AUDIT_TOPIC, AuditReport, encode_report
from plog.client.values import ConsumerRecord
from plog.errors import OffsetOutOfRange, RequestTimedOut
from plog.records.batch import TimestampType
from plog.types import TopicPartition, Uuid

REPORTS = TopicPartition(AUDIT_TOPIC, 0)


@dataclass
class ScriptedCluster:
    """Logs of records; `before_read` is called once, when the first topic is read."""

    logs: dict[TopicPartition, list[ConsumerRecord]] = field(default_factory=dict)
    start_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    topic_ids: dict[str, Uuid] = field(default_factory=dict)
    open_from: dict[TopicPartition, int] = field(default_factory=dict)
    """Where a transaction is open."""
    before_read: Callable[[], object] | None = None

    def create(self, topic: str, partitions: int = 1) -> None:
        for number in range(partitions):
            self.logs[TopicPartition(topic, number)] = []
        self.topic_ids[topic] = Uuid(bytes([len(self.topic_ids)]) * 16)

    def append(
        self,
        partition: TopicPartition,
        value: bytes | None,
        producer: str | None = "web-1",
        at_ms: int = 60_000,
    ) -> None:
        headers = [] if producer is None else [(AUDIT_HEADER, producer.encode())]
        log = self.logs[partition]
        log.append(
            ConsumerRecord(
                topic=partition.topic,
                partition=partition.partition,
                offset=len(log),
                timestamp=at_ms,
                timestamp_type=TimestampType.CREATE_TIME,
                key=None,
                value=value,
                headers=headers,
                leader_epoch=0,
            )
        )

    def report(self, report: AuditReport) -> None:
        if REPORTS not in self.logs:
            self.create(AUDIT_TOPIC)
        self.append(REPORTS, encode_report(report), producer=None)

    def delete_before(self, partition: TopicPartition, offset: int) -> None:
        self.start_offsets[partition] = offset

    # -- the lookups ------------------------------------------------------------------------------

    def topics(self) -> Collection[str]:
        return list(self.topic_ids)

    def partitions(self, topics: Collection[str]) -> dict[TopicPartition, Uuid | None]:
        return {
            one: self.topic_ids[one.topic]
            for one in sorted(self.logs)
            if one.topic in topics and one.topic in self.topic_ids
        }

    def starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {one: self.start_offsets.get(one, 0) for one in partitions}

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {one: self.open_from.get(one, len(self.logs[one])) for one in partitions}

    def written_ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {one: len(self.logs[one]) for one in partitions}

    def first_at(
        self, partitions: Collection[TopicPartition], time_ms: int
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        found: dict[TopicPartition, tuple[int, int] | None] = {}
        for one in partitions:
            later = (
                (record.offset, record.timestamp)
                for record in self.logs[one][self.start_offsets.get(one, 0) :]
                if record.timestamp >= time_ms
            )
            found[one] = next(later, None)
        return found

    def records(self, partition: TopicPartition, start: int, end: int) -> Iterator[ConsumerRecord]:
        if self.before_read is not None and partition != REPORTS:
            change, self.before_read = self.before_read, None
            change()
        if start < self.start_offsets.get(partition, 0):
            raise OffsetOutOfRange(f"{partition} does not contain {start}")
        yield from self.logs[partition][start:end]
        if end > len(self.logs[partition]):
            raise RequestTimedOut(f"{partition} ends before {end}")
