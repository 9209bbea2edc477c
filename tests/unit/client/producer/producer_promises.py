"""What a producer promises, held against what the logs of its topic have.

A record that was taken has one outcome, in time, which its callback and its future tell alike.
What is acknowledged is in the log where its metadata says; with an idempotent producer, once, and
in the order in which it was taken. What was refused, or is said not to be written, is not there.
All memory is given back.
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
"""How much later than allowed something may come on virtual time."""


class Sent(NamedTuple):
    """A record the producer took."""

    value: bytes
    handle: SendHandle
    begun: tuple[int, int]
    """Which batch of its partition it went into, and where: the order in which it was taken."""
    sent_s: float


class Life:
    """The topic from its creation to its deletion: all that was ever in its logs."""

    def __init__(self) -> None:
        self.logs: dict[int, dict[int, bytes]] = {}

    def read(self, site: ProducerSite) -> None:
        """Note what the logs hold now; what was deleted before stays noted."""
        site.sim.settle()  # What was taken just now can be read when it is on the disk.
        for partition in range(site.cluster.metadata.partition_count(TOPIC) or 0):
            log = site.sim.broker.log(TOPIC, partition)
            if log is not None:
                known = self.logs.setdefault(partition, {})
                for offset, value in _records(site, partition, log.log_start_offset):
                    assert known.setdefault(offset, value) == value, "another record than before"


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
    """What was sent and told in the course of a test, and its checks."""

    site: ProducerSite
    settings: dict[str, Any]

    def __init__(self) -> None:
        self.delivery_s = 0.0
        self.is_unclear = False
        """Nobody can know any more what was in the logs."""
        self.lives = [Life()]
        self.sent: list[Sent] = []
        self.outcomes: Counter[bytes] = Counter()
        self.told: dict[bytes, tuple[RecordMetadata | None, Exception | None, float]] = {}

    def check(self, *, is_idempotent: bool = True, is_ordered: bool = True) -> None:
        """All promises. `is_ordered`: what is acknowledged is in the log in the order sent."""
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
        never = {value for value, (_, error, _) in self.told.items() if error is not None}
        for sent in self.sent:
            assert sent.handle.done()
            assert self.outcomes[sent.value] == 1, "told more than once, or never"
            metadata, error, told_s = self.told[sent.value]
            assert error is sent.handle.error()
            if error is None:
                assert metadata == sent.handle.metadata()
            else:
                assert str(error), "an error without a text"
            took_s = told_s - sent.sent_s
            assert took_s <= self.delivery_s + SLACK_S, f"an outcome after {took_s:g} s"
        taken = {sent.value for sent in self.sent}
        assert not set(self.outcomes) - taken, "told of what was never taken"
        written = {x for life in self.lives for log in life.logs.values() for x in log.values()}
        assert not written & (never - taken), "written, but never taken"
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
        """What is acknowledged is where its metadata says, in one of the topic's lives."""
        for sent in self.sent:
            if sent.handle.error() is not None or self.settings.get("acks") == "0":
                continue
            metadata = sent.handle.metadata()
            logs = [life.logs.get(metadata.partition, {}) for life in self.lives]
            if metadata.offset >= 0:
                found = any(log.get(metadata.offset) == sent.value for log in logs)
            else:
                found = any(sent.value in log.values() for log in logs)
            assert found, f"{sent.value!r:.40} was acknowledged and is not there: {metadata}"

    def check_order(self) -> None:
        """Where it was acknowledged to be: a late copy may have got into a topic made anew."""
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
                    for told in (offset, UNKNOWN_OFFSET) if len(self.lives) == 1 else (offset,):
                        if (partition, told, value) in begun:
                            found.append(begun[partition, told, value])
                assert found == sorted(found), f"partition {partition} is out of order"
