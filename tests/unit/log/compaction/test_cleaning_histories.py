"""Random histories are compacted in several rounds, each of which gets the output of the last one.

After each round, the log must be exactly what a naive model expects.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plog.records.batch import Compression, TimestampType
from plogd.log.compaction.cleaning import Cleaned, Replacement
from plogd.log.segment.log_segment import LogSegment
from plogd.log.segment.sanity_check import sanity_check
from tests.helpers.log.compacted_log import RETENTION_MS, CompactedLog
from tests.helpers.log.compaction_model import expected_after
from tests.helpers.log.log_data import T0

KEYS = st.one_of(st.none(), *[st.just(b"key-%d" % number) for number in range(6)])
VALUES = st.one_of(st.none(), st.binary(max_size=30))
RECORDS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=5)
IDEMPOTENT, TRANSACTIONAL = (-1, 1), (2, 3, 4)

APPEND = st.tuples(
    st.just("append"),
    RECORDS,
    st.sampled_from(IDEMPOTENT + TRANSACTIONAL),
    st.sampled_from(Compression),
    st.sampled_from(TimestampType),
)
END = st.tuples(st.just("end"), st.sampled_from(TRANSACTIONAL), st.booleans(), st.booleans())
EXPIRE = st.tuples(st.just("expire"), st.sampled_from((1, *TRANSACTIONAL)))
COMPACT = st.tuples(st.just("compact"), st.sampled_from((0, 1, RETENTION_MS - 1, RETENTION_MS)))
ROLL = st.tuples(st.just("roll"))
STEPS = st.lists(st.one_of(APPEND, APPEND, APPEND, END, END, ROLL, COMPACT, EXPIRE), max_size=40)


class _History:
    """A log with the steps of a history."""

    def __init__(self) -> None:
        self.log = CompactedLog()
        self.now_ms = T0

    def append(
        self,
        records: list[tuple[bytes | None, bytes | None]],
        producer_id: int,
        codec: Compression,
        timestamp_type: TimestampType,
    ) -> None:
        self.log.append(
            *records,
            producer_id=producer_id,
            is_transactional=producer_id in TRANSACTIONAL,
            compression=codec,
            timestamp_type=timestamp_type,
        )

    def end(self, producer_id: int, is_commit: bool, bumps_epoch: bool) -> None:
        if producer_id in self.log._open:
            self.log.end_transaction(producer_id, is_commit=is_commit, bumps_epoch=bumps_epoch)

    def expire(self, producer_id: int) -> None:
        if producer_id not in self.log._open:
            self.log.producers.pop(producer_id, None)

    def roll(self) -> None:
        self.log.roll()

    def compact(self, later_ms: int) -> None:
        log = self.log
        self.now_ms += later_ms
        if not log.cleanable or log.cleanable[-1].end_offset <= log.first_dirty_offset:
            return
        before, aborted_before = log.batches(), log.aborted(log.sealed)
        end_offset = log.cleanable[-1].end_offset
        expected = expected_after(
            log, before, end_offset=end_offset, now_ms=self.now_ms, producers=log.producers
        )
        reports = log.compact(now_ms=self.now_ms)
        assert log.batches() == expected
        last = reports[-1]
        assert isinstance(last, Cleaned)
        assert last.end_offset == end_offset
        for report in reports:
            if isinstance(report, Replacement):
                _check_indexes(log, report.base_offset)
        _check_aborted(log, set(aborted_before))


def _check_indexes(log: CompactedLog, base_offset: int) -> None:
    """The new indexes match the records."""
    segment = LogSegment(log.files, log.directory, base_offset, log.config)
    sanity_check(segment)
    positions = {header.last_offset: at for at, header in segment.records.batches_from(0)}
    index = segment.indexes.by_offset
    for slot in range(index.count):
        entry = index.entry(slot)
        assert positions[entry.offset] == entry.position
    times = [header.max_timestamp for _, header in segment.records.batches_from(0)]
    assert segment.indexes.maximum.timestamp == max(times, default=-1)
    segment.close()


def _check_aborted(log: CompactedLog, before: set[Any]) -> None:
    """The indexes still have the aborted transactions of which a batch is left, and no new ones."""
    after = log.aborted(log.sealed)
    assert set(after) <= before
    assert after == sorted(after, key=lambda one: one.last_offset)
    sealed_end = log.sealed[-1].end_offset
    for batch in log.batches():
        number = log.transaction_of.get(batch.base_offset)
        if number not in log.aborted_numbers or batch.is_control:
            continue
        [marker] = [
            offset
            for offset, other in log.transaction_of.items()
            if other == number and offset > batch.base_offset and offset not in log.data_offsets
        ]
        assert marker >= sealed_end or [one for one in after if one.last_offset == marker]


def _run(steps: Iterable[tuple[Any, ...]]) -> None:
    history = _History()
    for name, *arguments in steps:
        getattr(history, name)(*arguments)
    history.log.end_all()
    history.roll()
    for later_ms in (0, RETENTION_MS, RETENTION_MS):
        history.append([(b"next", b"")], -1, Compression.NONE, TimestampType.CREATE_TIME)
        history.roll()
        history.compact(later_ms)
    keys = [record.key for record in history.log.records()]
    assert len(keys) == len(set(keys))


@given(STEPS)
def test_log_is_as_the_model_expects_after_each_round(steps: list[tuple[Any, ...]]) -> None:
    _run(steps)


@pytest.mark.parametrize("seed", range(6))
def test_long_log_is_as_the_model_expects_after_each_round(seed: int) -> None:
    """Small histories rarely have transactions that lose all their batches in turn."""
    chance = random.Random(seed)

    def step() -> tuple[Any, ...]:
        name = chance.choices(("append", "end", "expire", "roll", "compact"), (50, 20, 2, 10, 5))[0]
        if name == "append":
            records = [
                (b"key-%d" % chance.randrange(8), chance.choice([None, b"a", b"b" * 30]))
                for _ in range(chance.randint(1, 4))
            ]
            codec = chance.choice(list(Compression))
            producer_id = chance.choice(IDEMPOTENT + TRANSACTIONAL * 2)
            return name, records, producer_id, codec, chance.choice(list(TimestampType))
        if name == "end":
            return name, chance.choice(TRANSACTIONAL), chance.random() < 0.6, chance.random() < 0.5
        if name == "expire":
            return name, chance.choice((1, *TRANSACTIONAL))
        if name == "compact":
            return name, chance.choice((0, 1, RETENTION_MS - 1, RETENTION_MS))
        return (name,)

    _run(step() for _ in range(400))
