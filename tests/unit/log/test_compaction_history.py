"""Compacted logs against a model, over any history of appends, compactions and crashes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from plog.records.builder import build_batch
from plog.records.codec import Record
from plogd.log.log import Log
from tests.helpers.log.compaction_site import (
    COMPACT,
    Stored,
    checkpointed_offset,
    compact,
    end_transaction,
    stored,
)
from tests.helpers.log.log_site import LogSite

RETENTION_MS = 10_000
CONFIGS = {
    "t-0": replace(COMPACT, delete_retention_ms=RETENTION_MS),
    "u-0": replace(
        COMPACT,
        delete_retention_ms=RETENTION_MS,
        cleanup_policy=("compact", "delete"),
        retention_ms=60_000,
    ),
}
KEYS = (b"a", b"b", b"c", b"d")


@dataclass(slots=True)
class Entry:
    """The record at one offset; a marker has no key."""

    key: bytes | None
    value: bytes | None
    epoch: int
    producer_id: int
    sequence: int
    is_transactional: bool
    is_commit: bool
    timestamp: int
    appended_ms: int
    is_gone: bool = False
    """Whether it was compacted away, and the record that replaced it has been truncated."""


@dataclass(slots=True)
class Model:
    """All records that were appended to a log and not truncated, by offset."""

    entries: list[Entry] = field(default_factory=list)
    durable_end_offset: int = 0
    generation: int = 0
    """Each truncation begins with new producers, because the state of others may be lost."""

    def ids(self) -> dict[int, int]:
        """The last sequence number of each current producer."""
        found: dict[int, int] = {}
        for entry in self.entries:
            if entry.producer_id // 10 == self.generation and entry.key is not None:
                found[entry.producer_id] = entry.sequence
        return found

    def open_producers(self) -> list[int]:
        found: dict[int, None] = {}
        for entry in self.entries:
            if entry.is_transactional:
                if entry.key is None:
                    found.pop(entry.producer_id, None)
                else:
                    found[entry.producer_id] = None
        return list(found)

    def aborted(self) -> set[int]:
        """The offsets of records in aborted transactions."""
        found: set[int] = set()
        begun: dict[int, list[int]] = {}
        for offset, entry in enumerate(self.entries):
            if not entry.is_transactional:
                continue
            if entry.key is not None:
                begun.setdefault(entry.producer_id, []).append(offset)
            else:
                offsets = begun.pop(entry.producer_id, [])
                if not entry.is_commit:
                    found.update(offsets)
        return found

    def cut(self, end_offset: int) -> None:
        del self.entries[end_offset:]

    def forget_missing(self, offsets: set[int]) -> None:
        """Expect the records that are not at `offsets` no longer."""
        for offset, entry in enumerate(self.entries):
            entry.is_gone = entry.is_gone or offset not in offsets
        self.generation += 1


class History:
    """Runs steps on a site and updates the models."""

    def __init__(self) -> None:
        self.site = LogSite().start()
        self.models = {name: Model() for name in CONFIGS}
        self.count = 0
        self.compacted = 0
        for name, config in CONFIGS.items():
            self.site.create(name, config)

    def _log(self, number: int) -> tuple[Log, Model]:
        name = list(CONFIGS)[number % len(CONFIGS)]
        return self.site.log(name), self.models[name]

    # -- steps --------------------------------------------------------------------------------

    def append(self, number: int) -> None:
        """Append one to three records, some of which are tombstones."""
        log, model = self._log(number)
        producer = number // 2 % 5
        producer_id = model.generation * 10 + producer if producer else -1
        is_transactional = producer > 2
        sequence = model.ids().get(producer_id, -1) + 1
        now_ms = self.site.ports.clock.now_ms()
        entries = []
        for index in range(1 + number // 10 % 3):
            self.count += 1
            is_tombstone = (number + index) % 7 == 0
            entries.append(
                Entry(
                    key=KEYS[(number + self.count) % len(KEYS)],
                    value=None if is_tombstone else b"%d" % self.count + b"." * number,
                    epoch=self.site.epoch,
                    producer_id=producer_id,
                    sequence=sequence + index,
                    is_transactional=is_transactional,
                    is_commit=False,
                    timestamp=now_ms - number,
                    appended_ms=now_ms,
                )
            )
        batch = build_batch(
            [Record(timestamp=one.timestamp, key=one.key, value=one.value) for one in entries],
            producer_id=producer_id,
            producer_epoch=0 if producer else -1,
            base_sequence=sequence if producer else -1,
            is_transactional=is_transactional,
        )
        info = log.append_as_leader(
            memoryview(bytearray(batch)), leader_epoch=self.site.epoch, now_ms=now_ms
        )
        assert (info.duplicate, info.first_offset) == (False, len(model.entries))
        model.entries += entries

    def end(self, number: int) -> None:
        """Commit or abort an open transaction."""
        log, model = self._log(number)
        for producer_id in model.open_producers()[:1]:
            is_commit = number // 2 % 2 == 0
            offset = end_transaction(self.site, log, producer_id, commit=is_commit)
            assert offset == len(model.entries)
            model.entries.append(
                Entry(None, None, self.site.epoch, producer_id, -1, True, is_commit, -1, 0)
            )

    def roll(self, number: int) -> None:
        log, _ = self._log(number)
        if log.segments.active.size_bytes:
            log.roll()

    def compact(self, number: int) -> None:
        """Compact until nothing is dirty, or begin a compaction."""
        if number % 2:
            self.site.manager.cleaner.run()
            return
        self.site.settle()
        while compact(self.site):
            self.compacted += 1
        for name, model in self.models.items():
            if not model.generation:  # A truncation may end in a transaction.
                self._check_compacted(self.site.log(name), model)

    def compact_and_crash(self, number: int) -> None:
        self.site.settle()
        self.site.manager.cleaner.run()
        for _ in range(number % 25):
            self.turn(0)
            self.job(0)
        self.crash(number)

    def turn(self, number: int) -> None:
        self.site.ports.timers.run_due()

    def job(self, number: int) -> None:
        lanes = self.site.ports.jobs.waiting
        if lanes:
            self.site.ports.jobs.run_one(lanes[number % len(lanes)])

    def truncate(self, number: int) -> None:
        log, model = self._log(number)
        offset = max(log.log_start_offset, log.log_end_offset - number // 3)
        self.site.settle(log.truncate_to(offset))
        assert log.log_end_offset <= offset
        model.cut(log.log_end_offset)
        model.forget_missing({one.offset for one in stored(log)} | _markers(model))

    def truncate_and_crash(self, number: int) -> None:
        log, model = self._log(number)
        offset = max(log.log_start_offset, log.log_end_offset - number // 3)
        log.truncate_to(offset)
        for _ in range(number % 12):
            self.turn(0)
            self.job(number)
        self.crash(number, {id(model): offset})

    def delete_records(self, number: int) -> None:
        log, _ = self._log(number)
        log.delete_records_before(max(log.log_start_offset, log.high_watermark - number // 2))

    def expire(self, number: int) -> None:
        self.site.manager.apply_retention(self.site.ports.clock.now_ms())

    def write(self, number: int) -> None:
        manager = self.site.manager
        [manager.write_recovery_points, manager.write_high_watermarks, manager.write_log_starts][
            number % 3
        ]()

    def wait(self, number: int) -> None:
        self.site.ports.advance(number * 300)

    def restart(self, number: int) -> None:
        self._next(self.site.restart(), {})

    def kill(self, number: int) -> None:
        self._next(self.site.kill(), {})

    def crash(self, number: int, cuts: dict[int, int] | None = None) -> None:
        self._next(self.site.crash(number), cuts or {})

    # -- invariants ---------------------------------------------------------------------------

    def _next(self, site: LogSite, cuts: dict[int, int]) -> None:
        old, self.site = self.site, site
        assert old.bugs == []
        assert not [line for line in site.reports if "has lost" in line or "damaged" in line]
        for name, model in self.models.items():
            log, before = site.log(name), old.log(name)
            cut = cuts.get(id(model))
            least = before.durable_end_offset if cut is None else 0
            assert least <= log.log_end_offset <= len(model.entries)
            model.cut(log.log_end_offset)
            if cut is not None:
                model.forget_missing({one.offset for one in stored(log)} | _markers(model))
            self._check(log, model)

    def check_all(self) -> None:
        self.site.settle()
        assert (self.site.offline, self.site.bugs) == ([], [])
        assert self.site.manager.housekeeping.errors_by_task["compaction"] == 0
        for name, model in self.models.items():
            self._check(self.site.log(name), model)

    def _check(self, log: Log, model: Model) -> None:
        assert log.log_end_offset == len(model.entries)
        aborted = model.aborted()
        found = stored(log)
        assert [one.offset for one in found] == sorted({one.offset for one in found})
        for one in found:
            entry = model.entries[one.offset]
            expected = Stored(one.offset, entry.key, entry.value, entry.timestamp, entry.epoch)
            assert one == expected
        present = {one.offset for one in found}
        self._check_missing(log, model, aborted, present)
        committed = {one.offset for one in stored(log, read_committed=True)}
        stable = log.last_stable_offset
        assert committed == {one for one in present if one < stable} - aborted
        sequences = {
            one.producer_id: one.last_sequence
            for one in log.producer_state.producers.values()
            if one.producer_id // 10 == model.generation and one.batches
        }
        expected_ids = model.ids()
        assert sequences.items() <= expected_ids.items()
        if not log.log_start_offset and not model.generation:
            assert sequences == expected_ids

    def _check_missing(self, log: Log, model: Model, aborted: set[int], present: set[int]) -> None:
        """A missing record has a later record of its key, is an old tombstone, or was aborted."""
        now_ms = self.site.ports.clock.now_ms()
        last: dict[bytes | None, int] = {}
        for offset in reversed(range(log.log_start_offset, log.high_watermark)):
            entry = model.entries[offset]
            if entry.key is None or entry.is_gone:
                continue
            if offset not in present:
                assert offset < log.segments.active.base_offset
                is_old = now_ms - entry.appended_ms >= RETENTION_MS and entry.value is None
                assert offset in aborted or entry.key in last or is_old, (offset, entry)
                # A value must not come back when its tombstone has been removed.
                if is_old and entry.key not in last and offset not in aborted:
                    last[entry.key] = offset
                    older = [
                        at
                        for at in range(log.log_start_offset, offset)
                        if model.entries[at].key == entry.key and at not in aborted
                    ]
                    assert present.isdisjoint(older), (offset, older)
            if offset not in aborted:
                last.setdefault(entry.key, offset)

    def _check_compacted(self, log: Log, model: Model) -> None:
        """Below the end of the compacted part, only the last record of each key remains."""
        aborted = model.aborted()
        found = stored(log)
        end = checkpointed_offset(self.site, log) or 0
        compacted = [one for one in found if one.offset < end]
        last = {
            entry.key: offset
            for offset, entry in enumerate(model.entries[:end])
            if offset not in aborted
        }
        assert [one for one in compacted if one.offset != last.get(one.key)] == []


def _markers(model: Model) -> set[int]:
    return {offset for offset, entry in enumerate(model.entries) if entry.key is None}


STEPS = (
    *["append"] * 10,
    *["end"] * 4,
    *["roll"] * 2,
    *["compact"] * 4,
    *["job"] * 4,
    *["turn"] * 2,
    *["compact_and_crash", "truncate", "truncate_and_crash", "delete_records", "expire"],
    *["write", "wait", "restart", "kill", "crash"],
)


@settings(max_examples=150, deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 50)), max_size=60))
@example(steps=[*[("append", 40)] * 9, ("roll", 0), ("compact", 0), ("crash", 3)])
def test_any_history_keeps_the_last_record_of_each_key(steps: list[tuple[str, int]]) -> None:
    history = History()
    for name, number in steps:
        getattr(history, name)(number)
    history.check_all()
    history.compact(0)
    history.check_all()
    history.crash(len(steps))
    history.append(0)
    history.compact(0)
    history.check_all()
