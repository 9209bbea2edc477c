"""Check the promises of a producer against the logs of its topic.

Every accepted record has exactly one outcome in time, the same in its callback and its future. An
acknowledged record is in the log where its metadata says; with an idempotent producer, exactly once
and in the order in which records were accepted. A record that was refused, or is reported as not
written, is not in the log. All memory is released.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from plog.client.producer.producer_batch import SendHandle
from plog.client.values import UNKNOWN_OFFSET, RecordMetadata
from plog.records.reader import iter_records
from tests.unit.client.producer.producer_site import TOPIC, ProducerSite

SLACK_S = 0.2
"""The tolerance of time limits, in virtual time."""


class Sent(NamedTuple):
    """A record that the producer has accepted."""

    value: bytes
    handle: SendHandle
    begun: tuple[int, int]
    """Number of its batch in the partition, and its index there: the order of acceptance."""
    sent_s: float


class Life:
    """The topic from creation to deletion, with all records that were ever in its logs."""

    def __init__(self) -> None:
        self.logs: dict[int, dict[int, bytes]] = {}

    def read(self, site: ProducerSite) -> None:
        """Add the current records of the logs; records deleted since the last call are kept."""
        site.sim.settle()  # Records can be read once on disk.
        for partition in range(site.cluster.metadata.partition_count(TOPIC) or 0):
            log = site.sim.broker.log(TOPIC, partition)
            if log is not None:
                known = self.logs.setdefault(partition, {})
                for offset, value in _records(site, partition, log.log_start_offset):
                    assert known.setdefault(offset, value) == value, (
                        "the record at an offset has changed"
                    )


def _records(site: ProducerSite, partition: int, offset: int) -> Iterator[tuple[int, bytes]]:
    while True:
        answer = site.sim.broker.fetch(TOPIC, offset, partition=partition)
        assert answer.error_code == 0, answer
        records = list(iter_records(answer.records or b"", from_offset=offset))
        if not records:
            return
        for record in records:
            yield record.offset, record.value or b""
        offset = records[-1].offset + 1


class Promises:
    """The records and outcomes of a test, and the checks of the promises."""

    site: ProducerSite
    settings: dict[str, Any]

    def __init__(self) -> None:
        self.delivery_s = 0.0
        self.is_unclear = False
        """Whether the contents of the logs can no longer be determined."""
        self.lives = [Life()]
        self.sent: list[Sent] = []
        self.outcomes: Counter[bytes] = Counter()
        self.reported: dict[bytes, tuple[RecordMetadata | None, Exception | None, float]] = {}

    def check(self, *, is_idempotent: bool = True, is_ordered: bool = True) -> None:
        """Check all promises; with `is_ordered`, also that the log has the order of sending."""
        if self.is_unclear:
            return
        self.lives[-1].read(self.site)
        self.check_outcomes()
        self.check_memory()
        if is_idempotent:
            for life in self.lives:
                for partition, log in life.logs.items():
                    [(value, times)] = Counter(log.values()).most_common(1) or [(b"", 1)]
                    assert times == 1, f"{value!r:.40} is {times} times in partition {partition}"
        self.check_acknowledged()
        if is_ordered:
            self.check_order()

    def check_outcomes(self) -> None:
        never = {value for value, (_, error, _) in self.reported.items() if error is not None}
        for sent in self.sent:
            assert sent.handle.done()
            assert self.outcomes[sent.value] == 1, "not exactly one outcome"
            metadata, error, reported_s = self.reported[sent.value]
            assert error is sent.handle.error()
            if error is None:
                assert metadata == sent.handle.metadata()
            else:
                assert str(error), "an error without a text"
            took_s = reported_s - sent.sent_s
            assert took_s <= self.delivery_s + SLACK_S, f"an outcome after {took_s:g} s"
        taken = {sent.value for sent in self.sent}
        assert not set(self.outcomes) - taken, "an outcome of a record that was not accepted"
        written = {x for life in self.lives for log in life.logs.values() for x in log.values()}
        assert not written & (never - taken), "written, but not accepted"
        for sent in self.sent:
            error = sent.handle.error()
            if error is not None and "it was not written" in str(error):
                assert sent.value not in written, str(error)

    def check_memory(self) -> None:
        accumulator, metrics = self.site.core._accumulator, self.site.core.metrics()
        assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"]
        assert metrics["requests-in-flight"] == metrics["waiting-threads"] == 0
        assert not accumulator.incomplete
        assert not accumulator.waiting

    def check_acknowledged(self) -> None:
        """Check that acknowledged records are where their metadata says, in one of the lives."""
        for sent in self.sent:
            if sent.handle.error() is not None or self.settings.get("acks") == "0":
                continue
            metadata = sent.handle.metadata()
            logs = [life.logs.get(metadata.partition, {}) for life in self.lives]
            if metadata.offset >= 0:
                found = any(log.get(metadata.offset) == sent.value for log in logs)
            else:
                found = any(sent.value in log.values() for log in logs)
            assert found, f"{sent.value!r:.40} was acknowledged but is not in the log: {metadata}"

    def check_order(self) -> None:
        """Check the order at the acknowledged offsets: a recreated topic may have a late copy."""
        begun = {
            (
                sent.handle.metadata().partition,
                sent.handle.metadata().offset,
                sent.value,
            ): sent.begun
            for sent in self.sent
            if sent.handle.error() is None
        }
        for life in self.lives:
            for partition, log in life.logs.items():
                found = []
                for offset, value in sorted(log.items()):
                    for reported in (offset, UNKNOWN_OFFSET) if len(self.lives) == 1 else (offset,):
                        if (partition, reported, value) in begun:
                            found.append(begun[partition, reported, value])
                assert found == sorted(found), f"partition {partition} is out of order"
